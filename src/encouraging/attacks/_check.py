"""Checks of the arguments of attacks."""

from __future__ import annotations

import math
from numbers import Real
from pathlib import Path
from typing import TypeGuard

import torch
from torch import Tensor

from ..errors import ArgumentError, DtypeError, ShapeError, TargetError
from ..targets import is_integer
from ._objective import objective

BEYOND = ("inputs are in [0, 1], so that a change above 1 allows any image. Divide sizes in grey levels by 255 "
          "(8 / 255)")
LARGEST = 1e18  # of a radius or a step: the squares of larger ones overflow in float32, and the attack would not move


def check_batch(x: Tensor, y: Tensor, *, box: bool = True) -> int:
    """Inputs and labels of one batch; returns the highest label (-1 without examples). ``box``: x must be in [0, 1]."""
    check_types(x, y)
    if not len(x):
        return -1
    low, high = (bound.item() for bound in torch.aminmax(x))
    if math.isnan(low) or math.isinf(low) or math.isinf(high):
        raise ArgumentError("x has NaN or infinite values; expected finite numbers.")
    if box and not (low >= 0 and high <= 1):
        rounding = low >= -1e-4 and high <= 1 + 1e-4
        todo = "This is no more than rounding: pass x.clamp(0, 1)." if rounding else (
            "Attacks work on images in [0, 1]: move the normalisation into the model, for example "
            "nn.Sequential(normalise, model).")
        raise ArgumentError(f"x lies between {low:.9g} and {high:.9g}, expected 0 to 1. {todo}")
    lowest, highest = (int(bound) for bound in torch.aminmax(y.to(torch.int64)))
    if lowest < 0:
        raise TargetError(f"y has the label {lowest}, expected 0 or more; leave out examples without a label.")
    return highest


def check_types(x: Tensor, y: Tensor) -> None:
    """Checks that need no values, and so no synchronisation with the device."""
    for name, tensor in (("x", x), ("y", y)):
        if not isinstance(tensor, Tensor):
            raise DtypeError(f"{name}: expected a tensor, got {type(tensor).__name__}.")
    if x.dtype not in (torch.float32, torch.float64):
        raise DtypeError(f"x: expected float32 or float64, got {x.dtype}. Images of bytes become x.float() / 255.")
    if x.ndim < 2:
        raise ShapeError(f"x: expected a batch, the shape (examples, ...), got {tuple(x.shape)}.")
    if 0 in x.shape[1:]:
        raise ShapeError(f"x: expected inputs with something in them, got the shape {tuple(x.shape)}.")
    if not is_integer(y):
        raise DtypeError(f"y: expected integer labels, got {y.dtype}.")
    if y.shape != x.shape[:1]:
        raise ShapeError(f"y: expected one label per example, the shape ({len(x)},), got {tuple(y.shape)}.")
    if y.device != x.device:
        raise ArgumentError(f"x is on {x.device} and y on {y.device}; expected one device.")


def check_eps(eps: float) -> float:
    """The radius of the ball as a float."""
    if not _is_number(eps) or not 0 <= eps <= LARGEST:
        several = (" For several use accuracy_over_eps, or one call for each."
                   if isinstance(eps, list | tuple) or (isinstance(eps, Tensor) and eps.ndim) else
                   " Pass eps.item()." if isinstance(eps, Tensor) else "")
        raise ArgumentError(f"eps={eps!r}: expected the radius of the ball, a number from 0 to {LARGEST:g}.{several}")
    return float(eps)


def check_reach(eps: float) -> None:
    """Refuse a radius in L-infinity around images in [0, 1] that allows any image: mostly 8 in place of 8/255."""
    if eps > 1:
        raise ArgumentError(f"eps={eps:g}: {BEYOND}.")


def check_settings(**settings: object) -> None:
    """Whichever of loss, steps, step_size, restarts, random_start, damping, clip, batch_size and seed are given."""
    for name, value in settings.items():
        if name == "loss":
            objective(str(value))
        elif name == "step_size":
            if not _is_number(value) or not 0 < value <= LARGEST:
                raise ArgumentError(f"step_size={value!r}: expected a number above 0, and at most {LARGEST:g}.")
        elif name == "damping":
            if not _is_number(value) or value < 0:
                raise ArgumentError(f"damping={value!r}: expected a finite number, 0 or more.")
        elif name in ("random_start", "clip"):
            if not isinstance(value, bool):
                raise ArgumentError(f"{name}={value!r}: expected True or False.")
        elif name == "batch_size":
            if value is not None:
                _check_integer(name, value, 1)
        elif name in ("steps", "restarts"):
            _check_integer(name, value, 1)
        elif name == "seed":
            _check_integer(name, value, 0)
    if settings.get("restarts", 1) != 1 and not settings.get("random_start", True):
        raise ArgumentError(f"restarts={settings['restarts']} with random_start=False: every restart would repeat the "
                            "first. Use random_start=True or restarts=1.")


def check_index(index: Tensor | None, x: Tensor) -> Tensor:
    """The indices of the examples, which their random starts depend on; by default their positions in the batch."""
    if index is None:
        return torch.arange(len(x), device=x.device)
    if not isinstance(index, Tensor) or index.is_floating_point() or index.shape != x.shape[:1]:
        kind = f"{index.dtype} {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
        raise ShapeError(f"index: expected one integer per example, the shape ({len(x)},), got {kind}.")
    return index.to(x.device)


def check_state_path(path: str | Path | None) -> Path | None:
    """The path of a state file, checked before the first attack and not after it."""
    if path is None:
        return None
    path = Path(path)
    if not path.parent.is_dir():
        raise ArgumentError(f"state_path={str(path)!r}: there is no folder {path.parent}. Create it first.")
    return path


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _check_integer(name: str, value: object, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value < 1 << 63:
        raise ArgumentError(f"{name}={value!r}: expected a whole number, {minimum} or more.")
