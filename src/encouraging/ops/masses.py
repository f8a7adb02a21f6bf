r"""Sums over all classes in closed form, for the curves that are a simple function where p is at most a half.

With a mass :math:`u_k` on every class, ``sum_k u_k phi(p_k)`` asks for the curve's value and pull at every class. All
but the top class have :math:`p \le 1/2`, where a curve with an :attr:`~encouraging.curves.Curve.early` form is

* ``"nll"``:  :math:`\varphi = -\log p`, and pull / (1 - p) is 1;
* ``"line"``: :math:`\varphi = -\log p + \log(1-p)`, and pull / (1 - p) is 1 / (1 - p).

One exponential a class, for a line one logarithm (forward) or one division (backward) more, and no formula of the curve
but for the top class and the label. Both are exact at any confidence: the top class's gap comes from its rivals alone.
These functions work in place on blocks of rows, below autograd; ``rows.mass_gradient`` is their plain form.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..curves import Curve


class Spike(NamedTuple):
    """A label (N, 1) with a mass (N, 1) on top of what all classes have."""

    label: Tensor
    mass: Tensor


class Tops(NamedTuple):
    """Of every row (N, 1): the top class, its logit, and the sum of its rivals' exponentials relative to it."""

    which: Tensor
    high: Tensor
    rest: Tensor


def no_tops(rows: int, like: Tensor) -> Tops:
    """Room for the tops of so many rows."""
    column = like.new_empty(rows, 1)
    return Tops(column.long(), column, torch.empty_like(column))


def values_(logits: Tensor, mass: Tensor, curve: Curve, spike: Spike | None, tops: Tops) -> Tensor:
    """The loss (N, 1) of these rows; fills ``tops``. ``mass`` is (N, C), (C), or one number for all classes."""
    torch.max(logits, -1, keepdim=True, out=(tops.high, tops.which))
    tops.high.masked_fill_(tops.high == torch.inf, torch.nan)  # no probability, as in torch's cross-entropy
    ahead = logits - tops.high
    weights = ahead.exp().scatter_(-1, tops.which, 0.0)
    torch.sum(weights, -1, keepdim=True, out=tops.rest)
    log_total = tops.rest.log1p()
    own = _at(mass, tops.which)
    gap_of_top = -tops.rest.log()
    value = _weighed(own, curve.value(gap_of_top))
    if spike is not None:
        log_p = ahead.gather(-1, spike.label) - log_total
        gap = torch.where(spike.label == tops.which, gap_of_top, log_p - torch.log1p(-log_p.exp()))
        value += spike.mass * curve.value(gap)
    if mass.ndim:
        ahead.masked_fill_(mass == 0, 0.0)  # a class of no mass adds nothing, also where its logit is -inf
    value += _others(mass, own, logits) * log_total - _dot(ahead, mass)
    if curve.early == "line":
        rest_of_one = weights.mul_(-1 / (1 + tops.rest)).add_(1.0)  # 1 - p, and their product is at least 1/4
        if mass.ndim:
            value += _dot(rest_of_one.log_(), mass)
        else:
            value += mass * rest_of_one.prod(-1, keepdim=True).log_()
    return value


def gradient_(logits: Tensor, mass: Tensor, curve: Curve, spike: Spike | None, tops: Tops, upstream: Tensor,
              out: Tensor) -> None:
    """The gradient of :func:`values_`, each row times its ``upstream`` (N, 1), into ``out``."""
    top, high, rest = tops
    weights = torch.sub(logits, high, out=out if out.dtype == high.dtype else None)
    if spike is not None:
        log_p = weights.gather(-1, spike.label) - rest.log1p()
    weights.exp_().scatter_(-1, top, 0.0)
    own, over = _at(mass, top), 1 / (1 + rest)
    gap_of_top = -rest.log()
    pull = own * curve.pull(gap_of_top)
    # pull / (1 - p) of every class, over the mass where that is one number, and its sum without the top class.
    if curve.early == "line":
        ratio = torch.mul(weights, -over).add_(1.0).reciprocal_()
        ratio = (ratio.mul_(mass) if mass.ndim else ratio).scatter_(-1, top, 0.0)
        total = ratio.sum(-1, keepdim=True)
    else:
        ratio = mass if mass.ndim else torch.ones_like(mass)
        total = _others(ratio, own, logits)
    scale = upstream
    if not mass.ndim:
        total, scale = total * mass, upstream * mass
    if spike is not None:
        on_top = spike.label == top
        gap = torch.where(on_top, gap_of_top, log_p - torch.log1p(-log_p.exp()))
        pull_of_label = spike.mass * curve.pull(gap)
        pull = pull + torch.where(on_top, pull_of_label, 0.0)
        extra = torch.where(on_top, 0.0, pull_of_label / (1 - log_p.exp()))
        total = total + extra
    factor = (total + pull * (1 + rest) / rest.clamp(min=torch.finfo(rest.dtype).tiny)) * over
    weights.mul_(factor if mass.ndim else factor / mass).sub_(ratio).mul_(scale)
    weights.scatter_(-1, top, (total * over - pull) * upstream)
    if spike is not None:
        weights.scatter_add_(-1, spike.label, -extra * upstream)
    if weights is not out:
        out.copy_(weights)


def _at(mass: Tensor, index: Tensor) -> Tensor:
    """The mass of one class a row."""
    if mass.ndim == 2:
        return mass.gather(-1, index)
    return mass[index] if mass.ndim else mass


def _weighed(mass: Tensor, value: Tensor) -> Tensor:
    return torch.where(mass == 0, 0.0, mass * value)


def _others(mass: Tensor, own: Tensor, logits: Tensor) -> Tensor:
    """The mass of all classes but the one that has its ``own``, without what a difference in float32 would lose."""
    if not mass.ndim:
        return mass * (logits.shape[-1] - 1)
    return (mass.sum(-1, keepdim=True, dtype=torch.float64) - own).to(mass.dtype)


def _dot(rows: Tensor, mass: Tensor) -> Tensor:
    """Sum of rows times mass; not a matrix product, which autocast would round."""
    if mass.ndim:
        return rows.mul_(mass).sum(-1, keepdim=True)
    return rows.sum(-1, keepdim=True) * mass
