"""Exponentials of differences of logits: how far the rivals are below the highest of them.

Where torch has MKL, its ``exp`` is MKL's. On some processors that takes four times as long as ``exp2``, which is
torch's own, and thirty times as long where results are below the smallest normal number: in float32 for rivals more
than 87 below the highest one.

As a power of 2 the exponential of a difference has a relative error of the difference times the rounding of its type.
In units of the largest exponential, 1, that is less than one rounding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_BY_MKL = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
_LOG2_E = math.log2(math.e)


def exp_(differences: Tensor) -> Tensor:
    """``differences.exp_()``, below autograd; exactly 1 for 0, and 0 for -inf."""
    return differences.mul_(_LOG2_E).exp2_() if _BY_MKL and differences.is_cpu else differences.exp_()
