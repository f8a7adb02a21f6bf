"""``torch.compile`` for training, where the last batch of an epoch may be smaller than the others."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

_last_compiled: Any = None  # a description of the network that this process compiled last


class Compiled(nn.Module):
    """Compiles a model for the shape of every full batch; a smaller last batch of an epoch runs uncompiled.

    Compiling takes longer than hundreds of such batches would gain from it.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        _raise_recompile_limits(model)
        # The warning advises TF32, which precision.py switches off on purpose.
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
        self.model, self.fast = model, torch.compile(model, dynamic=False)
        self.full_rows: dict[tuple[int, ...], int] = {}  # of the largest batch so far, per shape of an example

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return (self.model if self._is_smaller(inputs) else self.fast)(*inputs, **named)

    def _is_smaller(self, inputs: tuple[Any, ...]) -> bool:
        """Whether the batch has fewer rows than an earlier one of the same shape per example."""
        if not inputs or not isinstance(inputs[0], Tensor) or not inputs[0].ndim:
            return False
        rows, *example = inputs[0].shape
        full = max(rows, self.full_rows.get(tuple(example), 0))
        self.full_rows[tuple(example)] = full
        return rows < full

    def __getattr__(self, name: str) -> Any:
        """Attributes of the wrapped model, which a task may use."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)


def _raise_recompile_limits(model: nn.Module) -> None:
    """Let torch compile this model for all of its shapes, whatever the process has compiled before.

    Torch counts compilations per code object, so all networks of one class share a count, and after eight compilations
    further ones run uncompiled. The limit is therefore raised to the largest one, and the count starts again when the
    network differs from the last one. Runs of the same network, such as other seeds, reuse its compilations.
    """
    global _last_compiled
    from torch import _dynamo as dynamo  # importing it takes a second

    dynamo.config.recompile_limit = max(dynamo.config.recompile_limit, dynamo.config.accumulated_recompile_limit)
    network = str(model), [(name, *_kind(value)) for name, value in model.state_dict().items()]
    if _last_compiled is not None and network != _last_compiled:
        dynamo.reset()
    _last_compiled = network


def _kind(value: Any) -> tuple[Any, ...]:
    """Shape and dtype of an entry of a state dict; its type if it is not a tensor, or has no shape yet."""
    if not isinstance(value, Tensor) or nn.parameter.is_lazy(value):
        return (type(value),)
    return value.shape, value.dtype
