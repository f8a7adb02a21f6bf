"""A model that ``torch.compile`` has made faster, for whole batches."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn


class Compiled(nn.Module):
    """Compiles for every shape of a batch but the last, smaller one of an epoch, which runs as it is.

    A compilation takes longer than hundreds of such batches would gain by it.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        # float32 is meant to be float32: see precision.py.
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        self.model, self.fast = model, torch.compile(model, dynamic=False)
        self.most: dict[torch.Size, int] = {}  # rows, by the rest of the shape

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return (self.model if self._is_rest(inputs) else self.fast)(*inputs, **named)

    def _is_rest(self, inputs: tuple[Any, ...]) -> bool:
        if not inputs or not isinstance(inputs[0], Tensor) or not inputs[0].ndim:
            return False
        rows, *rest = inputs[0].shape
        most = self.most.setdefault(torch.Size(rest), rows)
        if rows > most:
            self.most[torch.Size(rest)] = rows
        return rows < most

    def __getattr__(self, name: str) -> Any:
        """What a task asks of its model."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)
