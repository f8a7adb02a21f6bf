"""Loss and gradient of smoothed labels where a row of logits fits on chip."""

import triton
import triton.language as tl

from .curves import LIKE_CROSS_ENTROPY, LIKE_ITSELF, LIKE_NORMAL, chances, curve_at, curve_of_rival
from .finish import THE_FIRST, divisor_of, finish_mean, known_divisor
from .in_order import leave_count
from .maths import INF, LOG2E, LOWEST, inverse_of, log, row_start, weighted
from .rows import (
    closed_values,
    gradient,
    not_series,
    read_label,
    series_gradient,
    series_sums,
    store_by_products,
    store_smooth_state,
    store_state,
    top_rival,
)
from .streamed_smooth import smooth_gradient_by_blocks, smooth_row_by_blocks
from .tile import exponentials, first_column, load_tile, store_tile


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def _two(a, b, a_, b_):
    return a + a_, b + b_


@triton.jit
def _largest_and_sum(a, b, a_, b_):
    return tl.maximum(a, a_), b + b_


@triton.jit
def _five(a, b, c, d, e, a_, b_, c_, d_, e_):
    return a + a_, b + b_, c + c_, d + d_, e + e_


# Sums of several tiles along their rows. TOGETHER where several warps have a row, which wait for each other in every
# reduction. The interpreter takes one addition after the other there, slowly and with the rounding errors of that.
@triton.jit
def _sums_of_two(a, b, TOGETHER: tl.constexpr):
    if TOGETHER:
        return tl.reduce((a, b), 1, _two)
    else:
        return tl.sum(a, axis=1), tl.sum(b, axis=1)


@triton.jit
def _sums_of_five(a, b, c, d, e, TOGETHER: tl.constexpr):
    if TOGETHER:
        return tl.reduce((a, b, c, d, e), 1, _five)
    else:
        return tl.sum(a, axis=1), tl.sum(b, axis=1), tl.sum(c, axis=1), tl.sum(d, axis=1), tl.sum(e, axis=1)


@triton.jit
def _smoothed(rivals, e, top, total, z_y, y, weight, w, base_row, label_weight, o_c, m_c, n_classes, k0, k1,
              k2, k3, BLOCK: tl.constexpr, KIND: tl.constexpr, TAIL: tl.constexpr, WEIGHTED: tl.constexpr,
              SERIES: tl.constexpr, TOGETHER: tl.constexpr):
    """Smoothed rows, from the tile without their labels.

    The largest rival is set apart as the label is: only these two can have p > 1/2, and the sums over the others lose
    nothing. ``is_top`` says where the largest rivals stand, ``at_top`` their gradient, ``at_mistake`` that of one with
    p > 1/2. ``four`` (with SERIES) and ``b_inverse`` (without) are what the others' gradient can be made from.
    """
    base = base_row[:, None]
    own = base_row
    if WEIGHTED:
        base *= tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)
        own *= w
    m_rival = m_c & (o_c != y[:, None])
    count = n_classes - 1.0
    is_top = e == 1.0
    b_inverse = e
    if TAIL == LIKE_CROSS_ENTROPY and not WEIGHTED:  # pull / (1 - p) is 1, whatever p
        rival_sum = tl.sum(e, axis=1)
        gap, p, q, surprise, log_q, top_p, log_top_p = chances(z_y, top, rival_sum)
        values = base_row * closed_values(count, total, log_top_p)
        pulls = base_row * count
        edge, four, top_weight, top_pull, top_over = rival_sum, rival_sum, rival_sum, rival_sum, rival_sum
    else:
        low = tl.where(is_top, 0.0, e)
        if SERIES:
            square = low * low
            below, every, two, three, four = _sums_of_five(low, e, square, square * low, square * square, TOGETHER)
            # How many have e = 1: a whole number, and of 8192 classes the two sums are wrong by less than 0.1.
            n_top = tl.floor(every - below + 0.5)
        else:
            b_top = tl.where(is_top, base if WEIGHTED else 1.0, 0.0)
            below, n_top = _sums_of_two(low, b_top, TOGETHER)
            four = below
        top_weight = base_row * n_top
        if WEIGHTED:
            top_weight = n_top
            n_top = tl.sum(is_top.to(tl.float32), axis=1)
        rival_sum = below + n_top
        gap, p, q, surprise, log_q, top_p, log_top_p = chances(z_y, top, rival_sum)
        top_value, top_pull, top_over = top_rival(p, top_p, log_top_p, below, n_top, k0, k1, k2, k3, KIND)
        if WEIGHTED or TAIL == LIKE_ITSELF:
            b_value, b_pull = curve_of_rival((rivals - top[:, None]) * LOG2E, e, top_p[:, None],
                                             log_top_p[:, None], k0, k1, k2, k3, KIND)
            m_rival &= e < 1.0
            if WEIGHTED:
                m_rival &= base != 0.0  # a class of no weight adds nothing, also where its value is infinite
            values, pulls = _sums_of_two(
                tl.where(m_rival, base * b_value, 0.0), tl.where(m_rival, base * b_pull, 0.0), TOGETHER)
            values += weighted(top_weight, top_value)
        else:
            if SERIES:
                product, inverse = series_sums(count - n_top, below, two, three, four, top_p)
            else:
                # Columns past the last class, the label and its largest rival have low = 0 and so 1 - p = 1.
                b_q = 1.0 - low * top_p[:, None]
                b_inverse = inverse_of(b_q)
                product = log(tl.reduce(b_q, 1, _product))
                inverse = tl.sum(b_inverse, axis=1) - (BLOCK - (count - n_top))
            values = base_row * (closed_values(count, total, log_top_p) + product
                                 + tl.where(n_top > 0, n_top * (top_value + log_top_p), 0.0))
            pulls = base_row * inverse
        edge = top_p * pulls
        pulls += top_weight * top_over
    u = own + label_weight
    value, pull = curve_at(gap, p, q, surprise, log_q, k0, k1, k2, k3, KIND)
    row_loss = weighted(u, value) + values
    factor = tl.where(rival_sum == 0.0, 0.0, (q * pulls + u * pull) / rival_sum)
    at_label = p * pulls - u * pull
    # The largest rivals' own part of the pulls is left out: it would have to be subtracted again.
    edge += u * pull / rival_sum
    shared = top_p * top_over
    if WEIGHTED:  # a rival with p > 1/2 shares the top with none: see soft_rows.row_terms
        shared = tl.where(top_p < 0.6, shared, 0.0)
    at_top = edge[:, None] + (top_weight[:, None] - base) * shared[:, None] - base * top_pull[:, None]
    at_mistake = edge - top_weight * top_pull
    return rival_sum, top_p, log_top_p, base, row_loss, factor, at_label, is_top, at_top, at_mistake, four, b_inverse


# As resident_kernel.
@triton.jit(do_not_specialize=["n_rows", "ignore_index"])
def resident_smooth_kernel(
    logits, target, weight, partial_weights, upstream, loss, shares, counter, grad, state, p_out, lse_out, argmax_out,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, ignore_index, smoothing, label_part, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    PIECE: tl.constexpr, SKIP: tl.constexpr, TOGETHER: tl.constexpr, N_PARTIAL: tl.constexpr,
    WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, GRAD: tl.constexpr, STATE: tl.constexpr, SUMS: tl.constexpr,
    STATS: tl.constexpr, UPSTREAM: tl.constexpr, INPLACE: tl.constexpr, COUNT: tl.constexpr, LAST: tl.constexpr,
):
    SIMPLE: tl.constexpr = TAIL == LIKE_CROSS_ENTROPY and not WEIGHTED
    NORMAL: tl.constexpr = TAIL == LIKE_NORMAL and not WEIGHTED
    # A row that has a program to itself: sums of powers instead of one division per class.
    SERIES: tl.constexpr = NORMAL and ROWS == 1
    PART: tl.constexpr = 512 if BLOCK > 1024 else 256 if BLOCK > 256 else BLOCK
    VECTOR: tl.constexpr = 8 if SIXTEEN_BIT else 4
    n_classes = class_units * UNIT  # the product tells the compiler how far loads may be vectorised
    stride_outer = tl.cast(outer_units, tl.int64) * UNIT
    grad_stride_outer = tl.cast(grad_outer_units, tl.int64) * UNIT
    i_program = tl.program_id(0)
    if COUNT == THE_FIRST:
        i_program -= N_PARTIAL
        if i_program < 0:
            leave_count(shares, target, weight, n_rows, n_classes, ignore_index, N_PARTIAL, WEIGHTED)
            return
    denominator = divisor_of(partial_weights, shares, target, weight, n_rows, n_classes, ignore_index, N_PARTIAL, COUNT,
                             WEIGHTED)
    o_r = i_program * ROWS + tl.arange(0, ROWS)
    m_r = o_r < n_rows
    y, taught, w, fill = read_label(target, weight, o_r, m_r, n_classes, ignore_index, WEIGHTED)
    start = row_start(o_r, inner, stride_outer, stride_inner)
    z = load_tile(logits, start, taught if SKIP else m_r, n_classes, stride_class, -INF, PIECE, BLOCK)
    o_c = tl.arange(0, BLOCK)[None, :]
    m_c = o_c < n_classes
    z_y = tl.load(logits + start + tl.where(taught, y, 0).to(tl.int64) * stride_class, mask=taught,
                  other=-INF).to(tl.float32)
    pivot, z_pivot = y, z_y
    rivals = tl.where(o_c == y[:, None], -INF, z)
    if SIMPLE or NORMAL:
        # Distances from the label: what all logits have in common would cost the sum digits.
        origin = tl.where((z_y > -INF) & (z_y < INF), z_y, 0.0)
        distance = tl.where(m_c, z - origin[:, None], 0.0)
        if TOGETHER:
            top, total = tl.reduce((rivals, distance), 1, _largest_and_sum)
            top = tl.maximum(top, LOWEST)
            e = tl.exp2((rivals - top[:, None]) * LOG2E)
        else:
            top, e = exponentials(rivals)
            total = tl.sum(distance, axis=1)
        total -= (n_classes - 1.0) * (top - origin)
    else:
        top, e = exponentials(rivals)
        total = top  # stands for nothing
    base_row = tl.where(taught, smoothing / n_classes, 0.0)
    label_weight = label_part * w
    rival_sum, top_p, log_top_p, base, row_loss, factor, at_label, is_top, at_top, at_mistake, four, b_inverse = \
        _smoothed(rivals, e, top, total, z_y, y, weight, w, base_row, label_weight, o_c, m_c, n_classes, k0, k1, k2,
                  k3, BLOCK, KIND, TAIL, WEIGHTED, SERIES, TOGETHER)
    denominator = known_divisor(denominator, shares, COUNT, GRAD)
    scale = tl.zeros([ROWS], tl.float32) + 1.0 / denominator
    if UPSTREAM:
        scale *= tl.load(upstream + o_r, mask=m_r, other=0.0).to(tl.float32)
    at_pivot = at_label
    if STATE and not SIMPLE:
        mistaken = taught & (top_p > 0.5)
        pivot = tl.where(mistaken, first_column(rivals, o_c, top, n_classes), y)
        at_pivot = tl.where(mistaken, at_mistake, at_label)

    grad_start = row_start(o_r, inner, grad_stride_outer, grad_stride_inner)
    if SERIES:
        # Where several rivals have so much of the probability that the series is not exact, the row is read again in
        # small blocks: rare, and with few registers, which would be taken from everyone.
        crowded = tl.max((taught & not_series(four, top_p, base_row)).to(tl.int32), axis=0) > 0
        if crowded:
            row, i_y, i_base = logits + tl.sum(start, axis=0), tl.sum(y, axis=0), tl.sum(base_row, axis=0)
            i_pivot, i_z, i_top, i_rival_sum, i_top_p, i_log_top_p, i_loss, i_factor, i_at_pivot, i_at_label = \
                smooth_row_by_blocks(
                    row, weight, i_y, tl.sum(z_y, axis=0), i_y >= 0, tl.sum(w, axis=0), i_base,
                    tl.sum(label_weight, axis=0), 0, n_classes, n_classes, n_classes, stride_class, k0, k1, k2, k3,
                    KIND, TAIL, PART, VECTOR, 0, WEIGHTED, SIXTEEN_BIT, False)
            if GRAD:
                if INPLACE:
                    tl.debug_barrier()
                i_scale = tl.sum(scale, axis=0)
                smooth_gradient_by_blocks(
                    row, grad + tl.sum(grad_start, axis=0), weight,
                    i_top, i_factor * i_scale, i_top_p, i_log_top_p, i_base * i_scale, True, 0, n_classes, n_classes,
                    stride_class, grad_stride_class, k0, k1, k2, k3, KIND, TAIL, PART, VECTOR, 0, False, WEIGHTED,
                    SIXTEEN_BIT, False)
            one = tl.zeros([ROWS], tl.float32)
            pivot, z_pivot = one.to(tl.int32) + i_pivot, one + i_z
            top, rival_sum, top_p, row_loss = one + i_top, one + i_rival_sum, one + i_top_p, one + i_loss
            factor, at_pivot, at_label = one + i_factor, one + i_at_pivot, one + i_at_label
            log_top_p = one + i_log_top_p
        elif GRAD:
            # With SKIP a row that teaches nothing was not read: e is 0, and the slope is what the row is filled with.
            row_factor, row_base = tl.where(taught, factor * scale, fill), tl.where(taught, base_row * scale, 0.0)
            slope = series_gradient(e, row_factor[:, None], top_p[:, None], row_base[:, None], SIXTEEN_BIT)
            slope = tl.where(is_top, at_top * scale[:, None], slope)
            if not SKIP:
                slope = tl.where(taught[:, None], slope, fill[:, None])
            if INPLACE:
                tl.debug_barrier()  # every thread has read the label's logit before any writes over it
            store_tile(grad, grad_start, m_r, n_classes, grad_stride_class, slope, BLOCK)

    row_loss = tl.where(taught, row_loss, fill)
    factor = tl.where(taught, factor, fill)
    if not SUMS:
        tl.store(loss + o_r, row_loss, mask=m_r)
    if STATE:
        store_state(state, o_r, m_r, n_rows, top, factor, at_pivot, pivot)
        store_smooth_state(state, o_r, m_r, n_rows, tl.where(taught, top_p, 0.0), at_label,
                           tl.where(taught, log_top_p, 0.0))
    if STATS:
        best = first_column(z, o_c, tl.where(z_pivot > top, z_pivot, top), n_classes)
        store_by_products(p_out, lse_out, argmax_out, o_r, m_r, taught, z_y, z_pivot, top, rival_sum, best)
    if GRAD:
        if not SERIES:
            factor = tl.where(taught, factor * scale, factor)
            base *= scale[:, None]
            if NORMAL:
                slope = e * factor[:, None] - base * b_inverse
            else:
                slope = gradient(rivals, top[:, None], factor[:, None], top_p[:, None], log_top_p[:, None], base,
                                 k0, k1, k2, k3, KIND, TAIL, True, False)
            if not SIMPLE:
                slope = tl.where(is_top, at_top * scale[:, None], slope)
            slope = tl.where(taught[:, None], slope, fill[:, None])
            if INPLACE:
                tl.debug_barrier()  # every thread has read the label's logit before any writes over it
            store_tile(grad, grad_start, m_r, n_classes, grad_stride_class, slope, BLOCK)
        tl.debug_barrier()  # the tile first, then the two numbers that are not of its pattern
        out = grad + grad_start
        tl.store(out + pivot.to(tl.int64) * grad_stride_class, (at_pivot * scale).to(grad.dtype.element_ty),
                 mask=taught)
        tl.store(out + y.to(tl.int64) * grad_stride_class, (at_label * scale).to(grad.dtype.element_ty), mask=taught)
    if SUMS:
        finish_mean(shares, counter, loss, state, n_rows, tl.sum(tl.where(m_r, row_loss, 0.0), axis=0),
                    tl.sum(w, axis=0), denominator, COUNT, N_PARTIAL,
                    7 if STATE else 0, LAST)
