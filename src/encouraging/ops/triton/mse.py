"""The squared error of a softmax, with its mirror: every class counts, so the gradient needs a sum over the row.

With p and q = 1 - p of a class and its target t the loss is ``(t q - (1 - t) p)**2``, minus ``(t p)**2`` and
``((1 - t) q)**2`` with the BONUS. With g its derivative by p, the gradient is ``p (g - sum of g p)``. The class with
the largest logit is set apart: its q comes from the sum over its rivals, and its own part of the sum from there too.
"""

import triton
import triton.language as tl

from .blocks import offsets
from .finish import finish
from .maths import EACH, INF, LOG2E, LOWEST, ONE, exp_of_distance, row_start, shifted
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
def _under_upstream(g, above, first, BONUS: tl.constexpr):
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
        y = tl.load(target + o_r, mask=m_r, other=0).to(tl.int64)
        t = tl.where(o_c == y[:, None], 1.0, 0.0)
        t = tl.where(((y >= 0) & (y < n_classes))[:, None], t, float("nan"))  # a label that names no class
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
            g = _under_upstream(g, above, tl.load(upstream + own, mask=m_r, other=0.0).to(tl.float32)[:, None], BONUS)
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


@triton.jit
def _load_target(target, y, o_c, m_c, SOFT: tl.constexpr):
    if SOFT:
        return tl.load(target + o_c, mask=m_c, other=0.0, eviction_policy="evict_last").to(tl.float32)
    else:
        return tl.where(o_c == y, 1.0, 0.0)


# The three passes over a row that is too long for one multiprocessor, or over a segment of it (``segments.py``), whose
# columns are counted from its first. The largest logit, how many classes have it, and the sum of exp(z - top) over the
# others:
@triton.jit
def stream_largest(row, n_classes, BLOCK: tl.constexpr, VECTOR: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_top = tl.full([BLOCK // VECTOR], LOWEST, tl.float32)
    b_sum = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_count = b_sum
    for first in tl.range(0, n_classes, BLOCK, num_stages=1):
        o_c = first + o_b
        z = tl.load(row + o_c, mask=o_c < n_classes, other=-INF, eviction_policy="evict_last").to(tl.float32)
        b_new = tl.maximum(b_top, tl.max(z, axis=1))
        is_top = z == b_new[:, None]
        e = tl.where(is_top, 0.0, tl.exp2(shifted(z, b_new[:, None], SIXTEEN_BIT)))
        grows = b_new > b_top  # what was largest before is a rival now
        b_sum = (b_sum + tl.where(grows, b_count, 0.0)) * tl.exp2((b_top - b_new) * LOG2E) + tl.sum(e, axis=1)
        b_count = tl.where(grows, 0.0, b_count) + tl.sum(tl.where(is_top, 1.0, 0.0), axis=1)
        b_top = b_new
    top = tl.max(b_top, axis=0)
    count, rivals = largest_of_all(top, b_top, tl.exp2((b_top - top) * LOG2E), b_count, b_sum)
    return top, count, rivals


@triton.jit
def largest_of_all(top, b_top, b_scale, b_count, b_sum):
    """How many classes have the logit ``top``, and the sum of exp(z - top) over the others, from the same numbers of
    several parts, of which ``b_scale`` is exp(b_top - top)."""
    b_first = b_top == top
    rivals = tl.sum((b_sum + tl.where(b_first, 0.0, b_count)) * b_scale, axis=0)
    return tl.sum(tl.where(b_first, b_count, 0.0), axis=0), rivals


# The sums of the losses, and of g p over the largest class and over its rivals; with VALUES it writes the losses.
@triton.jit
def stream_errors(row, target, y, upstream, loss, above_first, known, top, rivals, over, n_classes, SOFT: tl.constexpr,
                  BONUS: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, SIXTEEN_BIT: tl.constexpr,
                  VALUES: tl.constexpr, UPSTREAM: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    n_blocks = tl.cdiv(n_classes, BLOCK)
    b_loss = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_of_top, b_of_rest = b_loss, b_loss
    for i_block in tl.range(0, n_blocks, num_stages=1):
        o_c = (n_blocks - 1 - i_block) * BLOCK + o_b
        m_c = o_c < n_classes
        z = tl.load(row + o_c, mask=m_c, other=-INF, eviction_policy="evict_last").to(tl.float32)
        t = _load_target(target, y, o_c, m_c, SOFT)
        is_top = z == top
        p = tl.exp2(shifted(z, top, SIXTEEN_BIT)) * over
        value, g = terms(t, p, tl.where(is_top, rivals * over, 1.0 - p), BONUS)
        if VALUES:
            tl.store(loss + o_c, (value * known).to(loss.dtype.element_ty), mask=m_c)
        else:
            b_loss += tl.sum(tl.where(m_c, value, 0.0), axis=1)
        if UPSTREAM == EACH:
            above = tl.load(upstream + o_c, mask=m_c, other=0.0).to(tl.float32)
            g = _under_upstream(g, above, above_first, BONUS)
        part = tl.where(m_c, g * p, 0.0)
        b_of_top += tl.sum(tl.where(is_top, part, 0.0), axis=1)
        b_of_rest += tl.sum(tl.where(is_top, 0.0, part), axis=1)
    return tl.sum(b_loss, axis=0) * known, tl.sum(b_of_top, axis=0), tl.sum(b_of_rest, axis=0)


# The gradient, times ``scale``.
@triton.jit
def stream_slopes(row, target, y, upstream, out, above_first, scale, top, rivals, over, of_top, of_rest, n_classes,
                  SOFT: tl.constexpr, BONUS: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
                  SIXTEEN_BIT: tl.constexpr, UPSTREAM: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    for i_block in tl.range(0, tl.cdiv(n_classes, BLOCK), num_stages=1):
        o_c = i_block * BLOCK + o_b
        m_c = o_c < n_classes
        z = tl.load(row + o_c, mask=m_c, other=-INF, eviction_policy="evict_first").to(tl.float32)
        t = _load_target(target, y, o_c, m_c, SOFT)
        is_top = z == top
        p = tl.exp2(shifted(z, top, SIXTEEN_BIT)) * over
        q = tl.where(is_top, rivals * over, 1.0 - p)
        value, g = terms(t, p, q, BONUS)
        if UPSTREAM == EACH:
            above = tl.load(upstream + o_c, mask=m_c, other=0.0).to(tl.float32)
            g = _under_upstream(g, above, above_first, BONUS)
        slope = slope_of(g, p, q, is_top, of_top, of_rest, rivals)
        tl.store(out + o_c, (slope * scale).to(out.dtype.element_ty), mask=m_c, eviction_policy="evict_first")


@triton.jit
def label_of_row(target, i_row, target_stride, n_classes, SOFT: tl.constexpr):
    """Where the targets of a row begin, its label, and what its losses are multiplied by: NaN where the label names no
    class."""
    y, known = tl.cast(0, tl.int64), 1.0
    if SOFT:
        target += i_row * target_stride
    else:
        y = tl.load(target + i_row).to(tl.int64)
        known = tl.where((y >= 0) & (y < n_classes), 1.0, float("nan"))
    return target, y, known


# As mse_kernel, a row at a time: a pass for the largest logit and its rivals' sum, one for the sums, one for the
# gradient.
@triton.jit(do_not_specialize=["n_rows"])
def mse_streamed_kernel(
    logits, target, divisor, upstream, loss, shares, counter, grad, state,
    n_rows, class_units, stride_units, target_units, scale,
    SOFT: tl.constexpr, BONUS: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
    SIXTEEN_BIT: tl.constexpr, DIVIDED: tl.constexpr, GRAD: tl.constexpr, VALUES: tl.constexpr, UPSTREAM: tl.constexpr,
    STATE: tl.constexpr, LAST: tl.constexpr,
):
    n_classes = class_units * UNIT
    stride, target_stride = tl.cast(stride_units, tl.int64) * UNIT, tl.cast(target_units, tl.int64) * UNIT
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    above_all = scale
    if UPSTREAM == ONE:
        above_all *= tl.load(upstream).to(tl.float32)
    total = 0.0
    for i in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        i_row = tl.cast(i, tl.int64)
        row, own = logits + i_row * stride, i_row * n_classes
        masses, y, known = label_of_row(target, i_row, target_stride, n_classes, SOFT)
        top, count, rivals = stream_largest(row, n_classes, BLOCK, VECTOR, SIXTEEN_BIT)
        rivals += count - 1.0
        over = 1.0 / (1.0 + rivals)
        losses, above, above_first = loss, upstream, 0.0
        if VALUES:
            losses += own
        if UPSTREAM == EACH:
            above += own
            above_first = tl.load(above).to(tl.float32)
        row_loss, of_top, of_rest = stream_errors(row, masses, y, above, losses, above_first, known, top, rivals, over,
                                                  n_classes, SOFT, BONUS, BLOCK, VECTOR, SIXTEEN_BIT, VALUES, UPSTREAM)
        total += row_loss
        if STATE:
            store_errors(state, i_row, True, n_rows, top, rivals, of_top, of_rest * known)
        if GRAD:
            stream_slopes(row, masses, y, above, grad + own, above_first, above_all * known, top, rivals, over, of_top,
                          of_rest, n_classes, SOFT, BONUS, BLOCK, VECTOR, SIXTEEN_BIT, UPSTREAM)
    if not VALUES:
        finish(shares, counter, loss, total, scale, LAST)
