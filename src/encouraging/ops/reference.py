"""The plain form of every loss over rows of logits, which defines what the fast forms compute.

``hard_loss`` and ``soft_loss`` are ``F.cross_entropy`` on (N, C) logits with another curve, for class indices and for
class probabilities: the same weights, the same ignored rows, the same means.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import curves
from ..curves import Curve
from ..links import label_gap, put
from ..torch_state import values_are_readable
from . import masses
from .class_sums import mass_gradient_and_size, values_and_gradient
from .labels import soft_mass, split_ignored, split_readable, zero_ignored, zero_ignored_
from .masses import LabelMass
from .reduction import reduce, rows_of
from .rows import (
    compute_dtype,
    gap_and_squares,
    in_blocks,
    label_gradient_in_blocks,
    label_rows,
    mass_rows,
    rivals_in_blocks,
)
from .small import fits_cache, fits_plainly, is_small, small_loss, weight_fits
from .small_mass import small_mass_loss, small_smooth_loss

_ROUNDING = 32  # units in the last place that a difference of pulls may be off by


def hard_loss(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None, ignore_index: int = -100,
              label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
    r"""The loss of class indices ``target`` (N), in at least float32.

    .. math:: \ell_i = (1-s)\,w_{y_i}\,\varphi(p_{y_i}) + \frac{s}{C}\sum_k w_k\,\varphi(p_k)

    0 for rows whose label is ``ignore_index``. The mean divides by the sum of the labels' weights; with every row
    ignored it is NaN, as torch's, and its gradient 0.
    """
    label, ignored = split_ignored(logits, target, ignore_index)
    if label_smoothing and masses.applies(curve) and not (weight is not None and weight.requires_grad):
        return _closed_smooth_loss(logits, label, ignored, curve, weight, label_smoothing, reduction)
    if label_smoothing:
        of_label, mass = _hard_mass(logits, label, weight, compute_dtype(logits.dtype))
        of_label = zero_ignored(of_label, ignored)
        mass = _mass_with_labels(logits, mass * (label_smoothing / logits.shape[1]),
                                 LabelMass(label, (1 - label_smoothing) * of_label))
        # What an ignored row holds, such as NaN, must not reach the sum over the classes.
        rows = zero_ignored(mass_rows(zero_ignored(logits, ignored), mass, curve)[:, None], ignored)[:, 0]
        return reduce(rows, reduction, _divisor(None if weight is None else of_label[:, 0], ignored, reduction))
    if is_small(logits) and not (weight is not None and weight.requires_grad):
        return small_loss(logits, label, ignored, curve, weight, reduction)
    rows = label_rows(logits, label, ignored, curve)
    weights = None
    if weight is not None:
        weights = zero_ignored(weight.to(rows.dtype)[label], ignored)[:, 0]
        rows = rows * weights
    return reduce(rows, reduction, _divisor(weights, ignored, reduction))


def _closed_smooth_loss(logits: Tensor, label: Tensor, ignored: Tensor | None, curve: Curve, weight: Tensor | None,
                        label_smoothing: float, reduction: str) -> Tensor:
    """:func:`hard_loss` with smoothing: the label and all classes in one sum."""
    if fits_cache(logits):
        z = logits.to(compute_dtype(logits.dtype))
        loss = small_smooth_loss(z, label, ignored, curve, weight, label_smoothing, reduction)
        if loss is not None:
            return loss
    of_label, mass = _hard_mass(logits, label, weight, compute_dtype(logits.dtype))
    of_label = zero_ignored(of_label, ignored)
    rows = masses.closed_rows(logits, mass * (label_smoothing / logits.shape[1]), curve,
                              LabelMass(label, (1 - label_smoothing) * of_label), ignored)
    return reduce(rows, reduction, _divisor(None if weight is None else of_label[:, 0], ignored, reduction))


def _divisor(weights: Tensor | None, ignored: Tensor | None, reduction: str) -> Tensor | None:
    """What a mean divides by, from the labels' weights (0 for ignored rows): None for the number of rows."""
    if reduction != "mean":
        return None
    if weights is not None:
        return weights.sum()
    return None if ignored is None else (~ignored).sum()


def soft_loss(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None,
              label_smoothing: float = 0.0, reduction: str = "mean") -> Tensor:
    r"""The loss of class probabilities ``target`` (N, C): ``sum_k q_k w_k phi(p_k)``, the mean over the rows."""
    mass = soft_mass(target, weight, label_smoothing, compute_dtype(logits.dtype))
    if masses.applies(curve) and not mass.requires_grad:
        return _closed_soft_loss(logits, mass, curve, reduction)
    return reduce(mass_rows(logits, mass, curve), reduction, logits.shape[0])


def _closed_soft_loss(logits: Tensor, mass: Tensor, curve: Curve, reduction: str) -> Tensor:
    if fits_cache(logits):
        loss = small_mass_loss(logits.to(mass.dtype), mass, curve, reduction)
        if loss is not None:
            return loss
    return reduce(masses.closed_rows(logits, mass, curve), reduction, logits.shape[0])


def plain_mass_loss(input: Tensor, target: Tensor, curve: Curve, weight: Tensor | None, ignore_index: int,
                    reduction: str, label_smoothing: float) -> Tensor | None:
    """The loss of a small batch (N, C) with smoothed labels or probabilities, as ``small.plain_loss`` computes it for
    labels without smoothing; None for every other call, and for arguments that do not fit."""
    if not (fits_plainly(input, target, curve, ignore_index, reduction) and 0 <= label_smoothing <= 1
            and curve.form_below_half is not None and (weight is None or weight_fits(weight, input))):
        return None
    if target.dtype is torch.int64:
        if not label_smoothing or target.ndim != 1 or target.shape[0] != input.shape[0]:
            return None
        label, ignored = split_readable(input, target, ignore_index)
        return _closed_smooth_loss(input, label, ignored, curve, weight, label_smoothing, reduction)
    if target.dtype is not input.dtype or target.shape != input.shape or target.requires_grad or ignore_index >= 0:
        return None
    return _closed_soft_loss(input, soft_mass(target, weight, label_smoothing, input.dtype), curve, reduction)


def rows_with_gradient_(logits: Tensor, target: Tensor, curve: Curve, *, soft: bool, weight: Tensor | None,
                        ignore_index: int, label_smoothing: float, upstream: Tensor | None = None) -> Tensor:
    """The loss of every row, without autograd. Its gradient, times ``upstream`` (N), is written over the logits."""
    if soft or label_smoothing:
        return _masses_with_gradient_(logits, target, curve, soft, weight, ignore_index, label_smoothing, upstream)
    label, ignored = split_ignored(logits, target, ignore_index)
    highest, total = rivals_in_blocks(logits, label)
    gap = label_gap(logits, label, highest, total.log())
    losses, pull = curve.value(gap), curve.pull(gap)
    if weight is not None:
        scale = weight.to(gap.dtype)[label]
        losses, pull = losses * scale, pull * scale
    if upstream is not None:
        pull = pull * upstream[:, None].to(pull.dtype)
    label_gradient_in_blocks(logits, label, highest, total, pull, out=logits)
    zero_ignored_(logits, ignored)
    return rows_of(zero_ignored(losses, ignored))


def _masses_with_gradient_(logits: Tensor, target: Tensor, curve: Curve, soft: bool, weight: Tensor | None,
                           ignore_index: int, label_smoothing: float, upstream: Tensor | None) -> Tensor:
    """:func:`rows_with_gradient_` of targets that become a mass."""
    z, mass, label_mass, ignored = _as_masses(logits, target, soft, weight, ignore_index, label_smoothing)
    dtype = mass.dtype
    above = torch.ones(z.shape[0], 1, dtype=dtype, device=z.device) if upstream is None else upstream[:, None].to(dtype)
    if curve.form_below_half is not None:
        losses, gradient = masses.closed_rows_with_gradient(z, mass, curve, label_mass, above)
        logits.copy_(gradient)
    else:
        mass = _mass_with_labels(z, mass, label_mass)
        losses = z.new_empty(z.shape[0], dtype=dtype)
        for part, u, up, out, slope in in_blocks(z, mass, above, losses, logits):
            part = part.to(dtype)
            values, gradient = values_and_gradient(part, u, curve)
            out.copy_(values)
            slope.copy_(gradient.mul_(up))
    if ignored is not None:
        losses.masked_fill_(ignored[:, 0], 0.0)
        zero_ignored_(logits, ignored)
    return losses


def _as_masses(logits: Tensor, target: Tensor, soft: bool, weight: Tensor | None, ignore_index: int,
               label_smoothing: float) -> tuple[Tensor, Tensor, LabelMass | None, Tensor | None]:
    """The logits with 0 in ignored rows, the mass of all classes, what the labels add to it, and the ignored rows."""
    dtype = compute_dtype(logits.dtype)
    if soft:
        return logits, soft_mass(target, weight, label_smoothing, dtype), None, None
    label, ignored = split_ignored(logits, target, ignore_index)
    of_label, mass = _hard_mass(logits, label, weight, dtype)
    mass = mass * (label_smoothing / logits.shape[1]) if label_smoothing else mass.new_zeros(logits.shape[1])
    # What an ignored row holds, such as NaN, must not reach a sum over the classes.
    return zero_ignored(logits, ignored), mass, LabelMass(label, (1 - label_smoothing) * of_label), ignored


def _mass_with_labels(logits: Tensor, mass: Tensor, label_mass: LabelMass | None) -> Tensor:
    """The mass (N, C), with what the labels add to it."""
    if label_mass is None:
        return mass
    if torch.compiler.is_compiling():  # see links.put
        return mass + put(torch.zeros_like(logits, dtype=mass.dtype), *label_mass)
    return mass.expand(logits.shape).scatter_add(-1, *label_mass)


def _hard_mass(logits: Tensor, label: Tensor, weight: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The labels' weights (N, 1), and the weights of all classes: (C), or one number where all are equal."""
    if weight is None:
        return logits.new_ones(label.shape, dtype=dtype), logits.new_ones((), dtype=dtype)
    weight = weight.to(dtype)
    return weight[label], weight


def match_norm_factor(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None,
                      ignore_index: int = -100, label_smoothing: float = 0.0) -> Tensor:
    r"""The norm of cross-entropy's gradient on these logits over that of the curve's; 1 where the curve's vanishes.

    For labels, with :math:`n^2 = 1 + \sum_{j \ne y}` of the squared softmax over the rivals,

    .. math:: \sqrt{\textstyle\sum w^2 (1-p)^2 n^2 \,/\, \sum w^2\, \mathrm{pull}^2\, n^2}

    One detached number for the whole batch: row by row it would only give cross-entropy back. The gradient of a
    smoothed or soft target is a difference of pulls. It vanishes where it is smaller than their rounding: the ratio
    would only enlarge rounding errors there.
    """
    return factor_of_lengths(match_norm_lengths(logits, target, curve, weight=weight, ignore_index=ignore_index,
                                                label_smoothing=label_smoothing))


def match_norm_lengths(logits: Tensor, target: Tensor, curve: Curve, *, weight: Tensor | None = None,
                       ignore_index: int = -100, label_smoothing: float = 0.0) -> Tensor:
    """What :func:`match_norm_factor` is made of, (N, 3): the norms of every row's gradients, cross-entropy's and the
    curve's, and the size of the pulls behind the latter."""
    dtype = compute_dtype(logits.dtype)
    logits, target = logits.detach(), target.detach()
    weight = None if weight is None else weight.detach()
    soft, two_curves = target.is_floating_point(), (curves.cross_entropy(), curve)
    closed = masses.applies(curve)
    lengths = []  # norms of the rows' gradients; their squares would underflow for well-classified examples
    for z, part in in_blocks(logits, target):
        z = z.to(dtype)
        if soft or label_smoothing:
            z, mass, label_mass, ignored = _as_masses(z, part, soft, weight, ignore_index, label_smoothing)
            if closed:
                gradients_and_sizes = masses.closed_gradients_and_sizes(z, mass, two_curves, label_mass)
            else:
                mass = _mass_with_labels(z, mass, label_mass)
                gradients_and_sizes = (mass_gradient_and_size(z, mass, one) for one in two_curves)
            lengths_and_sizes = [(_length(gradient), size) for gradient, size in gradients_and_sizes]
            rows = [*(length for length, _ in lengths_and_sizes), lengths_and_sizes[1][1]]
        else:
            label, ignored = split_ignored(z, part, ignore_index)
            weights = z.new_ones(label.shape) if weight is None else weight.to(dtype)[label]
            gap, squares = gap_and_squares(z, label)
            n = (1 + squares).sqrt()
            rows = [(weights * one.pull(gap)).abs() * n for one in two_curves]
            rows.append(rows[1])
        lengths.append(zero_ignored(torch.cat(rows, -1), ignored))
    return torch.cat(lengths)


def factor_of_lengths(lengths: Tensor) -> Tensor:
    """:func:`match_norm_factor` from what :func:`match_norm_lengths` returns, for all rows at once or put
    together from parts."""
    of_cross_entropy, of_curve, size = _length(lengths.T)[:, 0]
    vanishes = of_curve <= _ROUNDING * torch.finfo(lengths.dtype).eps * size
    return torch.where(vanishes, 1.0, of_cross_entropy / of_curve.masked_fill(vanishes, 1.0))


def _length(rows: Tensor) -> Tensor:
    """The Euclidean norm of every row, kept as a dimension; where squares would over- or underflow, of scaled rows."""
    if not rows.shape[-1]:
        return rows.sum(-1, keepdim=True)
    if values_are_readable(rows):
        squared = (rows * rows).sum(-1, keepdim=True)
        numbers = torch.finfo(rows.dtype)
        if bool((squared >= rows.shape[-1] * numbers.tiny / numbers.eps).logical_and_(squared < math.inf).all()):
            return squared.sqrt_()
    largest = rows.abs().amax(-1, keepdim=True)
    scaled = rows / largest.masked_fill(largest == 0, 1.0)
    return largest * scaled.mul_(scaled).sum(-1, keepdim=True).sqrt()
