r"""Sums over all classes in closed form, for the curves that are a simple function where p is at most 1/2.

With a mass :math:`u_k` on every class, ``sum_k u_k phi(p_k)`` needs the curve's value and pull at every class. All
but the top class have :math:`p \le 1/2`, where a curve with a :attr:`~encouraging.curves.Curve.form_below_half` is

* ``"nll"``:  :math:`\varphi = -\log p`, and pull / (1 - p) is 1;
* ``"line"``: :math:`\varphi = -\log p + \log(1-p)`, and pull / (1 - p) is 1 / (1 - p).

So one exponential per class is enough (and for a line one logarithm more in the forward pass, one division more in the
backward pass); the curve's own formula is needed only for the top class and the label. Both are exact at any
confidence: the top class's gap comes from its rivals alone, whose exponentials are relative to the highest of them,
so that they do not underflow. This file has a first derivative only. A second derivative takes the plain form,
``class_sums.mass_gradient``; transforms take ``rows.mass_rows``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..curves import Curve
from ..torch_state import backward_must_be_differentiable, in_forward_mode, is_eager, values_are_readable
from .class_sums import WIDE, mass_gradient, top_class_of
from .exponentials import exp_
from .labels import zero_ignored, zero_ignored_
from .reduction import rows_of
from .rows import apply, compute_dtype, in_blocks


class LabelMass(NamedTuple):
    """A label (N, 1) with a mass (N, 1) that is added to the mass of all classes."""

    label: Tensor
    mass: Tensor


def applies(curve: Curve) -> bool:
    """Whether sums over the classes have a closed form, and no more than a first derivative can be needed."""
    return curve.form_below_half is not None and is_eager() and not in_forward_mode()


def closed_rows(logits: Tensor, mass: Tensor, curve: Curve, label_mass: LabelMass | None = None,
                ignored: Tensor | None = None) -> Tensor:
    """``rows.mass_rows`` where this form :func:`applies`, in at least float32; 0 in ignored rows.

    The mass is (N, C), or (C) where it is the same in every row, or one number where it is also the same for all
    classes.
    """
    return apply(_ClosedRows, logits, mass, *(label_mass or (None, None)), ignored, curve)  # type: ignore[no-any-return]


def closed_rows_with_gradient(logits: Tensor, mass: Tensor, curve: Curve, label_mass: LabelMass | None = None,
                              upstream: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """:func:`closed_rows` and its gradient times ``upstream`` (N, 1), below autograd."""
    sums = _sums(logits, mass, label_mass, curve)
    rows = _values(sums, mass, curve, label_mass)
    upstream = torch.ones_like(rows) if upstream is None else upstream
    return rows_of(rows), _gradient(logits, mass, label_mass, sums, curve, upstream)


def closed_gradients_and_sizes(logits: Tensor, mass: Tensor, curves: Iterable[Curve],
                               label_mass: LabelMass | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """For each curve the gradient of :func:`closed_rows`, and the size (N, 1) of the pulls of which it is a
    difference."""
    sums = _sums(logits, mass, label_mass, None)
    upstream = torch.ones_like(sums.rivals)
    for curve in curves:
        row = _pulls(sums, mass, curve, label_mass, upstream)
        yield _gradient(logits, mass, label_mass, sums, curve, upstream), row.others + row.pull + row.extra


class _ClosedRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, mass: Tensor, label: Tensor | None, added: Tensor | None,
                ignored: Tensor | None, curve: Curve) -> Tensor:
        mass = mass.to(compute_dtype(logits.dtype))
        label_mass = None if label is None or added is None else LabelMass(label, added)
        sums = _sums(logits, mass, label_mass, curve)
        ctx.curve = curve
        ctx.save_for_backward(logits, mass, label, added, ignored, *sums)
        return rows_of(zero_ignored(_values(sums, mass, curve, label_mass), ignored))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, mass, label, added, ignored, *sums = ctx.saved_tensors
        dtype = upstream.dtype
        if backward_must_be_differentiable(upstream):
            z = zero_ignored(logits, ignored).to(dtype)
            u = mass.expand(z.shape)
            if label is not None:
                u = u.scatter_add(-1, label, added)
            gradient = zero_ignored(upstream[:, None] * mass_gradient(z, u, ctx.curve), ignored)
            return gradient.to(logits.dtype), None, None, None, None, None
        label_mass = None if label is None else LabelMass(label, added)
        gradient = _gradient(logits, mass, label_mass, _Sums(*sums), ctx.curve, upstream[:, None])
        return zero_ignored_(gradient, ignored), None, None, None, None, None


def _sums(logits: Tensor, mass: Tensor, label_mass: LabelMass | None, curve: Curve | None) -> _Sums:
    """The sums of all rows; those that only values need are left at 0 where there is no curve."""
    sums, scratch = _zero_sums(logits.shape[0], mass), None
    for z, u, label_part, sums_part in _blocks(logits, mass, label_mass, sums):
        if scratch is None:  # one for all blocks: fresh memory for every operation would take longer than its numbers
            scratch = [torch.empty_like(z) for _ in range(2 if mass.ndim and curve is not None else 1)]
        _scan_(z, u, curve, None if label_part is None else label_part.label, sums_part,
               [each[:z.shape[0]] for each in scratch])
    return sums


def _gradient(logits: Tensor, mass: Tensor, label_mass: LabelMass | None, sums: _Sums, curve: Curve,
              upstream: Tensor) -> Tensor:
    gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
    rows, scratch = _pulls(sums, mass, curve, label_mass, upstream), None
    for z, u, label_part, sums_part, row, out in _blocks(logits, mass, label_mass, sums, rows, gradient):
        if scratch is None and curve.form_below_half == "line":
            scratch = torch.empty_like(z)
        _gradient_(z, u, label_part, sums_part, row, out, None if scratch is None else scratch[:z.shape[0]])
    return gradient


def _blocks(logits: Tensor, mass: Tensor, label_mass: LabelMass | None, *others: Any) -> Iterator[tuple[Any, ...]]:
    """Blocks of rows, each with its part of everything that has rows: the logits, the mass, the label's mass, and the
    named tuples and tensors of ``others``."""
    groups: list[tuple[Any, ...]] = [(mass,) if mass.ndim == 2 else (), label_mass or (),
                                     *(other if isinstance(other, tuple) else (other,) for other in others)]
    for z, *parts in in_blocks(logits, *(tensor for group in groups for tensor in group if tensor is not None)):
        remaining = iter(parts)
        part_groups: list[list[Any]] = [[tensor if tensor is None else next(remaining) for tensor in group]
                                   for group in groups]
        u, label, *rest = part_groups
        more = (type(other)(*part) if isinstance(other, tuple) else part[0]
                for other, part in zip(others, rest, strict=True))
        yield (z.to(mass.dtype).contiguous(), u[0].contiguous() if u else mass,
               LabelMass(*label) if label else None, *more)


class _Sums(NamedTuple):
    """What the first pass computes for every row, all (N, 1). "The others" are all classes but the top class."""

    top_class: Tensor  # the class with the highest logit
    highest: Tensor    # that logit
    rivals: Tensor     # sum of exp(z - base) over the others
    distance: Tensor   # sum of mass * (z - highest)
    logs: Tensor       # sum of mass * log(1 - p) over the others, for a line
    label: Tensor      # z - highest of the label
    others: Tensor     # the mass of all classes but the top class
    base: Tensor       # the highest logit of the others, or of the top class where the others are at -inf

    @property
    def odds(self) -> Tensor:
        """(1 - p) / p of the top class, 0 where it underflows."""
        return (self.base - self.highest).exp_().mul_(self.rivals)

    @property
    def gap(self) -> Tensor:
        """The top class's gap."""
        return (self.highest - self.base) - self.rivals.log()


def _zero_sums(rows: int, like: Tensor) -> _Sums:
    """Buffers for the sums of so many rows."""
    numbers = like.new_zeros(7, rows, 1)
    return _Sums(numbers[0].long(), *numbers)


def _scan_(logits: Tensor, mass: Tensor, curve: Curve | None, label: Tensor | None, sums: _Sums,
           scratch: list[Tensor]) -> None:
    """Fill ``sums`` for a block of rows. ``mass`` is (N, C), (C), or one number for all classes."""
    if logits.shape[1] >= WIDE and values_are_readable(logits):
        torch.gather(logits, -1, sums.top_class.copy_(top_class_of(logits)), out=sums.highest)
    else:
        torch.max(logits, -1, keepdim=True, out=(sums.highest, sums.top_class))
    sums.highest.masked_fill_(sums.highest == torch.inf, torch.nan)  # no probability, as in torch's cross-entropy
    if label is not None:
        torch.sub(logits.gather(-1, label), sums.highest, out=sums.label)
    _others_(mass, logits.shape[1], sums, scratch[0])
    if curve is not None:
        _distance_(logits, mass, sums, scratch)
    others = scratch[0].copy_(logits).scatter_(-1, sums.top_class, -torch.inf)
    highest_rival = others.amax(-1, keepdim=True)
    torch.where(highest_rival > -torch.inf, highest_rival, sums.highest, out=sums.base)
    weights = exp_(others.sub_(sums.base))
    torch.sum(weights, -1, keepdim=True, out=sums.rivals)
    if curve is not None and curve.form_below_half == "line":
        complements = weights.mul_(-_p_and_p_of_base(sums)[1]).add_(1.0)  # 1 - p
        if mass.ndim:
            torch.sum(complements.log_().mul_(mass), -1, keepdim=True, out=sums.logs)
        else:
            torch.prod(complements, -1, keepdim=True, out=sums.logs)  # at least 1/4; _values takes its logarithm


def _others_(mass: Tensor, classes: int, sums: _Sums, scratch: Tensor) -> None:
    if mass.ndim == 2:
        torch.sum(scratch.copy_(mass).scatter_(-1, sums.top_class, 0.0), -1, keepdim=True, out=sums.others)
    elif mass.ndim:  # in float64, because the difference cancels
        sums.others.copy_(mass.sum(-1, keepdim=True, dtype=torch.float64) - mass[sums.top_class])
    else:
        sums.others.copy_(mass * (classes - 1))


def _distance_(logits: Tensor, mass: Tensor, sums: _Sums, scratch: list[Tensor]) -> None:
    ahead = torch.sub(logits, sums.highest, out=scratch[0])
    if not mass.ndim:
        torch.sum(ahead, -1, keepdim=True, out=sums.distance)
        return
    # Not a matrix product: autocast would round it.
    torch.sum(torch.mul(ahead, mass, out=scratch[1]), -1, keepdim=True, out=sums.distance)
    # A class without mass adds nothing, even where its logit is -inf. On a CPU a mask costs more than a check.
    if not values_are_readable(logits) or bool(sums.distance.isnan().any()):
        torch.sum(ahead.masked_fill_(mass == 0, 0.0).mul_(mass), -1, keepdim=True, out=sums.distance)


def _values(sums: _Sums, mass: Tensor, curve: Curve, label_mass: LabelMass | None) -> Tensor:
    """The loss (N, 1) of all rows."""
    top_mass = _at(mass, sums.top_class)
    distance, logs = sums.distance, sums.logs
    if not mass.ndim:
        distance, logs = _times(mass, distance), logs.log() * mass if curve.form_below_half == "line" else logs
    value = _times(top_mass, curve.value(sums.gap))
    value += sums.others * sums.odds.log1p() - distance + logs
    if label_mass is not None:
        value += _times(label_mass.mass, curve.value(_label_gap(sums, label_mass)[0]))
    return value


def _times(mass: Tensor, values: Tensor) -> Tensor:
    """Their product, in which no mass leaves nothing of an infinite value."""
    return torch.where(mass == 0, 0.0, mass * values)


class _Pulls(NamedTuple):
    """What a row's gradient needs beside its sums, all (N, 1)."""

    p: Tensor         # of the top class
    p_of_base: Tensor # of a class whose logit is the base
    others: Tensor    # the mass of all classes but the top class
    pull: Tensor      # the top class's mass (with the label's added mass, if it is the label) times its pull
    extra: Tensor     # the label's added mass times pull / (1 - p), if the label is not the top class
    upstream: Tensor


def _pulls(sums: _Sums, mass: Tensor, curve: Curve, label_mass: LabelMass | None, upstream: Tensor) -> _Pulls:
    top_mass = _at(mass, sums.top_class).expand(upstream.shape)
    pull, extra = top_mass, torch.zeros_like(upstream)
    if label_mass is not None:
        gap, p, on_top = _label_gap(sums, label_mass)
        pull = pull + torch.where(on_top, label_mass.mass, 0.0)
        extra = torch.where(on_top, 0.0, label_mass.mass * curve.pull(gap) / (1 - p))
    pull = pull * curve.pull(sums.gap)
    return _Pulls(*_p_and_p_of_base(sums), sums.others, pull, extra, upstream)


def _gradient_(logits: Tensor, mass: Tensor, label_mass: LabelMass | None, sums: _Sums, row: _Pulls, out: Tensor,
               scratch: Tensor | None) -> None:
    """The gradient of :func:`_values`, each row times its ``upstream``, into ``out``. ``scratch``, of the logits'
    shape, is given for a line.

    For class k it is p_k times the sum over all classes of mass times pull / (1 - p), minus k's own mass times
    pull / (1 - p). The top class's term is left out of that sum and its pull is applied by itself: 1 - p of the top
    class may be 0, and the difference would lose digits.
    """
    weights = torch.sub(logits, sums.base, out=out if out.dtype == mass.dtype else None)
    exp_(weights).scatter_(-1, sums.top_class, 0.0)
    # Mass times pull / (1 - p) of every class, and its sum without the top class. A mass that is one number is
    # multiplied in at the end; nothing is divided by it, because a smoothing that decays makes it 0.
    if scratch is not None:
        ratio = torch.mul(weights, -row.p_of_base, out=scratch).add_(1.0).reciprocal_()
        ratio = (ratio.mul_(mass) if mass.ndim else ratio).scatter_(-1, sums.top_class, 0.0)
        total = ratio.sum(-1, keepdim=True)
        total = (total if mass.ndim else total * mass) + row.extra
    else:
        ratio, total = (mass if mass.ndim else torch.ones_like(mass)), row.others + row.extra
    # The highest of the others alone adds 1 to their sum; less means that there are none.
    factor = total * row.p_of_base + row.pull / sums.rivals.clamp(min=1)
    weights.mul_(factor * row.upstream)
    weights.addcmul_(ratio, row.upstream if mass.ndim else row.upstream * mass, value=-1)
    weights.scatter_(-1, sums.top_class, (total * row.p - row.pull) * row.upstream)
    if label_mass is not None:
        weights.scatter_add_(-1, label_mass.label, -row.extra * row.upstream)
    if weights is not out:
        out.copy_(weights)


def _p_and_p_of_base(sums: _Sums) -> tuple[Tensor, Tensor]:
    """The top class's p, and that of a class whose logit is the base."""
    base = (sums.base - sums.highest).exp_()
    p = (base * sums.rivals).add_(1.0).reciprocal_()
    return p, base.mul_(p)


def _label_gap(sums: _Sums, label_mass: LabelMass) -> tuple[Tensor, Tensor, Tensor]:
    """The label's gap, its p (right only where it is not the top class), and whether it is the top class."""
    log_p = sums.label - sums.odds.log1p()
    p, on_top = log_p.exp(), label_mass.label == sums.top_class
    return torch.where(on_top, sums.gap, log_p - torch.log1p(-p)), p, on_top


def _at(mass: Tensor, index: Tensor) -> Tensor:
    """The mass of one class per row."""
    if mass.ndim == 2:
        return mass.gather(-1, index)
    return mass[index] if mass.ndim else mass
