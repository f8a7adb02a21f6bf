"""The binary files of CIFAR-10 and CIFAR-100: a record is one or two label bytes and 3 x 32 x 32 pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError

_PIXELS = 3 * 32 * 32


def read_cifar(path: Path, label_bytes: int = 1) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) as uint8 and the last label byte of each record (CIFAR-100's fine label) as int64."""
    record = label_bytes + _PIXELS
    content = np.fromfile(path, np.uint8)
    if content.size == 0 or content.size % record:
        raise DataError(f"{path}: expected whole records of {record} bytes ({label_bytes} label, {_PIXELS} pixels); "
                        f"got {content.size} bytes. The file is cut off or is not the binary version.")
    rows = torch.from_numpy(content).view(-1, record)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32).clone(), rows[:, label_bytes - 1].long()
