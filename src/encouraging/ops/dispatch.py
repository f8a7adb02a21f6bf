"""Which implementation computes a loss: chosen once per call; an ``impl`` that cannot be had is refused in words."""

from __future__ import annotations

import importlib.util
import os
from types import ModuleType

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..curves import Curve, by_name, names
from ..errors import ArgumentError

_HAS_TRITON = importlib.util.find_spec("triton") is not None  # looks, and imports nothing
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# The catalogue's, by exact type: a subclass may have changed the formula.
_CURVES = frozenset(type(by_name(name)) for name in names())
_PLAIN = (Tensor, torch.nn.Parameter)


def choose(impl: str, logits: Tensor, target: Tensor, curve: Curve) -> str:
    """``"reference"`` or ``"triton"`` for these logits (N, C), target and curve.

    ``"auto"`` takes the kernels wherever they apply and says nothing where they do not. ``"triton"`` insists.

    >>> from encouraging import curves
    >>> choose("auto", torch.zeros(2, 3), torch.tensor([0, 1]), curves.normal())
    'reference'
    """
    if impl == "reference" or (impl == "auto" and not logits.is_cuda):
        return "reference"
    if impl not in ("auto", "triton"):
        raise ArgumentError(f"impl={impl!r}: expected 'auto', 'reference' or 'triton'.")
    obstacle = _obstacle(logits, target, curve)
    if obstacle is None:
        return "triton"
    if impl == "auto":
        return "reference"
    raise ArgumentError(f"impl='triton': {obstacle} Pass impl='auto' to take the kernels wherever they apply.")


def kernels() -> ModuleType:
    """The package of the kernels, imported when it is first needed."""
    from . import triton

    return triton


def has_kernels(tensor: Tensor) -> bool:
    """Whether Triton can work on this tensor at all."""
    return (type(tensor) in _PLAIN and tensor.dtype in _DTYPES and _machine_obstacle(tensor.device.type) is None
            and not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0)


def _obstacle(logits: Tensor, target: Tensor, curve: Curve) -> str | None:
    """Why the kernels cannot do it, cheapest questions first."""
    if logits.dtype not in _DTYPES:
        return f"the kernels take float32, bfloat16 and float16 logits, not {logits.dtype}. Convert them."
    if target.is_floating_point():
        return "the kernels take class indices, and the target holds probabilities."
    if type(curve) not in _CURVES:
        return f"there is no kernel for {curve!r}: only the package's own curves have one."
    if type(logits) not in _PLAIN:
        return f"the kernels take plain tensors, not {type(logits).__name__}."
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return "the kernels know neither torch.func's transforms nor forward-mode derivatives."
    return _machine_obstacle(logits.device.type)


def _machine_obstacle(device: str) -> str | None:
    if not _HAS_TRITON:
        return "Triton is not installed. It comes with torch's CUDA builds for Linux, or as the package triton."
    if device == "cuda" or (device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"):
        return None
    where = "on the CPU they run only in Triton's interpreter, for tests (TRITON_INTERPRET=1)" if device == "cpu" else (
        f"there are none for {device}")
    return f"the kernels run on CUDA devices; {where}."
