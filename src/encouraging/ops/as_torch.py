"""Cross-entropy of few logits on a GPU: torch's own operation.

Below about 1 MiB of logits a step waits for the host, and an autograd Function in Python that computes nothing takes as
long as all of torch's cross-entropy. A call that torch has, and starts in less time than a kernel of ours can be
started, is therefore handed to torch before anything else is asked: plain labels and probabilities over a softmax,
and the sigmoid link. Smoothed labels are not: torch makes them of a dozen operations.

Both functions return None for every other call, and for one that torch refuses: the checks of the general way then say
in words what is wrong with it.
"""

from __future__ import annotations

from operator import attrgetter

import torch
from torch import Tensor

from ..torch_state import in_forward_mode, in_transform

# Fewer bytes of logits than that are handed over; 0 hands nothing over.
softmax_bytes = 1 << 20
sigmoid_bytes = 1 << 20

_MOST_ROWS = 1 << 17  # torch adds the losses of all labels up in one block of threads
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_PLAIN = (Tensor, torch.nn.Parameter)
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, KeyError)
_is_there = attrgetter("is_cuda")


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str,
                  label_smoothing: float, impl: str) -> Tensor | None:
    """``F.cross_entropy``, where that is the shortest way. Images are not handed over: torch adds them up in an order
    that changes from run to run."""
    if not (_is_small(input, softmax_bytes) and impl == "auto" and type(target) in _PLAIN and input.ndim == 2
            and input.shape[0] <= _MOST_ROWS and type(label_smoothing) is float and label_smoothing == 0.0):
        return None
    if target.dtype is not torch.int64 and not (target.is_floating_point() and weight is None):
        return None
    if weight is not None and not _is_like(weight, input):
        return None
    try:
        return torch._C._nn.cross_entropy_loss(input, target, weight, _REDUCTIONS[reduction],  # type: ignore[arg-type]
                                               ignore_index, 0.0)
    except _REFUSALS:
        return None


def sigmoid_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str,
                          pos_weight: Tensor | None) -> Tensor | None:
    """``F.binary_cross_entropy_with_logits``, where that is the shortest way, for targets that are bool or of the
    input's type."""
    if not (_is_small(input, sigmoid_bytes) and type(target) in _PLAIN and target.shape == input.shape):
        return None
    if target.dtype is not input.dtype:
        if target.dtype is not torch.bool or not _is_there(target):
            return None
        target = target.to(input.dtype)
    for factor in (weight, pos_weight):
        if factor is not None and not _is_like(factor, input):
            return None
    try:
        return torch.binary_cross_entropy_with_logits(input, target, weight, pos_weight, _REDUCTIONS[reduction])
    except _REFUSALS:
        return None


def _is_small(input: Tensor, most_bytes: int) -> bool:
    """Whether these are a few plain logits on a GPU, in eager mode."""
    return (not torch.compiler.is_compiling() and type(input) in _PLAIN and _is_there(input) and input.dtype in _DTYPES
            and 0 < input.numel() * input.itemsize < most_bytes and not in_transform() and not in_forward_mode())


def _is_like(factor: Tensor, input: Tensor) -> bool:
    """Whether torch takes these weights as they are. It has no derivative by them."""
    return type(factor) in _PLAIN and factor.dtype is input.dtype and not factor.requires_grad
