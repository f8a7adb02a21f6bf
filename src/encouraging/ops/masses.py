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
from ..targets import host_can_look


class Spike(NamedTuple):
    """A label (N, 1) with a mass (N, 1) on top of what all classes have."""

    label: Tensor
    mass: Tensor


class Sums(NamedTuple):
    """What the first pass finds of every row, all (N, 1)."""

    top: Tensor        # the class with the largest logit
    high: Tensor       # that logit
    rest: Tensor       # sum of exp(z - high) over the others
    distance: Tensor   # sum of mass * (z - high)
    logs: Tensor       # sum of mass * log(1 - p) over the others, for a line
    label: Tensor      # z - high of the label


def no_sums(rows: int, like: Tensor) -> Sums:
    """Room for the sums of so many rows."""
    numbers = like.new_zeros(5, rows, 1)
    return Sums(numbers[0].long(), *numbers)


def scan_(logits: Tensor, mass: Tensor, curve: Curve, label: Tensor | None, sums: Sums) -> None:
    """Fill ``sums`` for a block of rows. ``mass`` is (N, C), (C), or one number for all classes."""
    torch.max(logits, -1, keepdim=True, out=(sums.high, sums.top))
    sums.high.masked_fill_(sums.high == torch.inf, torch.nan)  # no probability, as in torch's cross-entropy
    ahead = logits - sums.high
    if label is not None:
        torch.gather(ahead, -1, label, out=sums.label)
    weights = ahead.exp().scatter_(-1, sums.top, 0.0)
    torch.sum(weights, -1, keepdim=True, out=sums.rest)
    if mass.ndim:
        # Not a matrix product: autocast would round it.
        torch.sum(ahead * mass, -1, keepdim=True, out=sums.distance)
        # A class of no mass adds nothing, also where its logit is -inf. On a CPU masks are dear, and looking is cheap.
        if not host_can_look(logits) or bool(sums.distance.isnan().any()):
            torch.sum(ahead.masked_fill_(mass == 0, 0.0).mul_(mass), -1, keepdim=True, out=sums.distance)
    else:
        torch.sum(ahead, -1, keepdim=True, out=sums.distance)
    if curve.early == "line":
        doubts = weights.mul_(-1 / (1 + sums.rest)).add_(1.0)  # 1 - p
        if mass.ndim:
            torch.sum(doubts.log_().mul_(mass), -1, keepdim=True, out=sums.logs)
        else:
            torch.prod(doubts, -1, keepdim=True, out=sums.logs)  # at least 1/4; its logarithm is taken for all rows


def values(sums: Sums, mass: Tensor, classes: int, curve: Curve, spike: Spike | None) -> Tensor:
    """The loss (N, 1) of all rows."""
    own = _at(mass, sums.top)
    distance, logs = sums.distance, sums.logs
    if not mass.ndim:
        distance, logs = distance * mass, logs.log() * mass if curve.early == "line" else logs
    value = torch.where(own == 0, 0.0, own * curve.value(-sums.rest.log()))
    value += _others(mass, own, classes) * sums.rest.log1p() - distance + logs
    if spike is not None:
        value += spike.mass * curve.value(_label_gap(sums, spike)[0])
    return value


class Pulls(NamedTuple):
    """What a row's gradient needs beside its sums, all (N, 1)."""

    p: Tensor         # of the top class
    own: Tensor       # its mass
    others: Tensor    # the mass of the others
    pull: Tensor      # the top class's mass, the spike included if it stands there, times its pull
    extra: Tensor     # the spike's mass times pull / (1 - p), if it stands elsewhere
    upstream: Tensor


def pulls(sums: Sums, mass: Tensor, classes: int, curve: Curve, spike: Spike | None, upstream: Tensor) -> Pulls:
    own = _at(mass, sums.top).expand(upstream.shape)
    pull, extra = own, torch.zeros_like(upstream)
    if spike is not None:
        gap, p, on_top = _label_gap(sums, spike)
        pull = pull + torch.where(on_top, spike.mass, 0.0)
        extra = torch.where(on_top, 0.0, spike.mass * curve.pull(gap) / (1 - p))
    pull = pull * curve.pull(-sums.rest.log())
    return Pulls(1 / (1 + sums.rest), own, _others(mass, own, classes), pull, extra, upstream)


def gradient_(logits: Tensor, mass: Tensor, curve: Curve, spike: Spike | None, sums: Sums, row: Pulls,
              out: Tensor) -> None:
    """The gradient of :func:`values`, each row times its ``upstream``, into ``out``.

    Of class k it is p_k times the sum of all masses times pull / (1 - p), minus its own mass times pull / (1 - p). The
    top class leaves its own out of the sum and takes its pull off instead: the difference would lose digits.
    """
    weights = torch.sub(logits, sums.high, out=out if out.dtype == mass.dtype else None)
    weights.exp_().scatter_(-1, sums.top, 0.0)
    # Mass times pull / (1 - p) of every class, and its sum without the top class. One number as mass comes in last.
    unit = torch.ones_like(mass) if mass.ndim else mass
    if curve.early == "line":
        ratio = torch.mul(weights, -row.p).add_(1.0).reciprocal_()
        ratio = (ratio.mul_(mass) if mass.ndim else ratio).scatter_(-1, sums.top, 0.0)
        total = ratio.sum(-1, keepdim=True)
        total = (total if mass.ndim else total * mass) + row.extra
    else:
        ratio, total = (mass if mass.ndim else torch.ones_like(mass)), row.others + row.extra
    factor = total * row.p + row.pull / sums.rest.clamp(min=torch.finfo(mass.dtype).tiny)
    weights.mul_(factor / unit).sub_(ratio).mul_(row.upstream * unit)
    weights.scatter_(-1, sums.top, (total * row.p - row.pull) * row.upstream)
    if spike is not None:
        weights.scatter_add_(-1, spike.label, -row.extra * row.upstream)
    if weights is not out:
        out.copy_(weights)


def _label_gap(sums: Sums, spike: Spike) -> tuple[Tensor, Tensor, Tensor]:
    """The label's gap, its p where it is not the top class, and whether it is."""
    log_p = sums.label - sums.rest.log1p()
    p, on_top = log_p.exp(), spike.label == sums.top
    return torch.where(on_top, -sums.rest.log(), log_p - torch.log1p(-p)), p, on_top


def _at(mass: Tensor, index: Tensor) -> Tensor:
    """The mass of one class a row."""
    if mass.ndim == 2:
        return mass.gather(-1, index)
    return mass[index] if mass.ndim else mass


def _others(mass: Tensor, own: Tensor, classes: int) -> Tensor:
    """The mass of all classes but the one that has its ``own``, without what a difference in float32 would lose."""
    if not mass.ndim:
        return (mass * (classes - 1)).expand(own.shape)
    return (mass.sum(-1, keepdim=True, dtype=torch.float64) - own).to(mass.dtype)
