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

from ..torch_state import in_forward_mode, in_transform

few_bytes = 1 << 20  # fewer bytes of logits are handed over; 0 hands nothing over

_MOST_ROWS = 1 << 17  # torch adds the losses of all labels up in one block of threads
_MOST_HALF_ROWS = 65504  # torch has the divisor in the logits' type, where more of them, or their weights, are infinite
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_PLAIN = (Tensor, torch.nn.Parameter)
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, KeyError)
_is_there = attrgetter("is_cuda")


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
                  label_smoothing: float, impl: str) -> Tensor | None:
    """``F.cross_entropy`` of logits (N, C) with labels, where that is the shortest way.

    None for every other call, and for one that torch refuses: the checks of the general way then say in words what is
    wrong with it. Images are not handed over: torch adds them up in an order that changes from run to run.
    """
    if not (_is_small(input) and impl == "auto" and type(target) in _PLAIN and target.dtype is torch.int64
            and input.ndim == 2 and input.shape[0] <= _MOST_ROWS
            and type(label_smoothing) is float and label_smoothing == 0.0):
        return None
    if weight is not None and not _is_like(weight, input):
        return None
    if input.dtype is torch.float16 and (weight is not None or input.shape[0] > _MOST_HALF_ROWS):
        return None
    try:
        return torch._C._nn.cross_entropy_loss(input, target, weight, _REDUCTIONS[reduction],  # type: ignore[arg-type]
                                               ignore_index, 0.0)
    except _REFUSALS:
        return None


def _is_small(input: Tensor) -> bool:
    """Whether these are a few plain logits on a GPU, in eager mode."""
    return (not torch.compiler.is_compiling() and type(input) in _PLAIN and _is_there(input) and input.dtype in _DTYPES
            and 0 < input.numel() * input.itemsize < few_bytes and not in_transform() and not in_forward_mode())


def _is_like(weight: Tensor, input: Tensor) -> bool:
    """Whether torch takes these weights as they are. It has no derivative by them."""
    return type(weight) in _PLAIN and weight.dtype is input.dtype and not weight.requires_grad
