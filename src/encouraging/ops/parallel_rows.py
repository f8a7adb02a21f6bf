"""One rank's arithmetic of the loss over a split vocabulary: no rank needs another one here. See ``parallel.py``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._curve import nll
from .rows import compute_dtype

_BLOCK_BYTES = 1 << 26  # of logits at a time: small scratch memory, few kernel launches


class Smoothed(NamedTuple):
    """Smoothed rows on one rank, all (N, 1) but the logits and ``base``."""

    logits: Tensor
    label: Tensor        # as a class of this rank
    added: Tensor        # the mass of the label beside ``base``; 0 where another rank holds it
    separate: Tensor     # this rank's class with the highest logit
    is_top: Tensor       # whether that is the top class of all ranks
    best: Tensor         # the logit of that one
    gap_of_best: Tensor
    base: Tensor         # (C) the mass of every class of this rank

    def block(self, rows: slice) -> Smoothed:
        return Smoothed(*(part if part is self.base else part[rows] for part in self))


def blocks(logits: Tensor) -> Iterator[slice]:
    rows = max(1, _BLOCK_BYTES // (logits.shape[1] * compute_dtype(logits.dtype).itemsize))
    if torch.compiler.is_compiling():
        rows = max(1, logits.shape[0])
    for start in range(0, logits.shape[0], rows):
        yield slice(start, start + rows)


def _put(tensor: Tensor, column: Tensor, where: Tensor, value: Tensor | float) -> Tensor:
    """``tensor`` with ``value`` in ``column`` of the rows ``where``."""
    return tensor.scatter(1, column, torch.where(where, value, tensor.gather(1, column)))


def others_in_blocks(logits: Tensor, separate: Tensor, is_here: Tensor) -> tuple[Tensor, Tensor]:
    """The logsumexp of this rank's classes without the one that is ``separate``, in the rows where it ``is_here``.

    In two parts, the highest logit and the sum of exponentials relative to it: added, they would be rounded at the size
    of the logits.
    """
    dtype, parts = compute_dtype(logits.dtype), []
    for rows in blocks(logits):
        others = _put(logits[rows].to(dtype), separate[rows], is_here[rows], -torch.inf)
        highest = others.amax(1, keepdim=True)
        parts.append((highest, (others - _finite(highest)).exp().sum(1, keepdim=True)))
    if not parts:
        return (logits.new_empty((0, 1), dtype=dtype),) * 2
    return torch.cat([highest for highest, _ in parts]), torch.cat([total for _, total in parts])


def combine(highest_of_parts: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
    """The logsumexp of several parts per row, (parts, N), again in two: the highest logit, and the logarithm of the sum
    of exponentials relative to it."""
    highest = _finite(highest_of_parts.amax(0))
    return highest[:, None], (totals * (highest_of_parts - highest).exp()).sum(0).log()[:, None]


def _finite(log: Tensor) -> Tensor:
    """0 in place of -inf, so that it can be subtracted from -inf."""
    return log.masked_fill(log == -torch.inf, 0.0)


def gap_of(own: Tensor, highest: Tensor, log_total: Tensor) -> Tensor:
    """A logit minus its rivals' logsumexp. A logit of +inf has no gap: NaN, as in torch's cross-entropy."""
    return own.masked_fill(own == torch.inf, torch.nan) - highest - log_total


def label_gradient(logits: Tensor, label: Tensor, owned: Tensor, highest: Tensor, log_total: Tensor,
                   pull: Tensor) -> Tensor:
    return _put((logits.to(pull.dtype) - highest - _finite(log_total)).exp() * pull, label, owned, -pull)


def _smoothed_parts(rows: Smoothed, curve: Curve) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mass, gaps, softmax and mass-weighted pulls of this rank's classes. All but the top class have p <= 1/2."""
    separate, is_top, gap_of_best = rows.separate, rows.is_top, rows.gap_of_best
    logs = _put(rows.logits.to(rows.base.dtype) - rows.best - nll(gap_of_best), separate, is_top, -torch.inf)
    probs = logs.exp()
    gaps = _put(logs - torch.log1p(-probs), separate, is_top, gap_of_best)
    mass = rows.base.expand_as(gaps).scatter_add(1, rows.label, rows.added)
    return mass, gaps, _put(probs, separate, is_top, torch.sigmoid(gap_of_best)), mass * curve.pull(gaps)


def _ratio(gaps: Tensor, pull: Tensor, separate: Tensor, is_here: Tensor) -> Tensor:
    """``pull / (1 - p)`` of all classes but the top class."""
    return _put(pull / torch.sigmoid(-_put(gaps, separate, is_here, 0.0)), separate, is_here, 0.0)


def smoothed_sums(parts: Smoothed, curve: Curve) -> Tensor:
    """This rank's part of every row's loss, of its sum of ratios, and of its top class's pull: (3, N, 1)."""
    sums = []
    for rows in blocks(parts.logits):
        block = parts.block(rows)
        mass, gaps, _, pull = _smoothed_parts(block, curve)
        values = torch.where(mass == 0, 0.0, mass * curve.value(gaps))
        ratios = _ratio(gaps, pull, block.separate, block.is_top)
        sums.append(torch.stack([values.sum(1, keepdim=True), ratios.sum(1, keepdim=True),
                                 pull.gather(1, block.separate).masked_fill(~block.is_top, 0.0)]))
    return torch.cat(sums, 1) if sums else parts.base.new_empty((3, 0, 1))


def smoothed_gradient(rows: Smoothed, curve: Curve, highest: Tensor, log_total: Tensor, ratios: Tensor,
                      pull_of_best: Tensor) -> Tensor:
    _, gaps, softmax, pull = _smoothed_parts(rows, curve)
    pushed = (rows.logits.to(pull.dtype) - highest - _finite(log_total)).exp() * pull_of_best
    return (softmax * ratios - _ratio(gaps, pull, rows.separate, rows.is_top)
            + _put(pushed, rows.separate, rows.is_top, -pull_of_best))
