"""Logits block by block, each in a buffer that stays in the cache, and the sums of their exponentials."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..ops.exponentials import exp_

BLOCK = 1 << 18  # logits per core at a time: with their copy in float32 they stay in its cache
BLOCK_ON_GPU = 1 << 26
FAINT = 1e-30  # a sum of exponentials below this may have lost terms to underflow


def empty_columns(logits: Tensor, count: int) -> list[Tensor]:
    """Columns of one number per row, in float32 at least."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    return [torch.empty(len(logits), dtype=dtype, device=logits.device) for _ in range(count)]


def block_size(logits: Tensor) -> int:
    """How many logits are read at a time."""
    return BLOCK * torch.get_num_threads() if logits.device.type == "cpu" else BLOCK_ON_GPU


def blocks(logits: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of rows, copied in float32 (float64 stays) into a buffer that the caller may overwrite."""
    step = max(1, min(block_size(logits) // logits.shape[1], len(logits)))
    dtype = torch.promote_types(logits.dtype, torch.float32)
    store = torch.empty(step, logits.shape[1], dtype=dtype, device=logits.device)
    for first in range(0, len(logits), step):
        block = logits[first : first + step].detach()
        yield slice(first, first + len(block)), store[: len(block)].copy_(block)


def exponentiate(buffer: Tensor, highest: Tensor, total: Tensor) -> None:
    """Put exp(z - highest) into the buffer, and each row's highest logit and sum of these into the two others."""
    torch.amax(buffer, 1, out=highest)
    pivot = highest.clamp(min=torch.finfo(buffer.dtype).min)  # all masked out: exp(-inf - (-inf)) would be NaN
    torch.sum(exp_(buffer.sub_(pivot[:, None])), 1, out=total)


def sum_below_one(exponentials: Tensor) -> Tensor:
    """The sum of the exponentials below 1; the highest logit has 1. (Leaving it out by argmax would cost as much as
    everything else together.)"""
    return exponentials.frac_().sum(1)


def log_odds_of(logits: Tensor, rows: Tensor, highest: Tensor, total: Tensor, lower: Tensor,
                label: Tensor | float) -> Tensor:
    """The log-odds of the highest class of these rows against all others. ``label`` is the exponential of a label that
    was left out of the total, or 0."""
    ties = (total - lower).round_() - 1
    others = lower + ties + label
    log_odds = -others.log()
    underflowed = (others < FAINT).nonzero()[:, 0]  # exp underflows there: measure from the second highest instead
    for block in torch.split(underflowed, max(1, BLOCK // logits.shape[1])):
        values = logits[rows[block]].detach().to(highest.dtype)
        second, total = torch.empty_like(highest[block]), torch.empty_like(highest[block])
        exponentiate(values.masked_fill_(values >= highest[block, None], -torch.inf), second, total)
        log_odds[block] = (highest[block] - second) - total.log().clamp_(min=0)
    return log_odds
