"""Loss and gradient of smoothed labels where a row is too long for one multiprocessor."""

import triton
import triton.language as tl

from .blocks import offsets, stream_index, stream_rivals
from .curves import LIKE_NORMAL, chances, curve_of_rival
from .ends import end_columns, inner_part, inner_row
from .finish import EVERYONE, divisor_of, finish_mean
from .maths import INF, row_start, shifted
from .rows import (
    closed_values,
    gradient,
    read_label,
    short_series,
    smooth_row,
    store_by_products,
    store_smooth_state,
    store_state,
)


# Weighted sums of value and of pull / (1 - p) over the pivot's rivals, for curves and weights that have no shortcut.
@triton.jit
def stream_sums(row, weight, pivot, base, top, top_p, log_top_p, head, n_inner, n_classes, stride, k0, k1, k2, k3,
                KIND: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr,
                WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_values = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_pulls = b_values
    inner = inner_row(row, head, ENDS)
    for first in tl.range(0, n_inner, BLOCK, num_stages=1):
        o = first + o_b
        m_rival = (o < n_inner) & (o != pivot - head)
        z = tl.load(inner + o.to(tl.int64) * stride, mask=m_rival, other=-INF, eviction_policy="evict_last")
        value, pull = _terms(z, weight, o + head, m_rival, top, top_p, log_top_p, k0, k1, k2, k3, KIND, WEIGHTED,
                             SIXTEEN_BIT)
        b_values += tl.sum(value, axis=1)
        b_pulls += tl.sum(pull, axis=1)
    values, pulls = tl.sum(b_values, axis=0), tl.sum(b_pulls, axis=0)
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        m_e &= o_e != pivot
        z = tl.load(row + o_e, mask=m_e, other=-INF)
        value, pull = _terms(z, weight, o_e, m_e, top, top_p, log_top_p, k0, k1, k2, k3, KIND, WEIGHTED, SIXTEEN_BIT)
        values += tl.sum(value, axis=0)
        pulls += tl.sum(pull, axis=0)
    return base * values, base * pulls


@triton.jit
def _terms(z, weight, o_c, m_rival, top, top_p, log_top_p, k0, k1, k2, k3, KIND: tl.constexpr, WEIGHTED: tl.constexpr,
           SIXTEEN_BIT: tl.constexpr):
    """What rivals add to the two sums."""
    t = shifted(z.to(tl.float32), top, SIXTEEN_BIT)
    value, pull = curve_of_rival(t, tl.exp2(t), top_p, log_top_p, k0, k1, k2, k3, KIND)
    if WEIGHTED:
        w = tl.load(weight + o_c, mask=m_rival, other=0.0).to(tl.float32)
        value *= w
        pull *= w
        m_rival &= w != 0.0  # a class of no weight adds nothing, also where its value is infinite
    return tl.where(m_rival, value, 0.0), tl.where(m_rival, pull, 0.0)


# All sums of a smoothed row, read block by block, and what follows from them. A class with p > 1/2 is set apart
# instead of the label. MOMENTS takes the power series; without them the sums take a pass of their own.
@triton.jit
def smooth_row_by_blocks(row, weight, y, z_y, taught, w, base, label_weight, head, n_inner, n_read, n_classes, stride,
                         k0, k1, k2, k3, KIND: tl.constexpr, TAIL: tl.constexpr, BLOCK: tl.constexpr,
                         VECTOR: tl.constexpr, ENDS: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr,
                         MOMENTS: tl.constexpr):
    pivot, z_pivot = y, z_y
    origin = tl.where((z_y > -INF) & (z_y < INF), z_y, 0.0)
    top, rival_sum, two, total = stream_rivals(
        row, pivot, origin, head, n_inner, n_read, stride, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, MOMENTS,
        MOMENTS and not SIXTEEN_BIT)
    gap, p, q, surprise, log_q, top_p, log_top_p = chances(z_y, top, rival_sum)
    if taught & (top_p > 0.5):
        pivot = stream_index(row, top, y, head, n_inner, n_read, stride, BLOCK, VECTOR, ENDS)
        z_pivot = top
        top, rival_sum, two, total = stream_rivals(
            row, pivot, origin, head, n_inner, n_read, stride, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, MOMENTS,
            MOMENTS and not SIXTEEN_BIT)
        gap, p, q, surprise, log_q, top_p, log_top_p = chances(z_pivot, top, rival_sum)
    own, own_of_label = base, base * w if WEIGHTED else base
    if WEIGHTED:
        own *= tl.load(weight + tl.where(taught, pivot, 0), mask=taught, other=0.0).to(tl.float32)
    if MOMENTS:
        count = n_classes - 1.0
        total -= tl.where(z_pivot > -INF, z_pivot - origin, 0.0) + count * (top - origin)
        values = base * closed_values(count, total, log_top_p)
        pulls = base * count
        if TAIL == LIKE_NORMAL:
            product, inverse, left_out = short_series(rival_sum, two, top_p, SIXTEEN_BIT)
            values += base * product
            pulls += base * inverse
            # Not enough for float32 when several rivals have much of their sum.
            if SIXTEEN_BIT == 0:  # noqa: SIM102 - the compiler asks this one, the device the next
                if base * left_out > 4e-7:
                    values, pulls = stream_sums(
                        row, weight, pivot, base, top, top_p, log_top_p, head, n_inner, n_read, stride, k0, k1, k2, k3,
                        KIND, BLOCK, VECTOR, ENDS, WEIGHTED, SIXTEEN_BIT)
    else:
        values, pulls = stream_sums(
            row, weight, pivot, base, top, top_p, log_top_p, head, n_inner, n_read, stride, k0, k1, k2, k3, KIND,
            BLOCK, VECTOR, ENDS, WEIGHTED, SIXTEEN_BIT)
    loss, factor, at_pivot, at_label = smooth_row(
        gap, p, q, surprise, log_q, top_p, log_top_p, z_y, top, rival_sum, values, pulls, own, own_of_label,
        label_weight, pivot == y, k0, k1, k2, k3, KIND, SIXTEEN_BIT)
    return pivot, z_pivot, top, rival_sum, top_p, log_top_p, loss, factor, at_pivot, at_label


# The gradient of a row, right but for the pivot and the label; REVERSE begins at its end, which was read last and may
# still be in the cache. SERIES takes 1 + p for 1 / (1 - p): enough for 16 bits and many classes.
@triton.jit
def smooth_gradient_by_blocks(
    row, out, weight, top, factor, top_p, log_top_p, base, taught, head, n_inner, n_classes, stride, grad_stride,
    k0, k1, k2, k3, KIND: tl.constexpr, TAIL: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
    ENDS: tl.constexpr, REVERSE: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, SERIES: tl.constexpr,
):
    o_b = offsets(BLOCK, VECTOR)
    inner, inner_out = inner_row(row, head, ENDS), inner_row(out, head, ENDS)
    n_read = tl.where(taught, n_inner, 0)
    n_blocks = tl.cdiv(n_inner, BLOCK)
    for i_block in tl.range(0, n_blocks, num_stages=1):
        o = (n_blocks - 1 - i_block if REVERSE else i_block) * BLOCK + o_b
        m_c = o < n_inner
        z = tl.load(inner + o.to(tl.int64) * stride, mask=o < n_read, other=-INF, eviction_policy="evict_first")
        slope = _slope(z, weight, o + head, m_c, top, factor, top_p, log_top_p, base, k0, k1, k2, k3, KIND, TAIL,
                       WEIGHTED, SIXTEEN_BIT, SERIES)
        tl.store(inner_out + o.to(tl.int64) * grad_stride, slope.to(out.dtype.element_ty), mask=m_c,
                 eviction_policy="evict_first")
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        z = tl.load(row + o_e, mask=m_e & taught, other=-INF)
        slope = _slope(z, weight, o_e, m_e, top, factor, top_p, log_top_p, base, k0, k1, k2, k3, KIND, TAIL, WEIGHTED,
                       SIXTEEN_BIT, SERIES)
        tl.store(out + o_e, slope.to(out.dtype.element_ty), mask=m_e)


@triton.jit
def _slope(z, weight, o_c, m_c, top, factor, top_p, log_top_p, base, k0, k1, k2, k3, KIND: tl.constexpr,
           TAIL: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, SERIES: tl.constexpr):
    z = z.to(tl.float32)
    if SERIES:
        return tl.exp2(shifted(z, top, SIXTEEN_BIT)) * (factor - base * top_p) - base
    else:
        if WEIGHTED:
            base = base * tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)
        return gradient(z, top, factor, top_p, log_top_p, base, k0, k1, k2, k3, KIND, TAIL, True, SIXTEEN_BIT)


# As streamed_kernel. Smoothing of a curve without a shortcut (MOMENTS off) takes a pass between the two.
@triton.jit(do_not_specialize=["n_rows", "ignore_index", "phase"])
def streamed_smooth_kernel(
    logits, target, weight, partial_weights, upstream, loss, shares, counter, grad, state, p_out, lse_out, argmax_out,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, ignore_index, phase, smoothing, label_part, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
    ENDS: tl.constexpr, MOMENTS: tl.constexpr, N_PARTIAL: tl.constexpr, WEIGHTED: tl.constexpr,
    SIXTEEN_BIT: tl.constexpr, GRAD: tl.constexpr, STATE: tl.constexpr, SUMS: tl.constexpr, STATS: tl.constexpr,
    UPSTREAM: tl.constexpr, INPLACE: tl.constexpr, COUNT: tl.constexpr, LAST: tl.constexpr,
):
    n_classes = class_units * UNIT
    stride_outer = tl.cast(outer_units, tl.int64) * UNIT
    grad_stride_outer = tl.cast(grad_outer_units, tl.int64) * UNIT
    denominator = divisor_of(partial_weights, shares, target, weight, n_rows, n_classes, ignore_index, N_PARTIAL, COUNT,
                             WEIGHTED)
    total_loss, total_weight = 0.0, 0.0
    for i in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        i_row = tl.cast(i, tl.int32)
        m_r = i_row < n_rows
        y, taught, w, fill = read_label(target, weight, i_row, m_r, n_classes, ignore_index, WEIGHTED)
        start = row_start(i_row, inner, stride_outer, stride_inner)
        row = logits + start
        # A row that teaches nothing is not read: its passes run over no classes.
        n_read = n_classes if STATS else tl.where(taught, n_classes, 0)
        head, n_inner = inner_part(start, phase, n_read, ENDS)
        z_y = tl.load(row + tl.where(taught, y, 0).to(tl.int64) * stride_class, mask=taught, other=-INF).to(tl.float32)
        base = tl.where(taught, smoothing / n_classes, 0.0)
        pivot, z_pivot, top, rival_sum, top_p, log_top_p, row_loss, factor, at_pivot, at_label = smooth_row_by_blocks(
            row, weight, y, z_y, taught, w, base, label_part * w, head, n_inner, n_read, n_classes, stride_class,
            k0, k1, k2, k3, KIND, TAIL, BLOCK, VECTOR, ENDS, WEIGHTED, SIXTEEN_BIT, MOMENTS)
        row_loss = tl.where(taught, row_loss, fill)
        factor = tl.where(taught, factor, fill)
        if SUMS:
            total_loss += row_loss
            total_weight += w
        else:
            tl.store(loss + i_row, row_loss)
        if STATE:
            store_state(state, i_row, m_r, n_rows, top, factor, at_pivot, pivot)
            store_smooth_state(state, i_row, m_r, n_rows, top_p, at_label, log_top_p)
        if STATS:
            best = tl.where(taught & (z_pivot > top), z_pivot, top)
            best = stream_index(row, best, -1, head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS)
            store_by_products(p_out, lse_out, argmax_out, i_row, m_r, taught, z_y, z_pivot, top, rival_sum, best)
        if GRAD:
            if N_PARTIAL or COUNT == EVERYONE or UPSTREAM:
                scale = 1.0 / denominator
                if UPSTREAM:
                    scale *= tl.load(upstream + i_row).to(tl.float32)
                factor = tl.where(taught, factor * scale, factor)
                at_pivot *= scale
                at_label *= scale
                base = tl.where(taught, base * scale, 0.0)
            out = grad + row_start(i_row, inner, grad_stride_outer, grad_stride_inner)
            if INPLACE:
                tl.debug_barrier()  # every thread has read the label's logit before any writes over it
            head, n_inner = inner_part(start, phase, n_classes, ENDS)
            smooth_gradient_by_blocks(
                row, out, weight, top, factor, top_p, log_top_p, base, taught, head, n_inner, n_classes, stride_class,
                grad_stride_class, k0, k1, k2, k3, KIND, TAIL, BLOCK, VECTOR, ENDS, True,
                WEIGHTED, SIXTEEN_BIT, MOMENTS and SIXTEEN_BIT and TAIL == LIKE_NORMAL)
            tl.debug_barrier()  # the row first, then the two numbers that are not of its pattern
            tl.store(out + pivot.to(tl.int64) * grad_stride_class, at_pivot.to(grad.dtype.element_ty), mask=taught)
            tl.store(out + y.to(tl.int64) * grad_stride_class, at_label.to(grad.dtype.element_ty), mask=taught)
    if SUMS:
        finish_mean(shares, counter, loss, state, n_rows, total_loss, total_weight, denominator, COUNT, N_PARTIAL,
                    7 if STATE else 0, LAST)
