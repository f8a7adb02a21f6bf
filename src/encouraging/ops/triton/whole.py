"""Loss and gradient where a row of logits fits on chip: one read of the logits, one write of the gradient."""

import triton
import triton.language as tl

from .curves import LIKE_CROSS_ENTROPY, LIKE_ITSELF, LIKE_NORMAL, chances, curve_at, curve_of_rival
from .maths import INF, LOG2E, LOWEST, inverse_of, log, row_start
from .rows import (
    closed_values,
    gradient,
    logsumexp_with,
    not_series,
    plain_row,
    read_label,
    series_gradient,
    series_sums,
    top_rival,
)
from .stream import gradient_by_blocks, smooth_row_by_blocks


@triton.jit
def _product(a, b):
    return a * b


@triton.jit
def _two(a, b, a_, b_):
    return a + a_, b + b_


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
def _first(z, o_c, value, n_classes):
    """The first column that holds this value (the last column where a NaN hides it)."""
    return tl.minimum(tl.min(tl.where(z == value[:, None], o_c, n_classes), axis=1), n_classes - 1)


@triton.jit
def _powers(rest):
    """The largest of every row, and exp of every element's distance to it: exactly 1 for the largest."""
    top = tl.maximum(tl.max(rest, axis=1), LOWEST)
    return top, tl.exp2((rest - top[:, None]) * LOG2E)


# A tile put together from pieces of PIECE columns side by side. The compiler lays a piece out over the threads so that
# each has one vector of it, and of the tile then many columns of few rows: the sums of a row take few exchanges, and
# its own mathematics is done by the threads of that row alone.
@triton.jit
def _load_in_pieces(row, first, m_r, n_classes, stride_class, PIECE: tl.constexpr, BLOCK: tl.constexpr):
    if PIECE >= BLOCK:
        o_c = first + tl.arange(0, BLOCK)[None, :]
        return tl.load(row + o_c.to(tl.int64) * stride_class, mask=m_r[:, None] & (o_c < n_classes), other=-INF)
    else:
        HALF: tl.constexpr = BLOCK // 2
        left = _load_in_pieces(row, first, m_r, n_classes, stride_class, PIECE, HALF)
        right = _load_in_pieces(row, first + HALF, m_r, n_classes, stride_class, PIECE, HALF)
        return tl.reshape(tl.permute(tl.join(left, right), (0, 2, 1)), (left.shape[0], BLOCK))


@triton.jit
def _smoothed(rest, e, top, total, z_y, y, weight, w, base_row, label_weight, o_c, n_classes, k0, k1, k2, k3,
              BLOCK: tl.constexpr, KIND: tl.constexpr, TAIL: tl.constexpr, WEIGHTED: tl.constexpr, SERIES: tl.constexpr,
              TOGETHER: tl.constexpr):
    """Smoothed rows, from the tile without their labels.

    The largest rival is set apart as the label is: only these two can have p > 1/2, and the sums over the others lose
    nothing. ``is_top`` says where the largest rivals stand, ``at_top`` their gradient, ``at_mistake`` that of one with
    p > 1/2. ``four`` (with SERIES) and ``b_inverse`` (without) are what the others' gradient can be made from.
    """
    base = base_row[:, None]
    own = base_row
    if WEIGHTED:
        base *= tl.load(weight + o_c, mask=o_c < n_classes, other=0.0).to(tl.float32)
        own *= w
    m_rival = (o_c < n_classes) & (o_c != y[:, None])
    count = n_classes - 1.0
    is_top = e == 1.0
    b_inverse = e
    if TAIL == LIKE_CROSS_ENTROPY and not WEIGHTED:  # pull / (1 - p) is 1, whatever p
        mass = tl.sum(e, axis=1)
        gap, p, q, surprise, log_q, share, log_share = chances(z_y, top, mass)
        values = base_row * closed_values(count, total, log_share)
        pulls = base_row * count
        edge, four, top_weight, top_pull, top_over = mass, mass, mass, mass, mass
    else:
        low = tl.where(is_top, 0.0, e)
        b_top = tl.where(is_top, base if WEIGHTED else 1.0, 0.0)
        if SERIES:
            square = low * low
            below, n_top, two, three, four = _sums_of_five(
                low, b_top, square, square * low, square * square, TOGETHER)
        else:
            below, n_top = _sums_of_two(low, b_top, TOGETHER)
            four = below
        top_weight = base_row * n_top
        if WEIGHTED:
            top_weight = n_top
            n_top = tl.sum(is_top.to(tl.float32), axis=1)
        mass = below + n_top
        gap, p, q, surprise, log_q, share, log_share = chances(z_y, top, mass)
        top_value, top_pull, top_over = top_rival(p, share, log_share, below, n_top, k0, k1, k2, k3, KIND)
        if WEIGHTED or TAIL == LIKE_ITSELF:
            b_value, b_pull = curve_of_rival((rest - top[:, None]) * LOG2E, share[:, None], log_share[:, None],
                                             k0, k1, k2, k3, KIND)
            m_rival &= e < 1.0
            if WEIGHTED:
                m_rival &= base != 0.0  # a class of no weight adds nothing, also where its value is infinite
            values, pulls = _sums_of_two(
                tl.where(m_rival, base * b_value, 0.0), tl.where(m_rival, base * b_pull, 0.0), TOGETHER)
            values += top_weight * top_value
        else:
            if SERIES:
                product, inverse = series_sums(count - n_top, below, two, three, four, share)
            else:
                # Columns that are none, the label and its largest rival have low = 0 and so 1 - p = 1.
                b_q = 1.0 - low * share[:, None]
                b_inverse = inverse_of(b_q)
                product = log(tl.reduce(b_q, 1, _product))
                inverse = tl.sum(b_inverse, axis=1) - (BLOCK - (count - n_top))
            values = base_row * (closed_values(count, total, log_share) + product
                                 + tl.where(n_top > 0, n_top * (top_value + log_share), 0.0))
            pulls = base_row * inverse
        edge = share * pulls
        pulls += top_weight * top_over
    u = own + label_weight
    value, pull = curve_at(gap, p, q, surprise, log_q, k0, k1, k2, k3, KIND)
    row_loss = u * value + values
    factor = tl.where(mass == 0.0, 0.0, (q * pulls + u * pull) / mass)
    at_label = p * pulls - u * pull
    # Without their own share of the pulls, from which it would have to be taken again.
    edge += u * pull / mass
    at_top = edge[:, None] + (top_weight[:, None] - base) * (share * top_over)[:, None] - base * top_pull[:, None]
    at_mistake = edge - top_weight * top_pull
    return mass, share, log_share, base, row_loss, factor, at_label, is_top, at_top, at_mistake, four, b_inverse


# A program takes tiles of ROWS whole rows, one tile or, in a persistent grid, every n-th. It keeps the tile in
# registers between the sums and the gradient; with STAGES > 1 the next tile is on its way meanwhile. With SKIP it does
# not read rows that teach nothing, for which it must know the labels first. It writes the loss, a number a row or
# (SUMS) one a program, and on request the gradient, the state from which it can be made later, and the by-products.
@triton.jit(do_not_specialize=["n_rows", "ignore_index"])
def whole_kernel(
    logits, target, weight, shares, upstream, loss, grad, state, p_out, lse_out, argmax_out,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class,
    ignore_index, smoothing, kept, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    PERSISTENT: tl.constexpr, PIECE: tl.constexpr, STAGES: tl.constexpr, SKIP: tl.constexpr, TOGETHER: tl.constexpr,
    N_SHARES: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTH: tl.constexpr, HALF: tl.constexpr, GRAD: tl.constexpr,
    STATE: tl.constexpr, SUMS: tl.constexpr, STATS: tl.constexpr, UPSTREAM: tl.constexpr, INPLACE: tl.constexpr,
):
    SIMPLE: tl.constexpr = TAIL == LIKE_CROSS_ENTROPY and not WEIGHTED
    NORMAL: tl.constexpr = TAIL == LIKE_NORMAL and not WEIGHTED
    CLOSED: tl.constexpr = SIMPLE or NORMAL
    # Smoothing of a row that has a program to itself: sums of powers instead of a division a class.
    SERIES: tl.constexpr = SMOOTH and NORMAL and ROWS == 1 and STAGES == 1
    PART: tl.constexpr = 512 if BLOCK > 1024 else 256 if BLOCK > 256 else BLOCK
    VECTOR: tl.constexpr = 8 if HALF else 4
    n_classes = class_units * UNIT  # the product tells the compiler how far loads may be vectorised
    stride_outer = tl.cast(outer_units, tl.int64) * UNIT
    grad_stride_outer = tl.cast(grad_outer_units, tl.int64) * UNIT
    denominator = 1.0
    if N_SHARES:
        denominator = tl.sum(tl.load(shares + tl.arange(0, N_SHARES)), axis=0)
    o_c = tl.arange(0, BLOCK)[None, :]
    b_sum = tl.zeros([ROWS], tl.float32)
    # A loop of one turn is none, and frees the registers that a loop would keep its constants in.
    i_program = tl.program_id(0)
    end = tl.cdiv(n_rows, ROWS) if PERSISTENT else i_program + 1
    step = tl.num_programs(0) if PERSISTENT else 1
    for i_tile in tl.range(i_program, end, step, num_stages=STAGES):
        o_r = i_tile * ROWS + tl.arange(0, ROWS)
        m_r = o_r < n_rows
        y, taught, w, fill = read_label(target, weight, o_r, m_r, n_classes, ignore_index, WEIGHTED)
        m_read = taught if SKIP else m_r
        start = row_start(o_r, inner, stride_outer, stride_inner)
        z = _load_in_pieces(logits + start[:, None], 0, m_read, n_classes, stride_class, PIECE, BLOCK).to(tl.float32)
        at_y = start + tl.where(taught, y, 0).to(tl.int64) * stride_class
        z_y = tl.load(logits + at_y, mask=taught, other=-INF).to(tl.float32)
        pivot, z_pivot = y, z_y
        if SMOOTH and CLOSED:
            # Distances from the label: what all logits have in common would cost the sum digits.
            origin = tl.where((z_y > -INF) & (z_y < INF), z_y, 0.0)
            total = tl.sum(tl.where(o_c < n_classes, z - origin[:, None], 0.0), axis=1)
        rest = tl.where(o_c == y[:, None], -INF, z)
        top, e = _powers(rest)
        scale = tl.zeros([ROWS], tl.float32) + 1.0 / denominator
        if UPSTREAM:
            scale *= tl.load(upstream + o_r, mask=m_r, other=0.0).to(tl.float32)
        base_row = tl.where(taught, smoothing / n_classes, 0.0)
        label_weight = kept * w
        if SMOOTH:
            if CLOSED:
                total -= (n_classes - 1.0) * (top - origin)
            else:
                total = top  # stands for nothing
            mass, share, log_share, base, row_loss, factor, at_label, is_top, at_top, at_mistake, four, b_inverse = \
                _smoothed(rest, e, top, total, z_y, y, weight, w, base_row, label_weight, o_c, n_classes, k0, k1, k2,
                          k3, BLOCK, KIND, TAIL, WEIGHTED, SERIES, TOGETHER)
            at_pivot = at_label
            if STATE and not SIMPLE:
                mistaken = taught & (share > 0.5)
                pivot = tl.where(mistaken, _first(rest, o_c, top, n_classes), y)
                at_pivot = tl.where(mistaken, at_mistake, at_label)
        else:
            mass = tl.sum(e, axis=1)
            row_loss, factor, at_pivot = plain_row(z_y, top, mass, w, k0, k1, k2, k3, KIND)
            share, log_share, at_label, base = mass, mass, at_pivot, mass[:, None]

        if SERIES:
            # Where several rivals have so much of the mass that the series is not exact, the row is read again in small
            # blocks: rare, and with few registers, which would be taken from everyone.
            crowded = tl.max((taught & not_series(four, share, base_row)).to(tl.int32), axis=0) > 0
            if crowded:
                row, i_y, i_base = logits + tl.sum(start, axis=0), tl.sum(y, axis=0), tl.sum(base_row, axis=0)
                i_pivot, i_z, i_top, i_mass, i_share, i_log_share, i_loss, i_factor, i_at_pivot, i_at_label = \
                    smooth_row_by_blocks(
                        row, weight, i_y, tl.sum(z_y, axis=0), i_y >= 0, tl.sum(w, axis=0), i_base,
                        tl.sum(label_weight, axis=0), n_classes, n_classes, stride_class, k0, k1, k2, k3, KIND, TAIL,
                        PART, VECTOR, 1, WEIGHTED, HALF, False)
                if GRAD:
                    if INPLACE:
                        tl.debug_barrier()
                    i_scale = tl.sum(scale, axis=0)
                    gradient_by_blocks(
                        row, grad + tl.sum(row_start(o_r, inner, grad_stride_outer, grad_stride_inner), axis=0), weight,
                        i_top, i_factor * i_scale, i_share, i_log_share, i_base * i_scale, n_classes, n_classes,
                        stride_class, grad_stride_class, k0, k1, k2, k3, KIND, TAIL, PART, VECTOR, 1, False, WEIGHTED,
                        SMOOTH, HALF, False)
                one = tl.zeros([ROWS], tl.float32)
                pivot, z_pivot = one.to(tl.int32) + i_pivot, one + i_z
                top, mass, share, row_loss = one + i_top, one + i_mass, one + i_share, one + i_loss
                factor, at_pivot, at_label = one + i_factor, one + i_at_pivot, one + i_at_label
                log_share = one + i_log_share
            elif GRAD:
                slope = series_gradient(e, (factor * scale)[:, None], share[:, None], (base_row * scale)[:, None], HALF)
                slope = tl.where(is_top, at_top * scale[:, None], slope)
                slope = tl.where(taught[:, None], slope, fill[:, None])
                if INPLACE:
                    tl.debug_barrier()  # every thread has read the label's logit before any writes over it
                out = grad + row_start(o_r, inner, grad_stride_outer, grad_stride_inner)
                tl.store(out[:, None] + o_c.to(tl.int64) * grad_stride_class, slope.to(grad.dtype.element_ty),
                         mask=m_r[:, None] & (o_c < n_classes))

        row_loss = tl.where(taught, row_loss, fill)
        factor = tl.where(taught, factor, fill)
        if SUMS:
            b_sum += tl.where(m_r, row_loss, 0.0)
        else:
            tl.store(loss + o_r, row_loss, mask=m_r)
        if STATE:
            tl.store(state + o_r, top, mask=m_r)
            tl.store(state + n_rows + o_r, factor, mask=m_r)
            tl.store(state + 2 * n_rows + o_r, at_pivot, mask=m_r)
            tl.store(state + 3 * n_rows + o_r, pivot.to(tl.float32, bitcast=True), mask=m_r)
            if SMOOTH:
                tl.store(state + 4 * n_rows + o_r, tl.where(taught, share, 0.0), mask=m_r)
                tl.store(state + 5 * n_rows + o_r, at_label, mask=m_r)
                tl.store(state + 6 * n_rows + o_r, tl.where(taught, log_share, 0.0), mask=m_r)
        if STATS:
            lse = logsumexp_with(z_pivot, top, mass)
            tl.store(lse_out + o_r, lse, mask=m_r)
            tl.store(p_out + o_r, tl.where(taught, tl.exp(z_y - lse), float("nan")), mask=m_r)
            best = tl.where(z_pivot > top, z_pivot, top)
            tl.store(argmax_out + o_r, _first(z, o_c, best, n_classes).to(tl.int64), mask=m_r)
        if GRAD:
            if N_SHARES or UPSTREAM:
                factor = tl.where(taught, factor * scale, factor)
                at_pivot *= scale
                at_label *= scale
            out = grad + row_start(o_r, inner, grad_stride_outer, grad_stride_inner)
            if not SERIES:
                if N_SHARES or UPSTREAM:
                    base *= scale[:, None]
                if SMOOTH and NORMAL:
                    slope = e * factor[:, None] - base * b_inverse
                else:
                    slope = gradient(rest, top[:, None], factor[:, None], share[:, None], log_share[:, None], base,
                                     k0, k1, k2, k3, KIND, TAIL, SMOOTH, False)
                if SMOOTH and not SIMPLE:
                    slope = tl.where(is_top, at_top * scale[:, None], slope)
                if not SKIP or (SMOOTH and (N_SHARES or UPSTREAM)):
                    slope = tl.where(taught[:, None], slope, fill[:, None])
                if STAGES > 1:  # a barrier would keep the next tile from being on its way
                    slope = tl.where(o_c == y[:, None], at_label[:, None], slope)
                    slope = tl.where(o_c == pivot[:, None], at_pivot[:, None], slope)
                if INPLACE:
                    tl.debug_barrier()  # every thread has read the label's logit before any writes over it
                tl.store(out[:, None] + o_c.to(tl.int64) * grad_stride_class, slope.to(grad.dtype.element_ty),
                         mask=m_r[:, None] & (o_c < n_classes))
            if STAGES == 1:
                tl.debug_barrier()  # the tile first, then the two numbers that are not of its pattern
                tl.store(out + pivot.to(tl.int64) * grad_stride_class, at_pivot.to(grad.dtype.element_ty), mask=taught)
                if SMOOTH:
                    tl.store(out + y.to(tl.int64) * grad_stride_class, at_label.to(grad.dtype.element_ty), mask=taught)
    if SUMS:
        tl.store(loss + i_program, tl.sum(b_sum, axis=0))
