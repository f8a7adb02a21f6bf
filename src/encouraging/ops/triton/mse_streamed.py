"""The squared error of a softmax where a row is too long for one multiprocessor: three passes over it."""

import triton
import triton.language as tl

from .blocks import offsets
from .ends import end_columns, inner_part, inner_row
from .finish import finish
from .maths import EACH, INF, LOG2E, LOWEST, ONE, shifted
from .mse import label_and_known, slope_of, store_errors, terms, under_upstream


@triton.jit
def _load_target(target, y, o_c, m_c, SOFT: tl.constexpr):
    if SOFT:
        return tl.load(target + o_c, mask=m_c, other=0.0, eviction_policy="evict_last").to(tl.float32)
    else:
        return tl.where(o_c == y, 1.0, 0.0)


# The three passes over a row that is too long for one multiprocessor, or over a segment of it (``segments.py``), whose
# columns are counted from its first. ``head`` and ``n_inner`` are the inner part, see ``ends.py``. The largest logit,
# how many classes have it, and the sum of exp(z - top) over the others:
@triton.jit
def stream_largest(row, head, n_inner, n_classes, BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr,
                   SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_top = tl.full([BLOCK // VECTOR], LOWEST, tl.float32)
    b_sum = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_count = b_sum
    inner = inner_row(row, head, ENDS)
    for first in tl.range(0, n_inner, BLOCK, num_stages=1):
        o_c = first + o_b
        z = tl.load(inner + o_c, mask=o_c < n_inner, other=-INF, eviction_policy="evict_last").to(tl.float32)
        b_new = tl.maximum(b_top, tl.max(z, axis=1))
        is_top = z == b_new[:, None]
        e = tl.where(is_top, 0.0, tl.exp2(shifted(z, b_new[:, None], SIXTEEN_BIT)))
        grows = b_new > b_top  # what was largest before is a rival now
        b_sum = (b_sum + tl.where(grows, b_count, 0.0)) * tl.exp2((b_top - b_new) * LOG2E) + tl.sum(e, axis=1)
        b_count = tl.where(grows, 0.0, b_count) + tl.sum(tl.where(is_top, 1.0, 0.0), axis=1)
        b_top = b_new
    top = tl.max(b_top, axis=0)
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        z_e = tl.load(row + o_e, mask=m_e, other=-INF).to(tl.float32)
        top = tl.maximum(top, tl.max(z_e, axis=0))
    count, rivals = largest_of_all(top, b_top, tl.exp2((b_top - top) * LOG2E), b_count, b_sum)
    if ENDS:
        is_top = z_e == top
        count += tl.sum(tl.where(is_top, 1.0, 0.0), axis=0)
        rivals += tl.sum(tl.where(is_top, 0.0, tl.exp2(shifted(z_e, top, SIXTEEN_BIT))), axis=0)
    return top, count, rivals


@triton.jit
def largest_of_all(top, b_top, b_scale, b_count, b_sum):
    """How many classes have the logit ``top``, and the sum of exp(z - top) over the others, from the same numbers of
    several parts, of which ``b_scale`` is exp(b_top - top)."""
    b_first = b_top == top
    rivals = tl.sum((b_sum + tl.where(b_first, 0.0, b_count)) * b_scale, axis=0)
    return tl.sum(tl.where(b_first, b_count, 0.0), axis=0), rivals


# Of some columns: where the largest class is, p, 1 - p, the losses, and their derivatives by p times the upstream
# gradient.
@triton.jit
def _terms_of_columns(row, target, y, upstream, above_first, top, rivals, over, o_c, m_c, SOFT: tl.constexpr,
                      BONUS: tl.constexpr, SIXTEEN_BIT: tl.constexpr, UPSTREAM: tl.constexpr, EVICTION: tl.constexpr):
    z = tl.load(row + o_c, mask=m_c, other=-INF, eviction_policy=EVICTION).to(tl.float32)
    t = _load_target(target, y, o_c, m_c, SOFT)
    is_top = z == top
    p = tl.exp2(shifted(z, top, SIXTEEN_BIT)) * over
    q = tl.where(is_top, rivals * over, 1.0 - p)
    value, g = terms(t, p, q, BONUS)
    if UPSTREAM == EACH:
        above = tl.load(upstream + o_c, mask=m_c, other=0.0).to(tl.float32)
        g = under_upstream(g, above, above_first, BONUS)
    return is_top, p, q, value, g


# The sums of the losses, and of g p over the largest class and over its rivals; with VALUES it writes the losses.
@triton.jit
def stream_errors(row, target, y, upstream, loss, above_first, known, top, rivals, over, head, n_inner, n_classes,
                  SOFT: tl.constexpr, BONUS: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
                  ENDS: tl.constexpr, SIXTEEN_BIT: tl.constexpr, VALUES: tl.constexpr, UPSTREAM: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    n_blocks = tl.cdiv(n_inner, BLOCK)
    b_loss = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_of_top, b_of_rest = b_loss, b_loss
    # What is not given cannot be handed to a function and back: Triton 3.6 refuses to return None.
    inner, inner_target, inner_above, inner_loss = inner_row(row, head, ENDS), target, upstream, loss
    if SOFT:
        inner_target = inner_row(target, head, ENDS)
    if UPSTREAM == EACH:
        inner_above = inner_row(upstream, head, ENDS)
    if VALUES:
        inner_loss = inner_row(loss, head, ENDS)
    for i_block in tl.range(0, n_blocks, num_stages=1):
        o_c = (n_blocks - 1 - i_block) * BLOCK + o_b
        m_c = o_c < n_inner
        is_top, p, q, value, g = _terms_of_columns(
            inner, inner_target, y - head, inner_above, above_first, top, rivals, over, o_c, m_c, SOFT, BONUS,
            SIXTEEN_BIT, UPSTREAM, "evict_last")
        if VALUES:
            tl.store(inner_loss + o_c, (value * known).to(loss.dtype.element_ty), mask=m_c)
        else:
            b_loss += tl.sum(tl.where(m_c, value, 0.0), axis=1)
        part = tl.where(m_c, g * p, 0.0)
        b_of_top += tl.sum(tl.where(is_top, part, 0.0), axis=1)
        b_of_rest += tl.sum(tl.where(is_top, 0.0, part), axis=1)
    row_loss, of_top, of_rest = tl.sum(b_loss, axis=0), tl.sum(b_of_top, axis=0), tl.sum(b_of_rest, axis=0)
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        is_top, p, q, value, g = _terms_of_columns(
            row, target, y, upstream, above_first, top, rivals, over, o_e, m_e, SOFT, BONUS, SIXTEEN_BIT, UPSTREAM, "")
        if VALUES:
            tl.store(loss + o_e, (value * known).to(loss.dtype.element_ty), mask=m_e)
        else:
            row_loss += tl.sum(tl.where(m_e, value, 0.0), axis=0)
        part = tl.where(m_e, g * p, 0.0)
        of_top += tl.sum(tl.where(is_top, part, 0.0), axis=0)
        of_rest += tl.sum(tl.where(is_top, 0.0, part), axis=0)
    return row_loss * known, of_top, of_rest


# The gradient, times ``scale``.
@triton.jit
def stream_slopes(row, target, y, upstream, out, above_first, scale, top, rivals, over, of_top, of_rest, head, n_inner,
                  n_classes, SOFT: tl.constexpr, BONUS: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
                  ENDS: tl.constexpr, SIXTEEN_BIT: tl.constexpr, UPSTREAM: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    inner, inner_out = inner_row(row, head, ENDS), inner_row(out, head, ENDS)
    inner_target, inner_above = target, upstream
    if SOFT:
        inner_target = inner_row(target, head, ENDS)
    if UPSTREAM == EACH:
        inner_above = inner_row(upstream, head, ENDS)
    for i_block in tl.range(0, tl.cdiv(n_inner, BLOCK), num_stages=1):
        o_c = i_block * BLOCK + o_b
        m_c = o_c < n_inner
        is_top, p, q, value, g = _terms_of_columns(
            inner, inner_target, y - head, inner_above, above_first, top, rivals, over, o_c, m_c, SOFT, BONUS,
            SIXTEEN_BIT, UPSTREAM, "evict_first")
        slope = slope_of(g, p, q, is_top, of_top, of_rest, rivals)
        tl.store(inner_out + o_c, (slope * scale).to(out.dtype.element_ty), mask=m_c, eviction_policy="evict_first")
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        is_top, p, q, value, g = _terms_of_columns(
            row, target, y, upstream, above_first, top, rivals, over, o_e, m_e, SOFT, BONUS, SIXTEEN_BIT, UPSTREAM, "")
        slope = slope_of(g, p, q, is_top, of_top, of_rest, rivals)
        tl.store(out + o_e, (slope * scale).to(out.dtype.element_ty), mask=m_e)


@triton.jit
def label_of_row(target, i_row, target_stride, n_classes, SOFT: tl.constexpr):
    """Where the targets of a row begin, its label, and what its losses are multiplied by: NaN where the label names no
    class."""
    y, known = tl.cast(0, tl.int32), 1.0
    if SOFT:
        target += i_row * target_stride
    else:
        y, known = label_and_known(target + i_row, True, n_classes)
    return target, y, known


# As mse_kernel in mse.py, a row at a time: a pass for the largest logit and its rivals' sum, one for the sums, one for
# the gradient.
@triton.jit(do_not_specialize=["n_rows", "phase"])
def mse_streamed_kernel(
    logits, target, divisor, upstream, loss, shares, counter, grad, state,
    n_rows, class_units, stride_units, target_units, phase, scale,
    SOFT: tl.constexpr, BONUS: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
    ENDS: tl.constexpr, SIXTEEN_BIT: tl.constexpr, DIVIDED: tl.constexpr, GRAD: tl.constexpr, VALUES: tl.constexpr,
    UPSTREAM: tl.constexpr, STATE: tl.constexpr, LAST: tl.constexpr,
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
        head, n_inner = inner_part(i_row * stride, phase, n_classes, ENDS)
        top, count, rivals = stream_largest(row, head, n_inner, n_classes, BLOCK, VECTOR, ENDS, SIXTEEN_BIT)
        rivals += count - 1.0
        over = 1.0 / (1.0 + rivals)
        losses, above, above_first = loss, upstream, 0.0
        if VALUES:
            losses += own
        if UPSTREAM == EACH:
            above += own
            above_first = tl.load(above).to(tl.float32)
        row_loss, of_top, of_rest = stream_errors(
            row, masses, y, above, losses, above_first, known, top, rivals, over, head, n_inner, n_classes, SOFT, BONUS,
            BLOCK, VECTOR, ENDS, SIXTEEN_BIT, VALUES, UPSTREAM)
        total += row_loss
        if STATE:
            store_errors(state, i_row, True, n_rows, top, rivals, of_top, of_rest * known)
        if GRAD:
            stream_slopes(row, masses, y, above, grad + own, above_first, above_all * known, top, rivals, over, of_top,
                          of_rest, head, n_inner, n_classes, SOFT, BONUS, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, UPSTREAM)
    if not VALUES:
        finish(shares, counter, loss, total, scale, LAST)
