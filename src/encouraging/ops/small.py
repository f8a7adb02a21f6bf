"""A batch that fits the cache, on the CPU in plain eager mode: one block, whose exponentials are kept.

``rows.py`` computes them again in the backward pass, so that nothing of the logits' size is kept. Up to a block's size
the memory does not matter, and the second pass is up to a third of the time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..curves import Curve
from ..links import gap_and_rivals, label_gap, without
from ..torch_state import backward_must_be_differentiable, in_forward_mode, is_eager

LARGEST = 1 << 20  # bytes: rows.py has blocks of this size


def is_small(logits: Tensor) -> bool:
    """Whether these logits are taken here: float32 and float64 that get a gradient, with no transform around them."""
    return (logits.requires_grad and logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64)
            and logits.is_contiguous() and logits.numel() * logits.itemsize <= LARGEST and is_eager()
            and not in_forward_mode() and torch.is_grad_enabled())


class SmallLabelRows(torch.autograd.Function):
    """As ``rows._LabelRows``, bit for bit, for logits that are :func:`is_small`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve) -> Tensor:
        weights = without(logits, label)
        highest = weights.amax(-1, keepdim=True).clamp_(min=torch.finfo(logits.dtype).min)
        total = weights.sub_(highest).exp_().sum(-1, keepdim=True)
        gap = label_gap(logits, label, highest, total.log())
        ctx.save_for_backward(logits, label, ignored, gap, weights, total)
        ctx.curve = curve
        values = curve.value(gap)
        return (values if ignored is None else values.masked_fill(ignored, 0.0))[:, 0]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        logits, label, ignored, gap, weights, total = ctx.saved_tensors
        if backward_must_be_differentiable(upstream):
            # What an ignored row holds, such as NaN, must not reach a second derivative.
            gap, rivals = gap_and_rivals(logits if ignored is None else logits.masked_fill(ignored, 0.0), label)
            pull = ctx.curve.pull(gap) * upstream[:, None]
            gradient = (pull * rivals).scatter(-1, label, -pull)
        else:
            pull = ctx.curve.pull(gap) * upstream[:, None]
            # The highest rival alone adds 1; a total below 1 means that there is no rival.
            gradient = (weights * (pull / total.clamp(min=1))).scatter_(-1, label, -pull)
        return gradient if ignored is None else gradient.masked_fill(ignored, 0.0), None, None, None
