"""A model that ``torch.compile`` has made faster, for whole batches."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

_last: Any = None  # the network that this process compiled last, in words


class Compiled(nn.Module):
    """Compiles for every shape of a batch but the last, smaller one of an epoch, which runs as it is.

    A compilation takes longer than hundreds of such batches would gain by it.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        _make_room(model)
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


def _make_room(model: nn.Module) -> None:
    """Let torch compile this model for all of its shapes, whatever the process has compiled before.

    Torch counts compilations by code, all networks of one class together, and after eight it leaves every further one
    uncompiled. So as many are allowed as torch can hold, and a network unlike the last one starts with none. Runs of
    the same network, such as other seeds, keep theirs.
    """
    global _last
    from torch import _dynamo as dynamo  # a second, which only those wait who compile

    dynamo.config.recompile_limit = max(dynamo.config.recompile_limit, dynamo.config.accumulated_recompile_limit)
    network = str(model), [(name, *_kind(each)) for name, each in model.state_dict().items()]
    if _last is not None and network != _last:
        dynamo.reset()
    _last = network


def _kind(value: Any) -> tuple[Any, ...]:
    """What tells the weights of networks apart: a state may also hold what is no tensor, or has no shape yet."""
    if not isinstance(value, Tensor) or nn.parameter.is_lazy(value):
        return (type(value),)
    return value.shape, value.dtype
