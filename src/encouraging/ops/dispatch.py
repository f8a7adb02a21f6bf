"""Which implementation computes a loss: chosen once per call; an ``impl`` that is not available raises an error that
says why."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from types import ModuleType

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._catalogue import is_in_catalogue
from ..curves._focal import LateFocal
from ..errors import ArgumentError
from ..torch_state import PLAIN, in_forward_mode, in_transform

_HAS_TRITON = importlib.util.find_spec("triton") is not None  # looks, and imports nothing
KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def choose(impl: str, logits: Tensor, target: Tensor, curve: Curve, *, gaps_are_enough: bool = False,
           others: Iterable[object] = ()) -> str:
    """``"reference"`` or ``"triton"`` for these logits (N, C), target and curve.

    ``"auto"`` takes the kernels wherever they apply and says nothing where they do not. ``"triton"`` insists.
    ``gaps_are_enough`` says that the kernels need only compute the gaps (labels without smoothing), so that a user's
    curve works too. ``others`` are what else the loss is made of, such as class weights: where one needs a gradient,
    the kernels do not apply.

    >>> from encouraging import curves
    >>> choose("auto", torch.zeros(2, 3), torch.tensor([0, 1]), curves.normal())
    'reference'
    """
    if impl == "reference" or (impl == "auto" and not logits.is_cuda):
        return "reference"
    if impl not in ("auto", "triton"):
        raise ArgumentError(f"impl={impl!r}: expected 'auto', 'reference' or 'triton'.")
    obstacle = _obstacle(logits, target, curve, gaps_are_enough, others)
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
    return (type(tensor) in PLAIN and tensor.dtype in KERNEL_DTYPES and _machine_obstacle(tensor.device.type) is None
            and not in_transform() and not in_forward_mode())


def takes_elementwise(logits: Tensor, target: Tensor, *others: object, curves: Iterable[Curve]) -> bool:
    """Whether the kernels compute a loss of these logits, each a class of its own. They give a gradient to the logits
    alone. A compiler fuses elementwise operations by itself."""
    return (logits.is_cuda and has_kernels(logits) and not torch.compiler.is_compiling()
            and type(target) in PLAIN and (not target.is_floating_point() or target.dtype in KERNEL_DTYPES)
            and all(is_in_catalogue(curve) or type(curve) is LateFocal for curve in curves)
            and not _need_gradient((target, *others)) and not _are_negated((logits, target, *others)))


def _obstacle(logits: Tensor, target: Tensor, curve: Curve, gaps_are_enough: bool,
              others: Iterable[object]) -> str | None:
    """Why the kernels cannot do it, cheapest questions first."""
    if logits.dtype not in KERNEL_DTYPES:
        return f"the kernels take float32, bfloat16 and float16 logits, not {logits.dtype}. Convert them."
    if target.is_floating_point() and target.dtype not in KERNEL_DTYPES:
        return f"the kernels take float32, bfloat16 and float16 probabilities, not {target.dtype}. Convert them."
    if not (gaps_are_enough or is_in_catalogue(curve)):
        return (f"there is no kernel for {curve!r}: a curve of your own takes them in curve_loss alone, for labels "
                "without smoothing.")
    for tensor in (logits, target):
        if type(tensor) not in PLAIN:
            return f"the kernels take plain tensors, not {type(tensor).__name__}."
    if _need_gradient(others):
        return ("the kernels give a gradient to logits and probabilities alone, and the class weights or the divisor "
                "need one. Detach them.")
    if _are_negated((logits, target, *others)):
        return "the kernels read tensors as they lie in memory, and one is still to be negated. Call its resolve_neg()."
    if in_transform() or in_forward_mode():
        return "the kernels know neither torch.func's transforms nor forward-mode derivatives."
    return _machine_obstacle(logits.device.type)


def _need_gradient(tensors: Iterable[object]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in tensors)


def _are_negated(tensors: Iterable[object]) -> bool:
    """Whether one is a view that torch negates when it is read, such as the imaginary part of a conjugate."""
    return not torch.compiler.is_compiling() and any(isinstance(each, Tensor) and each.is_neg() for each in tensors)


def _machine_obstacle(device: str) -> str | None:
    if not _HAS_TRITON:
        return "Triton is not installed. It comes with torch's CUDA builds for Linux, or as the package triton."
    if device == "cuda" or (device == "cpu" and os.environ.get("TRITON_INTERPRET") == "1"):
        return None
    where = "on the CPU they run only in Triton's interpreter, for tests (TRITON_INTERPRET=1)" if device == "cpu" else (
        f"there are none for {device}")
    return f"the kernels run on CUDA devices; {where}."
