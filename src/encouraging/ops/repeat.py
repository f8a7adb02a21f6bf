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
from ..torch_state import in_forward_mode

Loss = Callable[..., Tensor]  # of logits, target, the type of the loss, weight and divisor
_PLAIN = (Tensor, torch.nn.Parameter)
_NUMBERS = (float, int)
# By these names they take half of the time, in every call.
_transform_level = torch._C._functorch.maybe_current_level
_tracing_state = torch._C._get_tracing_state
is_compiling = torch.compiler.is_compiling
_MOST = 1024  # signatures; a program that meets more of them starts over

_remembered: dict[tuple[Any, ...], Loss] = {}
_own_curves: set[type] = set()  # the types of the catalogue that were met
find = _remembered.get


def signature(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None, ignore_index: int, reduction: str,
              label_smoothing: float, divisor: object, impl: str) -> tuple[Any, ...] | None:
    """All that the way of a call depends on, beside the state of torch; None for a call whose way is not remembered."""
    if type(input) not in _PLAIN or type(target) not in _PLAIN or not (input.is_cuda or impl == "triton"):
        return None
    if is_compiling() or _transform_level() is not None or in_forward_mode() or _tracing_state() is not None:
        return None
    if type(curve) not in _own_curves and not _is_own(curve):
        return None
    if type(ignore_index) is not int or type(label_smoothing) not in _NUMBERS:
        return None  # 1, 1.0 and True are one key
    if type(reduction) is not str or type(impl) is not str:
        return None
    device, own = input.device, None
    if weight is not None or divisor is not None:
        own = _numbers(weight, device), _numbers(divisor, device)
        if False in own:
            return None
    return (input.shape, input.stride(), input.dtype, device, input.data_ptr() & 15, target.shape, target.stride(),
            target.dtype, target.device, curve, ignore_index, reduction, label_smoothing, impl, own)


def _is_own(curve: object) -> bool:
    if not (isinstance(curve, Curve) and is_in_catalogue(curve)):
        return False
    _own_curves.add(type(curve))
    return True


def _numbers(tensor: object, device: torch.device) -> torch.Size | bool | None:
    """The shape of a tensor that the kernels read as it is; None for none, False for anything else."""
    if tensor is None:
        return None
    if not isinstance(tensor, Tensor) or type(tensor) not in _PLAIN:
        return False
    as_it_is = (tensor.dtype is torch.float32 and tensor.device == device and not tensor.requires_grad
                and tensor.is_contiguous())
    return tensor.shape if as_it_is else False


def remember(key: tuple[Any, ...], loss: Loss) -> None:
    """Take this way for all calls of that signature."""
    if len(_remembered) >= _MOST:
        _remembered.clear()
    _remembered[key] = loss


def forget() -> None:
    """Work everything out again."""
    _remembered.clear()
