"""Cross-entropy of few logits on a GPU: torch's own operation.

Below about 1 MiB of logits a step waits for the host, and an autograd Function in Python that computes nothing takes as
long as all of torch's cross-entropy. A call with plain labels is therefore handed to torch before anything else is
asked. Smoothed labels are not: torch makes them of a dozen operations. Neither are probabilities and the sigmoid link,
where torch's formulas multiply a masked logit, minus infinity, by 0.
"""

from __future__ import annotations

from operator import attrgetter

import torch
from torch import Tensor

from ..torch_state import PLAIN, in_forward_mode, is_compiling, transform_level

few_bytes = 1 << 20  # fewer bytes of logits are handed over; 0 hands nothing over

_MOST_ROWS = 1 << 17  # torch adds the losses of all labels up in one block of threads
_MOST_HALF_ROWS = 65504  # torch computes the divisor in float16, which overflows above
_BYTES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, KeyError)
_is_on_gpu = attrgetter("is_cuda")
_by_torch = torch._C._nn.cross_entropy_loss  # F.cross_entropy without its Python


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
                  label_smoothing: float, impl: str) -> Tensor | None:
    """``F.cross_entropy`` of logits (N, C) with labels, where that is the shortest way.

    None for every other call, and for one that torch refuses: the checks of the general way then say in words what is
    wrong with it. Images are not handed over: torch adds them up in an order that changes from run to run.
    """
    if (is_compiling() or type(input) not in PLAIN or not _is_on_gpu(input) or type(target) not in PLAIN
            or target.dtype is not torch.int64 or impl != "auto" or type(label_smoothing) is not float
            or label_smoothing != 0.0):
        return None
    shape = input.shape
    if len(shape) != 2 or shape[0] > _MOST_ROWS or not 0 < shape[0] * shape[1] * _BYTES.get(input.dtype, 0) < few_bytes:
        return None
    if weight is not None and not _is_like(weight, input):
        return None
    if input.dtype is torch.float16 and (weight is not None or shape[0] > _MOST_HALF_ROWS):
        return None
    if transform_level() is not None or in_forward_mode():
        return None
    try:
        return _by_torch(input, target, weight, _REDUCTIONS[reduction], ignore_index, 0.0)  # type: ignore[arg-type]
    except _REFUSALS:
        return None


def _is_like(weight: Tensor, input: Tensor) -> bool:
    """Whether torch takes these weights as they are. It has no derivative by them."""
    return type(weight) in PLAIN and weight.dtype is input.dtype and not weight.requires_grad
