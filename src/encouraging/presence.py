"""Targets of the sigmoid link, which say of each class whether it is present, and the factors of their losses."""

from __future__ import annotations

import torch
from torch import Tensor

from .errors import ArgumentError, DtypeError, ShapeError, TargetError
from .targets import WIDE_UNSIGNED, check_dense, is_fraction, is_integer
from .torch_state import values_are_readable


def check_presence(input: Tensor, target: Tensor) -> None:
    """Refuse a target that is neither the index of the present class, of two or more, nor one 0, 1 or probability per
    logit."""
    if not isinstance(target, Tensor):
        raise DtypeError(f"target is a {type(target).__name__}: expected a tensor of 0s and 1s or of probabilities.")
    check_dense("target", target)
    index = target.shape == input.shape[:-1] and input.ndim > 0 and is_integer(target)
    if target.shape != input.shape and not index:
        raise ShapeError(f"target has shape {tuple(target.shape)} for an input of shape {tuple(input.shape)}: expected "
                         "the same shape, one 0 or 1 (or a probability) for each logit, or integers of shape "
                         f"{tuple(input.shape[:-1])}, the index of the one class that is present."
                         f"{_one_logit_hint(input, target)}")
    if index and input.shape[-1] == 1:
        # As indices, 0 would mean that the one class is present and 1 that it is not: 0s and 1s would be swapped.
        raise ShapeError(f"target is {target.dtype} of shape {tuple(target.shape)} for an input of shape "
                         f"{tuple(input.shape)}: expected one 0 or 1 for each logit, of the same shape."
                         f"{_one_logit_hint(input, target)}")
    if target.device != input.device:
        raise ArgumentError(f"input is on {input.device} but target on {target.device}: move one of them.")
    if index:
        return
    if target.is_complex():
        raise DtypeError(f"target is {target.dtype}: expected 0s and 1s, or probabilities.")
    values = target.long() if target.dtype in WIDE_UNSIGNED else target
    if target.dtype == torch.bool or not target.numel() or not values_are_readable(values):
        return
    low, high = values.aminmax()
    if bool(low < 0) or bool(high > 1):
        raise TargetError("target holds numbers outside [0, 1]: expected 0, 1 or a probability for each logit.")


def _one_logit_hint(input: Tensor, target: Tensor) -> str:
    """What to do where an input with one logit per example has an axis that its target lacks."""
    fits = input.ndim > 0 and input.shape[-1] == 1 and target.shape == input.shape[:-1]
    return " With one logit per example pass input[..., 0], or target[..., None]." if fits else ""


def check_factor(name: str, factor: Tensor | None, input: Tensor) -> None:
    """Refuse a factor that does not multiply the losses of these logits elementwise."""
    if factor is None:
        return
    if not isinstance(factor, Tensor) or factor.is_complex():
        raise DtypeError(f"{name} is {getattr(factor, 'dtype', type(factor).__name__)}: expected a tensor of real "
                         "numbers that broadcasts to the input.")
    check_dense(name, factor)
    if factor.device != input.device:
        raise ArgumentError(f"{name} is on {factor.device} but input on {input.device}: move one of them.")
    trailing = input.shape[input.ndim - factor.ndim:]
    # Not "n not in (1, size)": torch.compile does not find a number of the compiler's in a tuple.
    if factor.ndim > input.ndim or any(n != 1 and n != size for n, size in zip(factor.shape, trailing, strict=True)):
        raise ShapeError(f"{name} has shape {tuple(factor.shape)}: expected one that broadcasts to the input's, "
                         f"{tuple(input.shape)}.")


def check_alpha(alpha: float | None) -> None:
    if alpha is not None and not is_fraction(alpha):
        raise ArgumentError(f"alpha={alpha!r}: expected a number from 0 to 1, the weight of positives.")
