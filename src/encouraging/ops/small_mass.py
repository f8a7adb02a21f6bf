"""Smoothed labels and soft targets of a batch that fits the cache: the sums of ``masses.py`` in few operations.

As in ``small.py``, the time is that of starting operations, and memory does not count: exponentials are kept, there are
no blocks and no buffers, and weights, mean and ignored rows are part of one Function. Label and top class are picked
together, as two columns of one table, and scattered together: nothing asks whether they are the same.

Rivals too far below the top class, and what has no number, are left to ``masses.py``.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._cross_entropy import CrossEntropy
from ..curves._together import constant, value_and_pull
from ..torch_state import backward_must_be_differentiable
from .labels import zero_ignored
from .masses import WIDE, LabelMass, top_class_of
from .rows import mass_gradient
from .small import reduced, sum_divisor


class _Mass(NamedTuple):
    """What is on the classes of every row."""

    everywhere: Tensor         # (N, C), or (C) where all rows have the same, or () where all classes have
    added: LabelMass | None    # what the labels have beside it; here their mass may be ()
    ignored: Tensor | None


class _Kept(NamedTuple):
    """What the backward pass needs."""

    top_class: Tensor
    chosen: Tensor              # that class, and the label if there is one
    weights: Tensor             # p, or where there is a scale p / scale; 0 for the top class
    scale: Tensor | None
    top: Tensor                 # p of the top class
    rest: Tensor                # 1 - p of it
    ratios: Tensor              # the masses of ``chosen`` times pull / (1 - p)
    complements: Tensor | None  # 1 - p, for a line


def small_smooth_loss(logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve, weight: Tensor | None,
                      smoothing: float, reduction: str) -> Tensor | None:
    """The smoothed loss of float32 or float64 logits that fit the cache, with labels as ``labels.py`` gives them; None
    where only ``masses.py`` is right. ``weight`` gets no gradient."""
    if not _applies(curve) or not logits.numel():
        return None
    everywhere, added, both = _shares(smoothing, logits.shape[1], logits.dtype)
    of_label = picked = None
    if weight is None:
        picked = both
    else:
        weight = weight.detach().to(logits.dtype)
        of_label = zero_ignored(weight.take(label), ignored)
        everywhere, added = weight * everywhere, of_label * added
    return _loss(logits, _Mass(everywhere, LabelMass(label, added), ignored), picked, curve,
                 sum_divisor(logits, of_label, ignored, reduction))


def small_mass_loss(logits: Tensor, mass: Tensor, curve: Curve, reduction: str) -> Tensor | None:
    """The loss of such logits with a mass (N, C), or None."""
    if not _applies(curve) or not logits.numel():
        return None
    return _loss(logits, _Mass(mass, None, None), None, curve, sum_divisor(logits, None, None, reduction))


def _applies(curve: Curve) -> bool:
    """Whether these sums are the curve's. Of those that are -log p up to 1/2 only cross-entropy is so to the end."""
    return type(curve) is CrossEntropy or curve.form_below_half == "line"


@functools.lru_cache(maxsize=256)
def _shares(smoothing: float, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The mass of every class, what a label has beside it, and the two together."""
    with torch.inference_mode(False):
        both = torch.tensor([smoothing / classes, 1 - smoothing], dtype=dtype, device="cpu")
        return both[0].clone(), both[1].clone(), both


def _loss(logits: Tensor, mass: _Mass, picked: Tensor | None, curve: Curve, count: Tensor | None) -> Tensor | None:
    """The reduced loss, or None. ``picked`` are the masses of top class and label where all rows have the same."""
    z, ignored = logits.detach(), mass.ignored
    found = _rows(z, mass, picked, curve)
    if ignored is not None and (found is None or not math.isfinite(found[0].sum().item())):
        # What an ignored row holds, such as NaN, must neither reach the gradient nor send the others another way.
        found = _rows(zero_ignored(z, ignored), mass, picked, curve)
    if found is None:
        return None
    loss = reduced(found[0], ignored, None, count)
    if math.isnan(loss.item() if count is not None else loss.sum().item()):
        # A class without mass at -inf adds nothing, but the general way has more such cases.
        found = _rows(z, mass, picked, curve, without_mass=True) if mass.everywhere.ndim == 2 else None
        loss = loss if found is None else reduced(found[0], None, None, count)
        if found is None or math.isnan(loss.sum().item()):
            return None
    if not torch.is_grad_enabled():
        return loss
    return _apply(logits, (loss,), mass, found[1], curve, count)  # type: ignore[no-any-return, no-untyped-call]


def _rows(z: Tensor, mass: _Mass, picked: Tensor | None, curve: Curve, *,
          without_mass: bool = False) -> tuple[Tensor, _Kept] | None:
    """The losses (N, 1), with what their gradient needs; None where the rivals' exponentials would underflow. With
    ``without_mass`` classes of no mass may be at -inf, which takes a mask."""
    everywhere, added, _ = mass
    classes = z.shape[1]
    far, one = _numbers(z.dtype)
    z = z.contiguous()  # the same bits whatever the order in memory
    if classes < WIDE:
        highest, top_class = z.max(-1, True)
        ahead = z.sub(highest)
        weights = ahead.exp().scatter_(-1, top_class, 0.0)
        rivals = weights.sum(-1, True)
        total = rivals.add(one)
        scale = top = total.reciprocal()
        rest = rivals.div(total)
    else:
        top_class = top_class_of(z)
        ahead = z.sub(z.gather(-1, top_class))
        weights, scale = z.softmax(-1), None
        top = weights.gather(-1, top_class)
        rest = weights.scatter_(-1, top_class, 0.0).sum(-1, True)
        rivals = rest.div(top)
        total = rivals.add(one)
    if without_mass:
        ahead.masked_fill_(everywhere == 0, 0.0)
    if not rivals.amin().item() >= far:  # also where there is a NaN
        return None
    log_total = rivals.log1p()
    chosen = top_class if added is None else torch.cat((top_class, added.label), -1)
    if picked is None:
        picked = _picked(mass, top_class)
    if type(curve) is CrossEntropy:
        if everywhere.ndim:
            rows = log_total.sub(ahead).mul_(everywhere).sum(-1, True)
        else:
            rows = log_total.mul(classes).sub_(ahead.sum(-1, True)).mul_(everywhere)
        if added is not None:
            rows.addcmul_(log_total.sub_(ahead.gather(-1, added.label)), added.mass)
        return rows, _Kept(top_class, chosen, weights, scale, top, rest, picked, None)
    complements = torch.sub(one, weights) if scale is None else weights.div(total).neg_().add_(one)
    if everywhere.ndim:
        lines = complements.log().sub_(ahead).add_(log_total).mul_(everywhere)
        rows = lines.scatter_(-1, top_class, 0.0).sum(-1, True)
    else:  # the product is at least 1/4
        rows = complements.prod(-1, True).log_().add_(log_total, alpha=classes - 1)
        rows.sub_(ahead.sum(-1, True)).mul_(everywhere)
    complements.scatter_(-1, top_class, rest)
    complement = complements.gather(-1, chosen)
    values, pulls = value_and_pull(curve, ahead.gather(-1, chosen).sub_(complement.mul(total).log_()))
    values = values.mul(picked)
    rows.add_(values if added is None else values.sum(-1, True))
    ratios = pulls.mul(picked).div_(complement)
    return rows, _Kept(top_class, chosen, weights, scale, top, rest, ratios, complements)


@functools.lru_cache(maxsize=4)
def _numbers(dtype: torch.dtype) -> tuple[float, Tensor]:
    return torch.finfo(dtype).tiny ** 0.5, constant(1.0, dtype)


def _picked(mass: _Mass, top_class: Tensor) -> Tensor:
    """The top class's mass, and beside it what the label has in addition."""
    if mass.added is None:
        return mass.everywhere.gather(-1, top_class)
    return torch.cat((mass.everywhere.take(top_class), mass.added.mass), -1)


def _gradient(kept: _Kept, mass: _Mass, upstream: Tensor) -> Tensor:
    """The gradient of :func:`_rows`, each times its ``upstream``. The top class is apart, as in ``masses._gradient_``:
    what is added to it is taken out again before the sum over the others."""
    top_class, chosen, weights, scale, top, rest, ratios, complements = kept
    if complements is None:
        minus = mass.everywhere.expand(weights.shape).scatter(-1, top_class, 0.0)
    else:
        minus = mass.everywhere.div(complements).scatter_(-1, top_class, 0.0)
    on_top = ratios
    if mass.added is not None:
        minus.scatter_add_(-1, chosen, ratios.expand(chosen.shape))
        on_top = minus.gather(-1, top_class)
        minus.scatter_(-1, top_class, 0.0)
    others = minus.sum(-1, True)
    both = others.add(on_top)
    minus.addcmul_(weights, both if scale is None else both.mul_(scale), value=-1)
    minus.scatter_(-1, top_class, on_top.mul(rest).addcmul_(others, top, value=-1))
    return minus.mul_(upstream.neg())


class _SmallMassLoss(torch.autograd.Function):
    """Numbers that are there already, with their derivatives. The second one is ``rows.mass_gradient``'s."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, loss: tuple[Tensor], mass: _Mass, kept: _Kept, curve: Curve,
                count: Tensor | None) -> Tensor:
        # All of them, so that autograd frees them with the graph, and sees what the caller changes before the backward.
        ctx.save_for_backward(logits, mass.everywhere, mass.ignored, *(mass.added or (None, None)), *kept)
        ctx.curve, ctx.count = curve, count
        return loss[0]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, everywhere, ignored, label, added, *kept = ctx.saved_tensors
        mass, count = _Mass(everywhere, None if label is None else LabelMass(label, added), ignored), ctx.count
        upstream = upstream[:, None] if count is None else upstream.div(count)
        if backward_must_be_differentiable(upstream):
            z = zero_ignored(logits, ignored)  # what they hold, such as NaN, must not reach a second derivative
            u = everywhere.expand(z.shape)
            if label is not None:
                u = u.scatter_add(-1, label, added.expand(label.shape))
            gradient = zero_ignored(upstream * mass_gradient(z, u, ctx.curve), ignored)
        else:
            if ignored is not None:  # all that was kept is finite
                upstream = zero_ignored(upstream.expand(ignored.shape), ignored)
            gradient = _gradient(_Kept(*kept), mass, upstream)
        return gradient, None, None, None, None, None


_apply = super(torch.autograd.Function, _SmallMassLoss).apply  # Function.apply binds arguments in every call
