"""Calls that repeat: what the checks and the choice of a path found out for a call holds for the next one like it.

A training step calls its loss with the same shapes, types and arguments every time. What was worked out for them the
first time is kept, so that the host spends its time on the launches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._catalogue import is_in_catalogue
from ..torch_state import in_forward_mode, in_transform, is_jit_tracing

Loss = Callable[[Tensor, Tensor, torch.dtype], Tensor]
_PLAIN = (Tensor, torch.nn.Parameter)
_MOST = 1024  # signatures; a program that meets more of them starts over

_remembered: dict[tuple[Any, ...], Loss] = {}
find = _remembered.get


def signature(input: Tensor, target: Tensor, curve: Curve, ignore_index: int, reduction: str, label_smoothing: float,
              impl: str) -> tuple[Any, ...] | None:
    """All that the way of a call depends on, beside the state of torch; None for a call whose way is not remembered."""
    if type(input) not in _PLAIN or type(target) not in _PLAIN or not (input.is_cuda or impl == "triton"):
        return None
    if torch.compiler.is_compiling() or in_transform() or in_forward_mode() or is_jit_tracing():
        return None
    if not (isinstance(curve, Curve) and is_in_catalogue(curve)):
        return None
    if type(ignore_index) is not int or type(label_smoothing) not in (float, int):
        return None  # 1, 1.0 and True are one key
    if type(reduction) is not str or type(impl) is not str:
        return None
    return (input.shape, input.stride(), input.dtype, input.device, input.data_ptr() & 15, target.shape,
            target.stride(), target.dtype, target.device, curve, ignore_index, reduction, label_smoothing, impl)


def remember(key: tuple[Any, ...], loss: Loss) -> None:
    """Take this way for all calls of that signature."""
    if len(_remembered) >= _MOST:
        _remembered.clear()
    _remembered[key] = loss


def forget() -> None:
    """Work everything out again."""
    _remembered.clear()
