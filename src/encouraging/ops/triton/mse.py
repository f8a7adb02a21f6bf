"""The squared error of a softmax, with its mirror: every class counts, so the gradient needs a sum over the row.

With p and q = 1 - p of a class and its target t the loss is ``(t q - (1 - t) p)**2``, minus ``(t p)**2`` and
``((1 - t) q)**2`` with the BONUS. With g its derivative by p, the gradient is ``p (g - sum of g p)``. The class with
the largest logit is set apart: its q comes from the sum over its rivals, and its own part of the sum from there too.
"""

import triton
import triton.language as tl

from .finish import finish
from .maths import EACH, INF, LOWEST, ONE, exp_of_distance, row_start
from .tile import FEW_CLASSES, load_tile, store_tile


@triton.jit
def terms(t, p, q, BONUS: tl.constexpr):
    """Loss and derivative by p, without the 2 that the derivatives of all classes have in common with the BONUS: the
    probabilities sum to 1, so it cancels in the gradient, where it would cost digits."""
    if BONUS:
        between = 2.0 * t * (1.0 - t)
        return (q - p) * (2.0 * t - 1.0) - between * p * q, -4.0 * t - between * (q - p)
    else:
        away = t * q - (1.0 - t) * p
        return away * away, -2.0 * away


@triton.jit
def under_upstream(g, above, first, BONUS: tl.constexpr):
    """The derivative times an upstream gradient per element. Of the 2 that ``terms`` leaves out, what differs between
    the classes comes back: nothing where all have the upstream gradient of the row's ``first``."""
    g *= above
    if BONUS:
        g += 2.0 * (above - first)
    return g


@triton.jit
def slope_of(g, p, q, is_top, of_top, of_rest, rivals):
    """The gradient ``p (g - sum of g p)``, with 1 - p of the largest class from its rivals. ``of_top`` differs from one
    class's part of it only where several share the largest logit: see ``soft_rows.row_terms``."""
    others = tl.where(rivals >= 1.0, of_top - g * p, 0.0)
    return p * (tl.where(is_top, g * q - others, g - of_top) - of_rest)


@triton.jit
def label_and_known(pointers, m_r, n_classes):
    """Labels as numbers of 32 bits, with which classes are compared faster, and what their losses are multiplied by:
    NaN where a label names no class."""
    y = tl.load(pointers, mask=m_r, other=0).to(tl.int64)
    known = (y >= 0) & (y < n_classes)
    return tl.where(known, y, -1).to(tl.int32), tl.where(known, 1.0, float("nan"))


STATE_NUMBERS = 4  # of a row, from which mse_later.py makes the gradient of a sum


@triton.jit
def store_errors(state, o_r, m_r, n_rows, top, rivals, of_top, of_rest):
    tl.store(state + o_r, top, mask=m_r)
    tl.store(state + n_rows + o_r, rivals, mask=m_r)
    tl.store(state + 2 * n_rows + o_r, of_top, mask=m_r)
    tl.store(state + 3 * n_rows + o_r, of_rest, mask=m_r)


# ROWS whole rows per program, one read and one write. It writes the sum of all losses of a program, or (VALUES) every
# loss, and the gradient times ``scale`` over ``divisor``, or times an upstream gradient for every element. STATE keeps
# what mse_later.py needs.
@triton.jit(do_not_specialize=["n_rows"])
def mse_kernel(
    logits, target, divisor, upstream, loss, shares, counter, grad, state,
    n_rows, class_units, stride_units, target_units, scale,
    SOFT: tl.constexpr, BONUS: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    PIECE: tl.constexpr, DIVIDED: tl.constexpr, GRAD: tl.constexpr, VALUES: tl.constexpr, UPSTREAM: tl.constexpr,
    STATE: tl.constexpr, LAST: tl.constexpr,
):
    n_classes = class_units * UNIT
    stride, target_stride = tl.cast(stride_units, tl.int64) * UNIT, tl.cast(target_units, tl.int64) * UNIT
    o_c = tl.arange(0, BLOCK)[None, :]
    o_r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m_r = o_r < n_rows
    m = m_r[:, None] & (o_c < n_classes)
    z = load_tile(logits, row_start(o_r, 1, stride, 0), m_r, n_classes, 1, -INF, PIECE, BLOCK)
    if SOFT:
        t = load_tile(target, o_r.to(tl.int64) * target_stride, m_r, n_classes, 1, 0.0, PIECE, BLOCK)
    else:
        y, known = label_and_known(target + o_r, m_r, n_classes)
        t = tl.where(o_c == y[:, None], known[:, None], 0.0 * known[:, None])
    top = tl.maximum(tl.max(z, axis=1), LOWEST)
    is_top = z == top[:, None]
    e = exp_of_distance(z, top[:, None], BLOCK <= FEW_CLASSES)
    rivals = tl.sum(tl.where(is_top, 0.0, e), axis=1) + (tl.sum(tl.where(is_top, 1.0, 0.0), axis=1) - 1.0)
    over = (1.0 / (1.0 + rivals))[:, None]
    p = e * over
    q = tl.where(is_top, rivals[:, None] * over, 1.0 - p)
    value, g = terms(t, p, q, BONUS)
    own = row_start(o_r, 1, tl.cast(n_classes, tl.int64), 0)  # of what is contiguous
    if VALUES:
        store_tile(loss, own, m_r, n_classes, 1, value, BLOCK)
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    if GRAD or STATE:
        if UPSTREAM == EACH:
            above = load_tile(upstream, own, m_r, n_classes, 1, 0.0, PIECE, BLOCK)
            g = under_upstream(g, above, tl.load(upstream + own, mask=m_r, other=0.0).to(tl.float32)[:, None], BONUS)
        part = tl.where(m, g * p, 0.0)
        of_top = tl.sum(tl.where(is_top, part, 0.0), axis=1)
        of_rest = tl.sum(tl.where(is_top, 0.0, part), axis=1)
    if STATE:
        store_errors(state, o_r, m_r, n_rows, top, rivals, of_top, of_rest)
    if GRAD:
        slope = slope_of(g, p, q, is_top, of_top[:, None], of_rest[:, None], rivals[:, None])
        above_all = scale
        if UPSTREAM == ONE:
            above_all *= tl.load(upstream).to(tl.float32)
        store_tile(grad, own, m_r, n_classes, 1, slope * above_all, BLOCK)
    if not VALUES:
        finish(shares, counter, loss, tl.sum(tl.sum(tl.where(m, value, 0.0), axis=1), axis=0), scale, LAST)
