"""Loss and gradient where a row of logits fits on chip: one read of the logits, one write of the gradient."""

import triton
import triton.language as tl

from .curves import LIKE_ITSELF, LIKE_NORMAL, chances, curve_of_rival
from .maths import INF, LOWEST, inverse_of, log, row_start, shifted
from .rows import (
    gradient,
    logsumexp_with,
    not_series,
    plain_row,
    read_label,
    series_gradient,
    series_sums,
    smooth_row,
    tail_sums,
)
from .stream import gradient_by_blocks, smooth_row_by_blocks


# Two reductions at once: each alone would wait for all warps of the row.
@triton.jit
def _sums(left_a, right_a, left_b, right_b):
    return left_a + left_b, right_a + right_b


@triton.jit
def _product_and_sum(left_a, right_a, left_b, right_b):
    return left_a * left_b, right_a + right_b


@triton.jit
def _without(z, o_c, pivot):
    return tl.where(o_c == pivot[:, None], -INF, z)


@triton.jit
def _swap(rest, o_c, y, z_y, pivot):
    """The label back in, another pivot out."""
    return _without(tl.where(o_c == y[:, None], z_y[:, None], rest), o_c, pivot)


@triton.jit
def _first(z, o_c, value, n_classes):
    """The first column that holds this value (the last column where a NaN hides it)."""
    return tl.minimum(tl.min(tl.where(z == value[:, None], o_c, n_classes), axis=1), n_classes - 1)


@triton.jit
def _mass(rest, HALF: tl.constexpr):
    top = tl.maximum(tl.max(rest, axis=1), LOWEST)
    return top, tl.sum(tl.exp2(shifted(rest, top[:, None], HALF)), axis=1)


@triton.jit
def _moments(a, b, c, d, e, a_, b_, c_, d_, e_):
    return a + a_, b + b_, c + c_, d + d_, e + e_


@triton.jit
def _smoothed(rest, z_y, y, taught, weight, w, base_row, label_weight, o_c, n_classes, k0, k1, k2, k3,
              BLOCK: tl.constexpr, KIND: tl.constexpr, TAIL: tl.constexpr, WEIGHTED: tl.constexpr, HALF: tl.constexpr):
    """Smoothed rows of any kind from the tile without the labels: a class with p > 1/2 is set apart in a label's stead,
    and every class has its own logarithm and its own division."""
    top = tl.maximum(tl.max(rest, axis=1), LOWEST)
    b_rest = tl.where((o_c < n_classes) & (o_c != y[:, None]), rest, 0.0)
    mass, total = tl.reduce((tl.exp2(shifted(rest, top[:, None], HALF)), b_rest), 1, _sums)
    pivot, z_pivot = y, z_y
    gap, p, q, surprise, log_q, share, log_share = chances(z_y, top, mass)
    mistaken = taught & (share > 0.5)
    if tl.max(mistaken.to(tl.int32), axis=0) > 0:
        pivot = tl.where(mistaken, _first(rest, o_c, top, n_classes), y)
        z_pivot = tl.where(mistaken, top, z_y)
        total += tl.where(mistaken, z_y - z_pivot, 0.0)
        top, mass = _mass(_swap(rest, o_c, y, z_y, pivot), HALF)
        gap, p, q, surprise, log_q, share, log_share = chances(z_pivot, top, mass)
    own, own_of_label = base_row, base_row
    if WEIGHTED:
        base = base_row[:, None] * tl.load(weight + o_c, mask=o_c < n_classes, other=0.0).to(tl.float32)
        own *= tl.load(weight + tl.where(taught, pivot, 0), mask=taught, other=0.0).to(tl.float32)
        own_of_label *= w
    else:
        base = base_row[:, None]
    if WEIGHTED or TAIL == LIKE_ITSELF:
        # Made again rather than carried through the branch: a tile of registers is dearer than its arithmetic.
        rest = _swap(rest, o_c, y, z_y, pivot)
        b_value, b_pull = curve_of_rival(shifted(rest, top[:, None], HALF), share[:, None], log_share[:, None], k0, k1,
                                         k2, k3, KIND)
        m_rival = (o_c < n_classes) & (o_c != pivot[:, None])
        values = tl.sum(tl.where(m_rival, base * b_value, 0.0), axis=1)
        pulls = tl.sum(tl.where(m_rival, base * b_pull, 0.0), axis=1)
    else:
        # 1 for columns that are none, for the pivot and for the label, which has a factor of its own where it is a
        # rival: cheaper than putting it back into the tile.
        b_q = 1.0 - tl.exp2(shifted(rest, top[:, None], HALF)) * share[:, None]
        b_inverse = tl.where(o_c == pivot[:, None], 1.0, inverse_of(b_q))
        b_q = tl.where(o_c == pivot[:, None], 1.0, b_q)
        q_y = tl.where(pivot == y, 1.0, 1.0 - tl.exp2(shifted(z_y, top, HALF)) * share)
        product, inverse = tl.reduce((b_q, b_inverse), 1, _product_and_sum)
        inverse = (inverse - (BLOCK + 2.0 - n_classes)) + inverse_of(q_y)
        values, pulls = tail_sums(n_classes - 1.0, total, log(product * q_y), inverse, share, log_share, top, TAIL)
        values *= base_row
        pulls *= base_row
    row_loss, factor, at_pivot, at_label = smooth_row(
        gap, p, q, surprise, log_q, share, log_share, z_y, top, mass, values, pulls, own, own_of_label, label_weight,
        pivot == y, k0, k1, k2, k3, KIND, HALF)
    return rest, pivot, z_pivot, top, mass, share, log_share, base, row_loss, factor, at_pivot, at_label


# A program takes tiles of ROWS whole rows, one tile or, in a persistent grid, every n-th. It keeps the tile in
# registers between the sums and the gradient; with STAGES > 1 the next tile is on its way meanwhile. With SKIP it does
# not read rows that teach nothing, for which it must know the labels first. It writes the loss, a number a row or
# (SUMS) one a program, and on request the gradient, the state from which it can be made later, and the by-products.
@triton.jit(do_not_specialize=["n_rows", "ignore_index"])
def whole_kernel(
    logits, target, weight, shares, upstream, loss, grad, state, p_out, lse_out, argmax_out,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class,
    ignore_index, smoothing, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    PERSISTENT: tl.constexpr, STAGES: tl.constexpr, SKIP: tl.constexpr, N_SHARES: tl.constexpr,
    WEIGHTED: tl.constexpr, SMOOTH: tl.constexpr, HALF: tl.constexpr, GRAD: tl.constexpr, STATE: tl.constexpr,
    SUMS: tl.constexpr, STATS: tl.constexpr, UPSTREAM: tl.constexpr, INPLACE: tl.constexpr,
):
    # Smoothing of a row that has a program to itself: sums of powers instead of a logarithm and a division a class.
    SERIES: tl.constexpr = SMOOTH and (not WEIGHTED) and (TAIL != LIKE_ITSELF) and ROWS == 1 and STAGES == 1
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
        o_z = start[:, None] + o_c.to(tl.int64) * stride_class
        z = tl.load(logits + o_z, mask=m_read[:, None] & (o_c < n_classes), other=-INF).to(tl.float32)
        at_y = start + tl.where(taught, y, 0).to(tl.int64) * stride_class
        z_y = tl.load(logits + at_y, mask=taught, other=-INF).to(tl.float32)
        pivot, z_pivot = y, z_y
        rest = _without(z, o_c, pivot)
        scale = tl.zeros([ROWS], tl.float32) + 1.0 / denominator
        if UPSTREAM:
            scale *= tl.load(upstream + o_r, mask=m_r, other=0.0).to(tl.float32)
        base_row = tl.where(taught, smoothing / n_classes, 0.0)
        label_weight = (1.0 - smoothing) * w
        if SERIES:
            top = tl.maximum(tl.max(rest, axis=1), LOWEST)
            e = tl.exp2(shifted(rest, top[:, None], HALF))
            square = e * e
            b_rest = tl.where((o_c < n_classes) & (o_c != y[:, None]), rest, 0.0)
            mass, total, two, three, four = tl.reduce((e, b_rest, square, square * e, square * square), 1, _moments)
            gap, p, q, surprise, log_q, share, log_share = chances(z_y, top, mass)
            values, pulls = series_sums(n_classes - 1.0, total, two, three, four, q, share, log_share, top, TAIL)
            row_loss, factor, at_pivot, at_label = smooth_row(
                gap, p, q, surprise, log_q, share, log_share, z_y, top, mass, base_row * values, base_row * pulls,
                base_row, base_row, label_weight, y == y, k0, k1, k2, k3, KIND, HALF)
            # Where another class has so much of the mass that the series is not exact, the row is read again in small
            # blocks: rare, and with few registers, which would be taken from everyone.
            crowded = taught & not_series(share, base_row) & (TAIL == LIKE_NORMAL)
            if tl.max(crowded.to(tl.int32), axis=0) > 0:
                row, i_y, base = logits + tl.sum(start, axis=0), tl.sum(y, axis=0), tl.sum(base_row, axis=0)
                i_pivot, i_z, i_top, i_mass, i_share, i_log_share, i_loss, i_factor, i_at_pivot, i_at_label = \
                    smooth_row_by_blocks(
                        row, weight, i_y, tl.sum(z_y, axis=0), i_y >= 0, tl.sum(w, axis=0), base,
                        tl.sum(label_weight, axis=0), n_classes, n_classes, stride_class, k0, k1, k2, k3, KIND, TAIL,
                        PART, VECTOR, 1, WEIGHTED, HALF, False)
                if GRAD:
                    if INPLACE:
                        tl.debug_barrier()
                    i_scale = tl.sum(scale, axis=0)
                    gradient_by_blocks(
                        row, grad + tl.sum(row_start(o_r, inner, grad_stride_outer, grad_stride_inner), axis=0), weight,
                        i_top, i_factor * i_scale, i_share, i_log_share, base * i_scale, n_classes, n_classes,
                        stride_class, grad_stride_class, k0, k1, k2, k3, KIND, TAIL, PART, VECTOR, 1, False, WEIGHTED,
                        SMOOTH, HALF, False)
                one = tl.zeros([ROWS], tl.float32)
                pivot, z_pivot = one.to(tl.int32) + i_pivot, one + i_z
                top, mass, share, row_loss = one + i_top, one + i_mass, one + i_share, one + i_loss
                factor, at_pivot, at_label = one + i_factor, one + i_at_pivot, one + i_at_label
            elif GRAD:
                slope = series_gradient(e, (factor * scale)[:, None], share[:, None], (base_row * scale)[:, None], TAIL,
                                        HALF)
                slope = tl.where(taught[:, None], slope, fill[:, None])
                if INPLACE:
                    tl.debug_barrier()  # every thread has read the label's logit before any writes over it
                out = grad + row_start(o_r, inner, grad_stride_outer, grad_stride_inner)
                tl.store(out[:, None] + o_c.to(tl.int64) * grad_stride_class, slope.to(grad.dtype.element_ty),
                         mask=m_r[:, None] & (o_c < n_classes))
        elif SMOOTH:
            rest, pivot, z_pivot, top, mass, share, log_share, base, row_loss, factor, at_pivot, at_label = _smoothed(
                rest, z_y, y, taught, weight, w, base_row, label_weight, o_c, n_classes, k0, k1, k2, k3, BLOCK, KIND,
                TAIL, WEIGHTED, HALF)
        else:
            top, mass = _mass(rest, HALF)
            row_loss, factor, at_pivot = plain_row(z_y, top, mass, w, k0, k1, k2, k3, KIND)
            share, log_share, at_label, base = mass, mass, at_pivot, mass[:, None]

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
                tl.store(state + 4 * n_rows + o_r, share, mask=m_r)
                tl.store(state + 5 * n_rows + o_r, at_label, mask=m_r)
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
                slope = gradient(rest, top[:, None], factor[:, None], share[:, None], log_share[:, None], base,
                                 k0, k1, k2, k3, KIND, TAIL, SMOOTH, HALF)
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
