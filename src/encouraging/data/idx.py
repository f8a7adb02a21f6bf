"""The IDX format of MNIST and its relatives: a magic number, the sizes, then bytes."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError

_UBYTE = 8


def read_idx(path: Path) -> Tensor:
    """An IDX file of unsigned bytes, gzipped or not, as a uint8 tensor of the sizes its header names."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}). Fetch the file again.") from error
    if len(content) < 4 or content[:2] != b"\0\0":
        raise DataError(f"{path}: expected an IDX file, which begins with two zero bytes; got {content[:4]!r}.")
    kind, dims = content[2], content[3]
    if kind != _UBYTE:
        raise DataError(f"{path}: expected unsigned bytes (type 8 in the IDX header); got type {kind}.")
    start = 4 + 4 * dims
    sizes = [int.from_bytes(content[4 + 4 * d : 8 + 4 * d], "big") for d in range(dims)]
    if len(content) - start != math.prod(sizes):
        raise DataError(f"{path}: the header promises {math.prod(sizes)} bytes {tuple(sizes)} and "
                        f"{len(content) - start} follow: the file is cut off or damaged. Fetch it again.")
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).copy()).view(sizes)
