"""Smoothed labels and soft targets of a batch that fits the cache: the sums of ``masses.py`` in few operations.

As in ``small.py``, most of the time goes into starting operations, and memory does not matter: exponentials are saved
for the backward pass, there are no blocks and no buffers, and weights, mean and ignored rows are part of one Function.
Label and top class are gathered and scattered together, as two columns of one index, so that it need not be checked
whether they are the same class.

Rows whose rivals are so far below the top class that their exponentials underflow, and rows with NaN, are left to
``masses.py``.
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
from .class_sums import WIDE, mass_gradient, top_class_of
from .labels import zero_ignored
from .masses import LabelMass
from .small import reduced, sum_divisor


class _Mass(NamedTuple):
    """The mass on the classes of every row."""

    everywhere: Tensor         # (N, C), or (C) where it is the same in all rows, or () where also for all classes
    added: LabelMass | None    # what is added at the labels; its mass may be () here
    ignored: Tensor | None


class _Saved(NamedTuple):
    """What the backward pass needs."""

    top_class: Tensor
    chosen: Tensor              # (N, 1) the top class, or (N, 2) the top class and the label
    weights: Tensor             # p, or where there is a scale p / scale; 0 for the top class
    scale: Tensor | None
    p_of_top: Tensor            # p of the top class
    complement_of_top: Tensor   # 1 - p of it
    ratios: Tensor              # the masses of ``chosen`` times pull / (1 - p)
    complements: Tensor | None  # 1 - p, for a line


def small_smooth_loss(logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve, weight: Tensor | None,
                      smoothing: float, reduction: str) -> Tensor | None:
    """The smoothed loss of float32 or float64 logits that fit the cache, with labels as ``labels.py`` gives them; None
    where only ``masses.py`` is right. ``weight`` gets no gradient."""
    if not _applies(curve) or not logits.numel():
        return None
    everywhere, added, pair = _smoothing_masses(smoothing, logits.shape[1], logits.dtype)
    of_label = picked = None
    if weight is None:
        picked = pair
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
    """Whether these formulas hold for the curve. Of the curves that are -log p up to p = 1/2, only cross-entropy is the
    same above it."""
    return type(curve) is CrossEntropy or curve.form_below_half == "line"


@functools.lru_cache(maxsize=256)
def _smoothing_masses(smoothing: float, classes: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The mass of every class, what is added to it at the label, and a tensor of the two."""
    with torch.inference_mode(False):
        pair = torch.tensor([smoothing / classes, 1 - smoothing], dtype=dtype, device="cpu")
        return pair[0].clone(), pair[1].clone(), pair


def _loss(logits: Tensor, mass: _Mass, picked: Tensor | None, curve: Curve, count: Tensor | None) -> Tensor | None:
    """The reduced loss, or None. ``picked`` has the masses of top class and label where they are the same in all
    rows."""
    z, ignored = logits.detach(), mass.ignored
    computed = _rows(z, mass, picked, curve)
    if ignored is not None and (computed is None or not math.isfinite(computed[0].sum().item())):
        # What an ignored row holds, such as NaN, must not reach the gradient, and must not decide how
        # the others are computed.
        computed = _rows(zero_ignored(z, ignored), mass, picked, curve)
    if computed is None:
        return None
    loss = reduced(computed[0], ignored, None, count)
    if math.isnan(loss.item() if count is not None else loss.sum().item()):
        # A class at -inf without mass adds nothing. Other cases are left to masses.py.
        computed = _rows(z, mass, picked, curve, without_mass=True) if mass.everywhere.ndim == 2 else None
        loss = loss if computed is None else reduced(computed[0], None, None, count)
        if computed is None or math.isnan(loss.sum().item()):
            return None
    if not torch.is_grad_enabled():
        return loss
    return _apply(logits, (loss,), mass, computed[1], curve, count)  # type: ignore[no-any-return, no-untyped-call]


def _rows(z: Tensor, mass: _Mass, picked: Tensor | None, curve: Curve, *,
          without_mass: bool = False) -> tuple[Tensor, _Saved] | None:
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
        scale = p_of_top = total.reciprocal()
        complement_of_top = rivals.div(total)
    else:
        top_class = top_class_of(z)
        ahead = z.sub(z.gather(-1, top_class))
        weights, scale = z.softmax(-1), None
        p_of_top = weights.gather(-1, top_class)
        complement_of_top = weights.scatter_(-1, top_class, 0.0).sum(-1, True)
        rivals = complement_of_top.div(p_of_top)
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
        return rows, _Saved(top_class, chosen, weights, scale, p_of_top, complement_of_top, picked, None)
    complements = torch.sub(one, weights) if scale is None else weights.div(total).neg_().add_(one)
    if everywhere.ndim:
        lines = complements.log().sub_(ahead).add_(log_total).mul_(everywhere)
        rows = lines.scatter_(-1, top_class, 0.0).sum(-1, True)
    else:  # the product is at least 1/4
        rows = complements.prod(-1, True).log_().add_(log_total, alpha=classes - 1)
        rows.sub_(ahead.sum(-1, True)).mul_(everywhere)
    complements.scatter_(-1, top_class, complement_of_top)
    complement = complements.gather(-1, chosen)
    values, pulls = value_and_pull(curve, ahead.gather(-1, chosen).sub_(complement.mul(total).log_()))
    values = values.mul(picked)
    rows.add_(values if added is None else values.sum(-1, True))
    ratios = pulls.mul(picked).div_(complement)
    return rows, _Saved(top_class, chosen, weights, scale, p_of_top, complement_of_top, ratios, complements)


@functools.lru_cache(maxsize=4)
def _numbers(dtype: torch.dtype) -> tuple[float, Tensor]:
    return torch.finfo(dtype).tiny ** 0.5, constant(1.0, dtype)


def _picked(mass: _Mass, top_class: Tensor) -> Tensor:
    """The top class's mass, and in a second column what is added at the label."""
    if mass.added is None:
        return mass.everywhere.gather(-1, top_class)
    return torch.cat((mass.everywhere.take(top_class), mass.added.mass), -1)


def _gradient(saved: _Saved, mass: _Mass, upstream: Tensor) -> Tensor:
    """The gradient of :func:`_rows`, each row times its ``upstream``. The top class is computed by itself, as in
    ``masses._gradient_``: what is added to it is removed again before the sum over the others."""
    top_class, chosen, weights, scale, p_of_top, complement_of_top, ratios, complements = saved
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
    of_all = others.add(on_top)
    minus.addcmul_(weights, of_all if scale is None else of_all.mul_(scale), value=-1)
    minus.scatter_(-1, top_class, on_top.mul(complement_of_top).addcmul_(others, p_of_top, value=-1))
    return minus.mul_(upstream.neg())


class _SmallMassLoss(torch.autograd.Function):
    """Attaches the derivatives to a loss that is already computed. A second derivative is that of
    ``class_sums.mass_gradient``."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, loss: tuple[Tensor], mass: _Mass, saved: _Saved, curve: Curve,
                count: Tensor | None) -> Tensor:
        # All of them, so that autograd frees them with the graph, and sees what the caller changes before the backward.
        ctx.save_for_backward(logits, mass.everywhere, mass.ignored, *(mass.added or (None, None)), *saved)
        ctx.curve, ctx.count = curve, count
        return loss[0]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, everywhere, ignored, label, added, *saved = ctx.saved_tensors
        mass, count = _Mass(everywhere, None if label is None else LabelMass(label, added), ignored), ctx.count
        upstream = upstream[:, None] if count is None else upstream.div(count)
        if backward_must_be_differentiable(upstream):
            z = zero_ignored(logits, ignored)  # what they hold, such as NaN, must not reach a second derivative
            u = everywhere.expand(z.shape)
            if label is not None:
                u = u.scatter_add(-1, label, added.expand(label.shape))
            gradient = zero_ignored(upstream * mass_gradient(z, u, ctx.curve), ignored)
        else:
            if ignored is not None:  # everything that was saved is finite
                upstream = zero_ignored(upstream.expand(ignored.shape), ignored)
            gradient = _gradient(_Saved(*saved), mass, upstream)
        return gradient, None, None, None, None, None


_apply = super(torch.autograd.Function, _SmallMassLoss).apply  # Function.apply binds arguments in every call
