"""Sums over all classes of a row, ``sum_k u_k phi(p_k)`` for a mass ``u`` over the classes, for any curve.

:func:`mass_values` and :func:`mass_gradient` are plain differentiable formulas. The functions of a block compute
the same numbers below autograd in eager mode, with one exponential per class instead of two and in little memory.
``masses.py`` has a closed form for some curves.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..curves import Curve
from ..curves._below_half import ratio_below_half, value_below_half
from ..curves._curve import nll
from ..links import class_gaps, without
from ..torch_state import PLAIN, in_forward_mode, is_eager, values_are_readable
from .exponentials import exp_

WIDE = 256  # classes from which on numpy finds the top one sooner than torch, and torch's softmax is the fastest exp


def top_class_of(logits: Tensor) -> Tensor:
    """The class (N, 1) with the highest of logits that :func:`values_are_readable`: numpy finds it among 1000 in an
    eighth of torch's time. What numpy cannot look at, such as a subclass, is torch's."""
    if type(logits) not in PLAIN or logits.is_neg():
        return logits.argmax(-1, True)
    return torch.from_numpy(logits.detach().numpy().argmax(-1, keepdims=True))


def mass_values(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    """``sum_k u_k phi(p_k)``. A class without mass adds nothing, even where its value is infinite."""
    return torch.where(mass == 0, 0.0, mass * curve.value(class_gaps(logits)[0])).sum(-1)


def mass_gradient(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    """``p_j sum_k u_k r_k - u_j r_j`` with ``r = pull / (1 - p)``. The top class is treated separately, because its
    1 - p may be 0."""
    return _gradient_and_pulls(logits, mass, curve)[0]


def _gradient_and_pulls(logits: Tensor, mass: Tensor, curve: Curve) -> tuple[Tensor, Tensor]:
    gaps, softmax, top_class, rivals_of_top = class_gaps(logits)
    pull = mass * curve.pull(gaps)
    pull_of_top = pull.gather(-1, top_class)
    ratio = (pull / torch.sigmoid(-gaps.scatter(-1, top_class, 0.0))).scatter(-1, top_class, 0.0)
    gradient = (softmax * ratio.sum(-1, keepdim=True) - ratio
                + (pull_of_top * rivals_of_top).scatter(-1, top_class, -pull_of_top))
    return gradient, pull


class Block(NamedTuple):
    """A block of rows as the sums over the classes need it, with no derivative. Columns are (N, 1)."""

    weights: Tensor     # exponentials relative to the highest rival of the top class, for which it is 0
    top_class: Tensor
    highest: Tensor     # the top class's logit
    gap_of_top: Tensor
    p_of_base: Tensor   # of a class that is as high as that rival
    total: Tensor       # sum of the weights


def block_of(logits: Tensor) -> Block:
    """What ``links.class_gaps`` computes but the gaps, with one exponential per class and little memory."""
    if logits.shape[1] >= WIDE and values_are_readable(logits):
        top_class = top_class_of(logits)
    else:
        top_class = logits.argmax(-1, keepdim=True)
    weights = without(logits, top_class)
    highest = logits.gather(-1, top_class)
    highest = highest.masked_fill(highest == torch.inf, torch.nan)
    base = weights.amax(-1, keepdim=True)
    base = torch.where(base > -torch.inf, base, highest)
    total = exp_(weights.sub_(base)).sum(-1, keepdim=True)
    gap_of_top = (highest - base) - total.log()
    p_of_base = (base - highest - nll(gap_of_top)).exp()
    return Block(weights, top_class, highest, gap_of_top, p_of_base, total)


def _logs_and_p(logits: Tensor, block: Block) -> tuple[Tensor, Tensor]:
    """log p and p of every class but the top one, which has numbers of no meaning."""
    return torch.sub(logits, block.highest).sub_(nll(block.gap_of_top)), block.weights * block.p_of_base


def _values(block: Block, logs: Tensor, p: Tensor, curve: Curve) -> Tensor:
    return value_below_half(curve, logs, p).scatter_(-1, block.top_class, curve.value(block.gap_of_top))


def values_of_block(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    """:func:`mass_values` below autograd, for a block of rows in eager mode."""
    block = block_of(logits)
    return _sum_of_values(_values(block, *_logs_and_p(logits, block), curve), mass)


def _sum_of_values(values: Tensor, mass: Tensor) -> Tensor:
    rows = (values * mass).sum(-1)
    if values_are_readable(rows) and not bool(rows.isnan().any()):
        return rows
    return torch.where(mass == 0, 0.0, values * mass).sum(-1)


def _gradient(block: Block, logs: Tensor, p: Tensor, mass: Tensor, curve: Curve) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`mass_gradient`, written over the block, and what it is made of: the top class's pull (N, 1), and the pull
    over 1 - p of every other class."""
    weights, top_class, _, gap_of_top, p_of_base, total = block
    pull_of_top = mass.gather(-1, top_class) * curve.pull(gap_of_top)
    ratio = ratio_below_half(curve, logs, p).mul_(mass).scatter_(-1, top_class, 0.0)
    of_others = ratio.sum(-1, keepdim=True)
    # The highest rival alone adds 1 to the total; less means that there are no rivals.
    weights.mul_(of_others * p_of_base + pull_of_top / total.clamp(min=1)).sub_(ratio)
    weights.scatter_(-1, top_class, of_others * torch.sigmoid(gap_of_top) - pull_of_top)
    return weights, pull_of_top, ratio


def values_and_gradient(logits: Tensor, mass: Tensor, curve: Curve) -> tuple[Tensor, Tensor]:
    """:func:`mass_values` and :func:`mass_gradient` of a block of rows, below autograd."""
    if not is_plain():
        return mass_values(logits, mass, curve), mass_gradient(logits, mass, curve)
    block = block_of(logits)
    logs, p = _logs_and_p(logits, block)
    values = _sum_of_values(_values(block, logs, p, curve), mass)
    return values, _gradient(block, logs, p, mass, curve)[0]


def gradient_of_block(logits: Tensor, mass: Tensor, curve: Curve) -> Tensor:
    """:func:`mass_gradient`, as :func:`values_of_block`."""
    block = block_of(logits)
    return _gradient(block, *_logs_and_p(logits, block), mass, curve)[0]


def mass_gradient_and_size(logits: Tensor, mass: Tensor, curve: Curve) -> tuple[Tensor, Tensor]:
    """:func:`mass_gradient` of a block of rows, below autograd, and the size (N, 1) of the pulls of which it is a
    difference: its rounding error is in proportion to that."""
    if not is_plain():
        gradient, pull = _gradient_and_pulls(logits, mass, curve)
        return gradient, pull.abs().sum(-1, keepdim=True)
    block = block_of(logits)
    logs, p = _logs_and_p(logits, block)
    gradient, pull_of_top, ratio = _gradient(block, logs, p, mass, curve)
    return gradient, ratio.mul_(1 - p).abs().sum(-1, keepdim=True) + pull_of_top.abs()


def is_plain() -> bool:
    """Whether numbers can be written over, with no transform, no compiler and no tangent around."""
    return is_eager() and not in_forward_mode()
