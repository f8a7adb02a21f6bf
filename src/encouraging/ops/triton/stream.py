"""Loss and gradient where a row is too long for one multiprocessor: a pass for its sums, a pass for its gradient."""

import triton
import triton.language as tl

from .curves import LIKE_NORMAL, chances, curve_of_rival
from .maths import INF, LOG2E, LOWEST, row_start, shifted
from .rows import (
    closed_values,
    gradient,
    logsumexp_with,
    plain_row,
    read_label,
    short_series,
    smooth_row,
)


@triton.jit
def _offsets(BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    """Columns of a block, VECTOR neighbours to a line: one vector load, and sums along a line stay in one thread."""
    return tl.arange(0, BLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]


# The online logsumexp of a row without its pivot. Every line of the block has a running maximum and mass of its own, so
# that no two warps wait for each other before the row ends. With MOMENTS also the sum of the logits, measured from
# ``origin`` because what they have in common would cost digits, and, for float32, of exp(2 (z - top)).
@triton.jit
def _stream_mass(row, pivot, origin, n_classes, stride, BLOCK: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr,
                 HALF: tl.constexpr, MOMENTS: tl.constexpr):
    o_b = _offsets(BLOCK, VECTOR)
    b_top = tl.full([BLOCK // VECTOR], LOWEST, tl.float32)
    b_mass = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_two, b_total = b_mass, b_mass
    for start in tl.range(0, n_classes, BLOCK, num_stages=STAGES):
        o_c = start + o_b
        m_c = o_c < n_classes
        z = tl.load(row + o_c.to(tl.int64) * stride, mask=m_c, other=-INF, eviction_policy="evict_last").to(tl.float32)
        if MOMENTS:
            b_total += tl.sum(tl.where(m_c, z - origin, 0.0), axis=1)
        if (pivot >= start) & (pivot < start + BLOCK):
            z = tl.where(o_c == pivot, -INF, z)
        b_new = tl.maximum(b_top, tl.max(z, axis=1))
        b_scale = tl.exp2((b_top - b_new) * LOG2E)
        e = tl.exp2(shifted(z, b_new[:, None], HALF))
        b_mass = b_mass * b_scale + tl.sum(e, axis=1)
        if MOMENTS and not HALF:
            b_two = b_two * (b_scale * b_scale) + tl.sum(e * e, axis=1)
        b_top = b_new
    top = tl.max(b_top, axis=0)
    b_scale = tl.exp2((b_top - top) * LOG2E)
    mass = tl.sum(b_mass * b_scale, axis=0)
    two, total = mass, mass
    if MOMENTS:
        total = tl.sum(b_total, axis=0)
        if not HALF:
            two = tl.sum(b_two * (b_scale * b_scale), axis=0)
    return top, mass, two, total


# The first column that holds this value, other than the one left out.
@triton.jit
def _stream_index(row, value, left_out, n_classes, stride, BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    o_b = _offsets(BLOCK, VECTOR)
    b_first = tl.full([BLOCK // VECTOR], 2**31 - 1, tl.int32)
    for start in tl.range(0, n_classes, BLOCK):
        o_c = start + o_b
        z = tl.load(row + o_c.to(tl.int64) * stride, mask=o_c < n_classes, other=-INF).to(tl.float32)
        hit = (z == value) & (o_c < n_classes) & (o_c != left_out)
        b_first = tl.minimum(b_first, tl.min(tl.where(hit, o_c, 2**31 - 1), axis=1))
    return tl.minimum(tl.min(b_first, axis=0), n_classes - 1)


# Weighted sums of value and of pull / (1 - p) over the pivot's rivals, for curves and weights that have no shortcut.
@triton.jit
def _stream_sums(row, weight, pivot, base, top, share, log_share, n_classes, stride, k0, k1, k2, k3,
                 KIND: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, STAGES: tl.constexpr,
                 WEIGHTED: tl.constexpr, HALF: tl.constexpr):
    o_b = _offsets(BLOCK, VECTOR)
    b_values = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_pulls = b_values
    for start in tl.range(0, n_classes, BLOCK, num_stages=STAGES):
        o_c = start + o_b
        m_rival = (o_c < n_classes) & (o_c != pivot)
        z = tl.load(row + o_c.to(tl.int64) * stride, mask=m_rival, other=-INF, eviction_policy="evict_last")
        value, pull = curve_of_rival(shifted(z.to(tl.float32), top, HALF), share, log_share, k0, k1, k2, k3, KIND)
        if WEIGHTED:
            w = tl.load(weight + o_c, mask=m_rival, other=0.0).to(tl.float32)
            value *= w
            pull *= w
            m_rival &= w != 0.0  # a class of no weight adds nothing, also where its value is infinite
        b_values += tl.sum(tl.where(m_rival, value, 0.0), axis=1)
        b_pulls += tl.sum(tl.where(m_rival, pull, 0.0), axis=1)
    return base * tl.sum(b_values, axis=0), base * tl.sum(b_pulls, axis=0)


# All sums of a smoothed row, read block by block, and what follows from them. A class with p > 1/2 is set apart in the
# label's stead. MOMENTS takes the power series; without them the sums take a pass of their own.
@triton.jit
def smooth_row_by_blocks(row, weight, y, z_y, taught, w, base, label_weight, n_classes, n_read, stride, k0, k1, k2, k3,
                         KIND: tl.constexpr, TAIL: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
                         STAGES: tl.constexpr, WEIGHTED: tl.constexpr, HALF: tl.constexpr, MOMENTS: tl.constexpr):
    pivot, z_pivot = y, z_y
    origin = tl.where((z_y > -INF) & (z_y < INF), z_y, 0.0)
    top, mass, two, total = _stream_mass(row, pivot, origin, n_read, stride, BLOCK, VECTOR, STAGES, HALF, MOMENTS)
    gap, p, q, surprise, log_q, share, log_share = chances(z_y, top, mass)
    if taught & (share > 0.5):
        pivot = _stream_index(row, top, y, n_classes, stride, BLOCK, VECTOR)
        z_pivot = top
        top, mass, two, total = _stream_mass(
            row, pivot, origin, n_classes, stride, BLOCK, VECTOR, STAGES, HALF, MOMENTS)
        gap, p, q, surprise, log_q, share, log_share = chances(z_pivot, top, mass)
    own, own_of_label = base, base * w if WEIGHTED else base
    if WEIGHTED:
        own *= tl.load(weight + tl.where(taught, pivot, 0), mask=taught, other=0.0).to(tl.float32)
    if MOMENTS:
        count = n_classes - 1.0
        total -= tl.where(z_pivot > -INF, z_pivot - origin, 0.0) + count * (top - origin)
        values = base * closed_values(count, total, log_share)
        pulls = base * count
        if TAIL == LIKE_NORMAL:
            product, inverse, left_out = short_series(mass, two, share, HALF)
            values += base * product
            pulls += base * inverse
            # Not enough for float32 when several rivals have much of the mass.
            if HALF == 0:  # noqa: SIM102 - the compiler asks this one, the device the next
                if base * left_out > 4e-7:
                    values, pulls = _stream_sums(row, weight, pivot, base, top, share, log_share, n_read, stride, k0,
                                                 k1, k2, k3, KIND, BLOCK, VECTOR, STAGES, WEIGHTED, HALF)
    else:
        values, pulls = _stream_sums(row, weight, pivot, base, top, share, log_share, n_read, stride, k0, k1, k2, k3,
                                     KIND, BLOCK, VECTOR, STAGES, WEIGHTED, HALF)
    loss, factor, at_pivot, at_label = smooth_row(
        gap, p, q, surprise, log_q, share, log_share, z_y, top, mass, values, pulls, own, own_of_label, label_weight,
        pivot == y, k0, k1, k2, k3, KIND, HALF)
    return pivot, z_pivot, top, mass, share, log_share, loss, factor, at_pivot, at_label


# The gradient of a row, right but for the pivot and the label; REVERSE begins at its end, which was read last and may
# still be in the cache. SERIES takes 1 + p for 1 / (1 - p): enough for 16 bits and many classes.
@triton.jit
def gradient_by_blocks(row, out, weight, top, factor, share, log_share, base, n_classes, n_taught, stride, grad_stride,
                       k0, k1, k2, k3, KIND: tl.constexpr, TAIL: tl.constexpr, BLOCK: tl.constexpr,
                       VECTOR: tl.constexpr, STAGES: tl.constexpr, REVERSE: tl.constexpr, WEIGHTED: tl.constexpr,
                       SMOOTH: tl.constexpr, HALF: tl.constexpr, SERIES: tl.constexpr):
    o_b = _offsets(BLOCK, VECTOR)
    n_blocks = tl.cdiv(n_classes, BLOCK)
    for i_block in tl.range(0, n_blocks, num_stages=STAGES):
        o_c = (n_blocks - 1 - i_block if REVERSE else i_block) * BLOCK + o_b
        z = tl.load(row + o_c.to(tl.int64) * stride, mask=o_c < n_taught, other=-INF,
                    eviction_policy="evict_first").to(tl.float32)
        if SERIES:
            slope = tl.exp2(shifted(z, top, HALF)) * (factor - base * share) - base
        else:
            b_base = base
            if SMOOTH and WEIGHTED:
                b_base = base * tl.load(weight + o_c, mask=o_c < n_classes, other=0.0).to(tl.float32)
            slope = gradient(z, top, factor, share, log_share, b_base, k0, k1, k2, k3, KIND, TAIL, SMOOTH, HALF)
        tl.store(out + o_c.to(tl.int64) * grad_stride, slope.to(out.dtype.element_ty), mask=o_c < n_classes,
                 eviction_policy="evict_first")


# A persistent grid, a row at a time a program. Pass 1: online logsumexp of the rivals -> gap, loss, factor. Pass 2: the
# gradient, backwards through the row (REVERSE), because its end was read last and may still be in the cache. Smoothing
# of a curve without a shortcut (MOMENTS off) takes a pass between the two. Reads the logits twice, writes the gradient
# once. Offsets are int64: rows * classes passes 2**31 at language-model sizes.
@triton.jit(do_not_specialize=["n_rows", "ignore_index"])
def stream_kernel(
    logits, target, weight, shares, upstream, loss, grad, state, p_out, lse_out, argmax_out,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class,
    ignore_index, smoothing, kept, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
    STAGES: tl.constexpr, REVERSE: tl.constexpr, MOMENTS: tl.constexpr, N_SHARES: tl.constexpr,
    WEIGHTED: tl.constexpr, SMOOTH: tl.constexpr, HALF: tl.constexpr, GRAD: tl.constexpr, STATE: tl.constexpr,
    SUMS: tl.constexpr, STATS: tl.constexpr, UPSTREAM: tl.constexpr, INPLACE: tl.constexpr,
):
    n_classes = class_units * UNIT
    stride_outer = tl.cast(outer_units, tl.int64) * UNIT
    grad_stride_outer = tl.cast(grad_outer_units, tl.int64) * UNIT
    denominator = 1.0
    if N_SHARES:
        denominator = tl.sum(tl.load(shares + tl.arange(0, N_SHARES)), axis=0)
    b_sum = 0.0
    for i in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        i_row = tl.cast(i, tl.int32)
        y, taught, w, fill = read_label(target, weight, i_row, i_row < n_rows, n_classes, ignore_index, WEIGHTED)
        row = logits + row_start(i_row, inner, stride_outer, stride_inner)
        # A row that teaches nothing is not read: its passes run over no classes.
        n_taught = tl.where(taught, n_classes, 0)
        n_read = n_classes if STATS else n_taught
        z_y = tl.load(row + tl.where(taught, y, 0).to(tl.int64) * stride_class, mask=taught, other=-INF).to(tl.float32)
        if SMOOTH:
            base = tl.where(taught, smoothing / n_classes, 0.0)
            pivot, z_pivot, top, mass, share, log_share, row_loss, factor, at_pivot, at_label = smooth_row_by_blocks(
                row, weight, y, z_y, taught, w, base, kept * w, n_classes, n_read, stride_class,
                k0, k1, k2, k3, KIND, TAIL, BLOCK, VECTOR, STAGES, WEIGHTED, HALF, MOMENTS)
        else:
            pivot, z_pivot = y, z_y
            top, mass, two, total = _stream_mass(
                row, pivot, 0.0, n_read, stride_class, BLOCK, VECTOR, STAGES, HALF, MOMENTS)
            row_loss, factor, at_pivot = plain_row(z_y, top, mass, w, k0, k1, k2, k3, KIND)
            share, log_share, at_label, base = mass, mass, at_pivot, mass

        row_loss = tl.where(taught, row_loss, fill)
        factor = tl.where(taught, factor, fill)
        if SUMS:
            b_sum += row_loss
        else:
            tl.store(loss + i_row, row_loss)
        if STATE:
            tl.store(state + i_row, top)
            tl.store(state + n_rows + i_row, factor)
            tl.store(state + 2 * n_rows + i_row, at_pivot)
            tl.store(state + 3 * n_rows + i_row, pivot.to(tl.float32, bitcast=True))
            if SMOOTH:
                tl.store(state + 4 * n_rows + i_row, share)
                tl.store(state + 5 * n_rows + i_row, at_label)
                tl.store(state + 6 * n_rows + i_row, log_share)
        if STATS:
            lse = logsumexp_with(z_pivot, top, mass)
            tl.store(lse_out + i_row, lse)
            tl.store(p_out + i_row, tl.where(taught, tl.exp(z_y - lse), float("nan")))
            best = tl.where(taught & (z_pivot > top), z_pivot, top)
            tl.store(argmax_out + i_row, _stream_index(row, best, -1, n_classes, stride_class, BLOCK,
                                                       VECTOR).to(tl.int64))
        if GRAD:
            if N_SHARES or UPSTREAM:
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
            gradient_by_blocks(row, out, weight, top, factor, share, log_share, base, n_classes, n_taught, stride_class,
                               grad_stride_class, k0, k1, k2, k3, KIND, TAIL, BLOCK, VECTOR, STAGES, REVERSE, WEIGHTED,
                               SMOOTH, HALF, MOMENTS and HALF and TAIL == LIKE_NORMAL)
            tl.debug_barrier()  # the row first, then the two numbers that are not of its pattern
            tl.store(out + pivot.to(tl.int64) * grad_stride_class, at_pivot.to(grad.dtype.element_ty), mask=taught)
            if SMOOTH:
                tl.store(out + y.to(tl.int64) * grad_stride_class, at_label.to(grad.dtype.element_ty), mask=taught)
    if SUMS:
        tl.store(loss + tl.program_id(0), b_sum)
