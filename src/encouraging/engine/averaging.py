"""The average of the last epochs' weights, as used for translation: one file per epoch, of which the last few stay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from ..errors import CheckpointError
from .checkpoint import host_copies
from .files import write_whole

_NAME = re.compile(r"epoch-(\d+)\.safetensors")


def keep_weights(folder: Path, epoch: int, weights: Mapping[str, Tensor], number: int) -> None:
    """Write an epoch's weights, and remove those of epochs that are no longer needed for the average."""
    write_whole(folder / f"epoch-{epoch:06d}.safetensors", safetensors.torch.save(host_copies(weights)))
    for stored_epoch, path in _stored_epochs(folder).items():
        if not epoch - number < stored_epoch <= epoch:
            path.unlink(missing_ok=True)


def average_weights(folder: Path, number: int) -> dict[str, Tensor]:
    """The mean of the last epochs' weights. Integers (batch norm's counters) are those of the last epoch."""
    paths = [path for _, path in sorted(_stored_epochs(folder).items())][-number:]
    if not paths:
        raise CheckpointError(f"{folder}: expected weights of single epochs (epoch-*.safetensors) to average, found "
                              "none. Move the folder away to train the run again.")
    last = safetensors.torch.load_file(paths[-1])
    sums = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in last.items()
            if tensor.is_floating_point()}
    for path in paths:
        for name, tensor in safetensors.torch.load_file(path).items():
            if name in sums:
                sums[name] += tensor
    return {name: (sums[name] / len(paths)).to(tensor.dtype) if name in sums else tensor
            for name, tensor in last.items()}


def _stored_epochs(folder: Path) -> dict[int, Path]:
    return {int(match[1]): path for path in folder.glob("epoch-*.safetensors") if (match := _NAME.fullmatch(path.name))}
