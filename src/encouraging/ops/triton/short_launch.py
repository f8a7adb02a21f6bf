"""Gradients of short rows in the backward pass: everything is made again from the logits, because that takes less time
than to write and read what a row has kept."""

from __future__ import annotations

from torch import Tensor

from .cached_launch import Kept, Prepared
from .finish import SCALE
from .launch import NO_STATS, Asked, division, key_of, prepare
from .maths import EACH_AGAIN, ONE_AGAIN, PULLS
from .problem import Problem
from .tiling import tiling_override

_SHORT_ROW = 256  # bytes; the state of a row has 16
# The same for curves that the kernels know, whose state needs no further launch. 0 keeps the states of all rows. It
# follows from bytes and registers of the two kernels: rows of 10 and 20 bytes were timed, the limit was not.
short_row = 64

_of_pulls, _again = Kept(), Kept()


def of_pulls_for(problem: Problem, above: Tensor, grad: Tensor) -> Prepared:
    """The launch that writes the gradient of a sum over a curve of one's own from its pulls, one per row, times two
    numbers on the device, ``above`` and ``factor``; remembered. Everything else is made again from the logits: for rows
    that :func:`are_short`. It takes logits, target, weight, above, pulls, None, None, None, grad, factor, None and
    ``NO_STATS``."""
    key = *key_of(problem, grad), above.dtype
    prepared: Prepared | None = _of_pulls.get(key)
    if prepared is None:
        asked = Asked(False, 0, PULLS.value, True, False, False, False)
        prepared = _of_pulls.keep(key, prepare(problem, asked, grad, *division(problem, asked)))
    return prepared


def are_short(logits: Tensor) -> bool:
    """Whether rows take less time to be read and added up again than their states to be written and read."""
    return logits.shape[1] * logits.element_size() <= _SHORT_ROW and tiling_override() is None


def is_made_again(logits: Tensor, smoothing: float) -> bool:
    """Whether the gradient of a curve that the kernels know is made again from the logits."""
    return (not smoothing and logits.shape[1] * logits.element_size() <= short_row and logits.shape[0] > 0
            and tiling_override() is None)


def again_for(problem: Problem, upstream: Tensor, grad: Tensor) -> Prepared:
    """The launch that writes the gradient of the rows' losses, each times its ``upstream``, or of their sum;
    remembered. It takes logits, target, weight, None, upstream, None, None, None, grad, for a sum its own factor (else
    None), None and ``NO_STATS``."""
    one = upstream.ndim == 0 or upstream.stride(0) == 0
    key = *key_of(problem, grad), upstream.dtype, upstream.ndim, one
    prepared: Prepared | None = _again.get(key)
    if prepared is None:
        asked = Asked(False, 0, (ONE_AGAIN if one else EACH_AGAIN).value, True, 0 if upstream.ndim else SCALE.value,
                      False, False)
        prepared = _again.keep(key, prepare(problem, asked, grad, *division(problem, asked)))
    return prepared


def gradient_again(problem: Problem, factor: Tensor | None, upstream: Tensor, grad: Tensor) -> Prepared:
    """Write this gradient, and return the launch."""
    launch = again_for(problem, upstream, grad)
    launch(problem.logits.get_device(), *problem[:3], None, upstream, None, None, None, grad, factor, None, *NO_STATS)
    return launch
