r"""Sums over all classes in closed form, for the curves that are a simple function where p is at most a half.

With a mass :math:`u_k` on every class, ``sum_k u_k phi(p_k)`` asks for the curve's value and pull at every class. All
but the top class have :math:`p \le 1/2`, where a curve with an :attr:`~encouraging.curves.Curve.early` form is

* ``"nll"``:  :math:`\varphi = -\log p`, and pull / (1 - p) is 1;
* ``"line"``: :math:`\varphi = -\log p + \log(1-p)`, and pull / (1 - p) is 1 / (1 - p).

One exponential a class, for a line one logarithm (forward) or one division (backward) more, and no formula of the curve
but for the top class and the label. Both are exact at any confidence: the top class's gap comes from its rivals alone.
What is here gives a gradient and no more: a second derivative takes ``rows.mass_gradient``, the plain form, and whoever
asks for transforms is sent to ``rows.mass_rows``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..curves import Curve
from ..targets import host_can_look
from .rows import apply, compute_dtype, in_blocks, is_differentiated, is_plain, leave_out, mass_gradient


class Spike(NamedTuple):
    """A label (N, 1) with a mass (N, 1) on top of what all classes have."""

    label: Tensor
    mass: Tensor


def applies(curve: Curve) -> bool:
    """Whether sums over the classes have a closed form, and nobody asks for more than a gradient."""
    return curve.early is not None and is_plain() and forward_ad._current_level < 0


def closed_rows(logits: Tensor, mass: Tensor, curve: Curve, spike: Spike | None = None,
                ignored: Tensor | None = None) -> Tensor:
    """``rows.mass_rows`` where this form :func:`applies`: for a mass (N, C), or one that is the same in every row, (C)
    or one number for all classes; 0 in the rows to leave out. At least float32."""
    return apply(_ClosedRows, logits, mass, *(spike or (None, None)), ignored, curve)  # type: ignore[no-any-return]


def closed_rows_with_gradient(logits: Tensor, mass: Tensor, curve: Curve,
                              spike: Spike | None = None) -> tuple[Tensor, Tensor]:
    """:func:`closed_rows` and its gradient, below autograd."""
    sums = _sums(logits, mass, spike, curve)
    rows = _values(sums, mass, logits.shape[1], curve, spike)
    return rows[:, 0], _gradient(logits, mass, spike, sums, curve, torch.ones_like(rows))


class _ClosedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, mass: Tensor, label: Tensor | None, label_mass: Tensor | None,
                ignored: Tensor | None, curve: Curve) -> Tensor:
        mass = mass.to(compute_dtype(logits.dtype))
        spike = None if label is None or label_mass is None else Spike(label, label_mass)
        sums = _sums(logits, mass, spike, curve)
        ctx.curve = curve
        ctx.save_for_backward(logits, mass, label, label_mass, ignored, *sums)
        return leave_out(_values(sums, mass, logits.shape[1], curve, spike), ignored)[:, 0]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, mass, label, label_mass, ignored, *sums = ctx.saved_tensors
        dtype = upstream.dtype
        if is_differentiated(upstream):
            z = leave_out(logits, ignored).to(dtype)
            u = mass.expand(z.shape)
            if label is not None:
                u = u.scatter_add(-1, label, label_mass)
            gradient = leave_out(upstream[:, None] * mass_gradient(z, u, ctx.curve), ignored)
            return gradient.to(logits.dtype), None, None, None, None, None
        spike = None if label is None else Spike(label, label_mass)
        gradient = _gradient(logits, mass, spike, _Sums(*sums), ctx.curve, upstream[:, None])
        if ignored is not None:
            gradient.masked_fill_(ignored, 0.0)
        return gradient, None, None, None, None, None


def _sums(logits: Tensor, mass: Tensor, spike: Spike | None, curve: Curve) -> _Sums:
    sums = _no_sums(logits.shape[0], mass)
    for z, u, part, found in _blocks(logits, mass, spike, sums):
        _scan_(z, u, curve, None if part is None else part.label, found)
    return sums


def _gradient(logits: Tensor, mass: Tensor, spike: Spike | None, sums: _Sums, curve: Curve,
              upstream: Tensor) -> Tensor:
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    rows = _pulls(sums, mass, logits.shape[1], curve, spike, upstream)
    for z, u, part, found, row, out in _blocks(logits, mass, spike, sums, rows, gradient):
        _gradient_(z, u, curve, part, found, row, out)
    return gradient


def _blocks(logits: Tensor, mass: Tensor, spike: Spike | None, *others: Any) -> Iterator[tuple[Any, ...]]:
    """Blocks of rows, each with its part of everything that has rows: logits, mass, spike, and the named tuples and
    tensors of ``others``."""
    groups = [(mass,) if mass.ndim == 2 else (), spike or (), *(o if isinstance(o, tuple) else (o,) for o in others)]
    for z, *parts in in_blocks(logits, *(tensor for group in groups for tensor in group)):
        given = iter(parts)
        u, label, *rest = ([next(given) for _ in group] for group in groups)
        more = (type(o)(*part) if isinstance(o, tuple) else part[0] for o, part in zip(others, rest, strict=True))
        yield (z.to(mass.dtype).contiguous(), u[0].contiguous() if u else mass,
               Spike(*label) if label else None, *more)


class _Sums(NamedTuple):
    """What the first pass finds of every row, all (N, 1)."""

    top: Tensor        # the class with the largest logit
    high: Tensor       # that logit
    rest: Tensor       # sum of exp(z - high) over the others
    distance: Tensor   # sum of mass * (z - high)
    logs: Tensor       # sum of mass * log(1 - p) over the others, for a line
    label: Tensor      # z - high of the label


def _no_sums(rows: int, like: Tensor) -> _Sums:
    """Room for the sums of so many rows."""
    numbers = like.new_zeros(5, rows, 1)
    return _Sums(numbers[0].long(), *numbers)


def _scan_(logits: Tensor, mass: Tensor, curve: Curve, label: Tensor | None, sums: _Sums) -> None:
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


def _values(sums: _Sums, mass: Tensor, classes: int, curve: Curve, spike: Spike | None) -> Tensor:
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


class _Pulls(NamedTuple):
    """What a row's gradient needs beside its sums, all (N, 1)."""

    p: Tensor         # of the top class
    others: Tensor    # the mass of the others
    pull: Tensor      # the top class's mass, the spike included if it stands there, times its pull
    extra: Tensor     # the spike's mass times pull / (1 - p), if it stands elsewhere
    upstream: Tensor


def _pulls(sums: _Sums, mass: Tensor, classes: int, curve: Curve, spike: Spike | None, upstream: Tensor) -> _Pulls:
    own = _at(mass, sums.top).expand(upstream.shape)
    pull, extra = own, torch.zeros_like(upstream)
    if spike is not None:
        gap, p, on_top = _label_gap(sums, spike)
        pull = pull + torch.where(on_top, spike.mass, 0.0)
        extra = torch.where(on_top, 0.0, spike.mass * curve.pull(gap) / (1 - p))
    pull = pull * curve.pull(-sums.rest.log())
    return _Pulls(1 / (1 + sums.rest), _others(mass, own, classes), pull, extra, upstream)


def _gradient_(logits: Tensor, mass: Tensor, curve: Curve, spike: Spike | None, sums: _Sums, row: _Pulls,
              out: Tensor) -> None:
    """The gradient of :func:`_values`, each row times its ``upstream``, into ``out``.

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


def _label_gap(sums: _Sums, spike: Spike) -> tuple[Tensor, Tensor, Tensor]:
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
