r"""Sums over all classes of a row as a compiler takes them: comparisons and reductions, which it fuses into few loops.

``class_sums.py`` gathers and scatters the top class. A compiler makes a copy and a loop of its own of that, and of the
curve a long formula per class. Here the top class is found by comparison, and a curve that is simple where p <= 1/2 is
computed for the top class alone. The formulas are as exact: nothing is taken from ``1 - softmax`` of the top class, and
no exponential of a rival underflows.

Where several classes share the highest logit, all have p <= 1/2 and none is treated as the top class.

Forward and backward pass write the same numbers in other words: a compiler would keep what is the same in both. That is
of the logits' size, and takes longer to write and read than to compute again.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._below_half import ratio_below_half, value_below_half
from ..curves._curve import nll
from ..links import label_gap, put, rival_weights


def label_gradient(logits: Tensor, label: Tensor, curve: Curve, upstream: Tensor) -> Tensor:
    """The gradient of the curve's value at the label, each row times its upstream gradient (N, 1)."""
    highest, _, total = rival_weights(logits, label)
    pull = curve.pull(label_gap(logits, label, highest, total.log())) * upstream
    # The highest rival alone adds 1 to the total; less means that there are none.
    return put(_weights(logits, highest) * (pull / total.clamp(min=1)), label, -pull)


class Columns(NamedTuple):
    """What all classes of a row share, all (N, 1). "The others" are all classes but the top class."""

    highest: Tensor  # the highest logit
    base: Tensor     # the highest logit of the others
    total: Tensor    # sum of exp(logit - base) over the others
    ahead: Tensor    # how far the logsumexp of all classes is above the highest logit
    gap: Tensor      # of the top class
    top: Tensor      # the top class's logit, +inf where there is none: no logit but its own is as high


def columns_of(logits: Tensor) -> Columns:
    highest = logits.amax(-1, keepdim=True)
    is_highest = logits == highest
    is_alone = is_highest.to(logits.dtype).sum(-1, keepdim=True) == 1
    base = torch.where(is_highest, -torch.inf, logits).amax(-1, keepdim=True)
    base = torch.where(is_alone & (base > -torch.inf), base, highest)
    top = torch.where(is_alone, highest, torch.inf)
    total = torch.where(logits >= top, 0.0, _weights(logits, base)).sum(-1, keepdim=True)
    log_total = total.log()
    gap = highest.masked_fill(highest == torch.inf, torch.nan) - base - log_total
    return Columns(highest, base, total, torch.where(is_alone, nll(gap), log_total), gap, top)


def mass_values(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    """``class_sums.mass_values``."""
    return torch.where(mass == 0, 0.0, mass * class_values(logits, curve)).sum(-1)


def class_values(logits: Tensor, curve: Curve) -> Tensor:
    """The curve's value of every class, as if it were the label."""
    columns = columns_of(logits)
    logs = _logs(logits, columns)
    return torch.where(logits >= columns.top, curve.value(columns.gap), value_below_half(curve, logs, logs.exp()))


def mass_gradient(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    """``class_sums.mass_gradient``."""
    columns = columns_of(logits)
    is_top, weights, p_of_base = _again(logits, columns)
    logs = (logits - columns.base) - (columns.highest - columns.base) - columns.ahead
    ratio = torch.where(is_top, 0.0, mass * ratio_below_half(curve, logs, weights * p_of_base))
    mass_of_top = torch.where(is_top, mass, 0.0).sum(-1, keepdim=True)
    return _gradient(columns, is_top, weights, p_of_base, ratio, mass_of_top * curve.pull(columns.gap))


def squared_errors(logits: Tensor, truth: Tensor, bonus: bool) -> Tensor:
    """``(y - p)**2`` of every class, with its mirror as ``bonus``."""
    columns = columns_of(logits)
    is_top, p = logits >= columns.top, _logs(logits, columns).exp()
    p, q = torch.where(is_top, torch.sigmoid(columns.gap), p), torch.where(is_top, torch.sigmoid(-columns.gap), 1 - p)
    if bonus:  # the three squares are (2y - 1) (q - p) - 2 y (1 - y) p q, where p + q is 1
        return (2 * truth - 1) * (q - p) - 2 * truth * (1 - truth) * p * q
    return (truth * q - (1 - truth) * p).square()


def squared_errors_gradient(logits: Tensor, truth: Tensor, bonus: bool, upstream: Tensor) -> Tensor:
    """The gradient of :func:`squared_errors`, each times its upstream gradient."""
    columns = columns_of(logits)
    is_top, weights, p_of_base = _again(logits, columns)
    p_of_top, q_of_top = torch.sigmoid(columns.gap), torch.sigmoid(-columns.gap)
    p = torch.where(is_top, p_of_top, weights * p_of_base)
    q = torch.where(is_top, q_of_top, 1 - weights * p_of_base)
    pull = 2 * truth - 1 + truth * (1 - truth) * (q - p) if bonus else truth * q - (1 - truth) * p
    ratio = 2 * upstream * pull * p  # the pull over q
    pull_of_top = torch.where(is_top, ratio, 0.0).sum(-1, keepdim=True) * q_of_top
    return _gradient(columns, is_top, weights, p_of_base, torch.where(is_top, 0.0, ratio), pull_of_top)


def _weights(logits: Tensor, base: Tensor) -> Tensor:
    """Exponentials relative to the base: of the top class 1, so that it does not overflow."""
    return (logits - base).clamp(max=0).exp()


def _logs(logits: Tensor, columns: Columns) -> Tensor:
    """log p of all classes but the top class."""
    return logits - columns.highest - columns.ahead


def _again(logits: Tensor, columns: Columns) -> tuple[Tensor, Tensor, Tensor]:
    """For the backward pass: which class is the top one, :func:`_weights`, and p of a class as high as the base."""
    weights = torch.minimum(logits - columns.base, torch.zeros_like(columns.base)).exp()
    return ~(logits < columns.top), weights, (columns.base - columns.highest - columns.ahead).exp()


def _gradient(columns: Columns, is_top: Tensor, weights: Tensor, p_of_base: Tensor, ratio: Tensor,
              pull_of_top: Tensor) -> Tensor:
    """The gradient from every class's pull over 1 - p, 0 for the top class, and the top class's pull."""
    of_others = ratio.sum(-1, keepdim=True)
    # The highest of the others alone adds 1 to the total; less means that there are none.
    on_others = weights * (of_others * p_of_base + pull_of_top / columns.total.clamp(min=1)) - ratio
    return torch.where(is_top, torch.sigmoid(columns.gap) * of_others - pull_of_top, on_others)
