"""A cache for calls that repeat: the checks and the choice of the kernel are done once for all calls that are alike.

A training step calls its loss with the same shapes, types and arguments every time. From the second time on, the host
spends its time on the launches alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._catalogue import is_in_catalogue
from ..curves._focal import LateFocal
from ..torch_state import PLAIN, in_forward_mode, is_compiling, tracing_state, transform_level
from .dispatch import KERNEL_DTYPES

Loss = Callable[..., Tensor]  # of logits, target, the type of the loss, weight, divisor and curve
_NUMBERS = (float, int)
_ALPHAS = (type(None), float, int)
_MOST = 1024  # signatures; a program that meets more of them starts over

_remembered: dict[tuple[Any, ...], Loss] = {}
_catalogue_types: set[type] = set()  # those that were met
_FOREIGN = "a curve without a kernel"  # nothing that is worked out depends on which one
find = _remembered.get


def signature(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None, ignore_index: int, reduction: str,
              label_smoothing: float, divisor: object, impl: str, match_norm: bool = False) -> tuple[Any, ...] | None:
    """A key of everything that decides what a call launches; None if the call cannot be cached."""
    if not ((impl == "triton" or is_on_gpu(input)) and _is_plain(input, target)):
        return None
    curve_key: Curve | str = curve
    if type(curve) not in _catalogue_types and not is_from_catalogue(curve):
        if not isinstance(curve, Curve):
            return None
        curve_key = _FOREIGN
    if type(ignore_index) is not int or type(label_smoothing) not in _NUMBERS or type(match_norm) is not bool:
        return None  # 1, 1.0 and True are one key
    if type(reduction) is not str or type(impl) is not str:
        return None
    device, factors = input.device, None
    if weight is not None or divisor is not None:
        factors = factor(weight, device, KERNEL_DTYPES), factor(divisor, device)
        if False in factors:
            return None
    return (input.shape, input.stride(), input.dtype, device, input.data_ptr() & 15, target.shape, target.stride(),
            target.dtype, target.device, curve_key, ignore_index, reduction, label_smoothing, impl, match_norm, factors)


def elementwise_signature(input: Tensor, target: Tensor, curves: tuple[Curve, Curve | None], weight: Tensor | None,
                          pos_weight: Tensor | None, alpha: object, reduction: str,
                          divisor: object) -> tuple[Any, ...] | None:
    """:func:`signature` for the sigmoid link."""
    if not is_on_gpu(input) or not _are_dense(input, target) or not _is_plain(input, target) or target.requires_grad:
        return None
    if not all(each is None or type(each) in _catalogue_types or type(each) is LateFocal or is_from_catalogue(each)
               for each in curves):
        return None
    if type(reduction) is not str or type(alpha) not in _ALPHAS or curves[0] is None:
        return None
    device, factors = input.device, None
    if weight is not None or pos_weight is not None or divisor is not None:
        factors = (factor(weight, device, KERNEL_DTYPES), factor(pos_weight, device, KERNEL_DTYPES),
                   factor(divisor, device))
        if False in factors:
            return None
    return (input.shape, input.stride(), input.dtype, device, target.shape, target.stride(), target.dtype,
            target.device, curves, alpha, reduction, factors)


def mse_signature(input: Tensor, target: Tensor, bonus: bool, link: str, reduction: str,
                  divisor: object) -> tuple[Any, ...] | None:
    """:func:`signature` for squared errors."""
    if not is_on_gpu(input) or not _are_dense(input, target) or not _is_plain(input, target) or target.requires_grad:
        return None
    if type(bonus) is not bool or type(link) is not str or type(reduction) is not str:
        return None
    over = factor(divisor, input.device)
    if over is False:
        return None
    return (input.shape, input.stride(), input.dtype, input.device, input.data_ptr() & 15, target.shape,
            target.stride(), target.dtype, target.device, bonus, link, reduction, over)


def _is_plain(input: object, target: object) -> bool:
    """Whether these are ordinary tensors of which the kernels read the memory, in eager mode."""
    return (type(input) in PLAIN and type(target) in PLAIN and not is_compiling() and transform_level() is None
            and tracing_state() is None and not in_forward_mode()
            and not (input.is_neg() or target.is_neg()))  # type: ignore[attr-defined]


def _are_dense(*tensors: object) -> bool:
    return all(getattr(tensor, "layout", None) is torch.strided for tensor in tensors)


def is_from_catalogue(curve: object) -> bool:
    """Whether the curve is one of the package's, which have kernels."""
    if type(curve) in _catalogue_types:
        return True
    if not (isinstance(curve, Curve) and is_in_catalogue(curve)):
        return False
    _catalogue_types.add(type(curve))
    return True


def factor(tensor: object, device: torch.device,
           dtypes: tuple[torch.dtype, ...] = KERNEL_DTYPES[:1]) -> tuple[torch.Size, torch.dtype] | bool | None:
    """Shape and type of a tensor that the kernels read as it is; None for none, False for anything else."""
    if tensor is None:
        return None
    if not isinstance(tensor, Tensor) or type(tensor) not in PLAIN:
        return False
    as_it_is = (tensor.dtype in dtypes and tensor.device == device and not tensor.requires_grad
                and tensor.is_contiguous() and not tensor.is_neg())
    return (tensor.shape, tensor.dtype) if as_it_is else False


def is_on_gpu(input: object) -> bool:
    """Whether this is a tensor on a GPU."""
    return getattr(input, "is_cuda", False) is True


def remember(key: tuple[Any, ...], loss: Loss) -> None:
    """Cache what calls with this key launch."""
    if len(_remembered) >= _MOST:
        _remembered.clear()
    _remembered[key] = loss


def forget() -> None:
    """Empty the cache."""
    _remembered.clear()
