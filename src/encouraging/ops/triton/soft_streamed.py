"""Loss and gradient of soft targets where a row is too long for one multiprocessor: two or three passes over it."""

import triton
import triton.language as tl

from .blocks import offsets, stream_index, stream_rivals
from .curves import LIKE_CROSS_ENTROPY
from .ends import end_columns, inner_part, inner_row
from .finish import finish
from .maths import EACH, INF, LOG2E, LOWEST, ONE, row_start, shifted
from .soft_rows import at_largest, largest_and_rivals, largest_class, rival_terms, row_terms, store_soft_state


@triton.jit
def _load_masses(pointers, weight, o_c, m_c, label_part, spread, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr,
                 EVICTION: tl.constexpr):
    u = tl.load(pointers, mask=m_c, other=0.0, eviction_policy=EVICTION).to(tl.float32)
    if SMOOTH:
        u = tl.where(m_c, label_part * u + spread, 0.0)
    if WEIGHTED:
        u *= tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)
    return u


# One pass: the largest logit and how many classes have it, and of the others the sum of exp(z - top), the mass, and the
# mass times (z - top); and the mass on the largest. Every line has these of its own until the row ends. Its largest is
# left out of its sum, where everything else would drown in it: it joins when a larger one comes.
@triton.jit
def stream_masses(row, target, weight, head, n_inner, n_classes, stride, target_stride, label_part, spread,
                  BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr, SMOOTH: tl.constexpr,
                  WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_top = tl.full([BLOCK // VECTOR], LOWEST, tl.float32)
    b_sum = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_u, b_u_top, b_distance, b_count = b_sum, b_sum, b_sum, b_sum
    inner, inner_target = inner_row(row, head, ENDS), inner_row(target, head, ENDS)
    for first in tl.range(0, n_inner, BLOCK, num_stages=1):
        o = first + o_b
        m_c = o < n_inner
        z = tl.load(inner + o.to(tl.int64) * stride, mask=m_c, other=-INF, eviction_policy="evict_last").to(tl.float32)
        u = _load_masses(inner_target + o.to(tl.int64) * target_stride, weight, o + head, m_c, label_part, spread,
                         SMOOTH, WEIGHTED, "evict_last")
        b_new = tl.maximum(b_top, tl.max(z, axis=1))
        grows = b_new > b_top
        b_scale = tl.exp2((b_top - b_new) * LOG2E)
        is_top = z == b_new[:, None]
        e = tl.where(is_top, 0.0, tl.exp2(shifted(z, b_new[:, None], SIXTEEN_BIT)))
        u_rivals = tl.where(is_top, 0.0, u)
        # What was largest before is a rival now.
        b_distance += (b_u + b_u_top) * (b_top - b_new)
        b_distance += tl.sum(tl.where(u == 0.0, 0.0, u * (z - b_new[:, None])), axis=1)
        b_sum = (b_sum + tl.where(grows, b_count, 0.0)) * b_scale + tl.sum(e, axis=1)
        b_count = tl.where(grows, 0.0, b_count) + tl.sum(tl.where(is_top, 1.0, 0.0), axis=1)
        b_u += tl.where(grows, b_u_top, 0.0) + tl.sum(u_rivals, axis=1)
        b_u_top = tl.where(grows, 0.0, b_u_top) + tl.sum(tl.where(is_top, u, 0.0), axis=1)
        b_top = b_new
    top = tl.max(b_top, axis=0)
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        z_e = tl.load(row + o_e, mask=m_e, other=-INF).to(tl.float32)
        u_e = _load_masses(target + o_e, weight, o_e, m_e, label_part, spread, SMOOTH, WEIGHTED, "")
        top = tl.maximum(top, tl.max(z_e, axis=0))
    b_scale = tl.exp2((b_top - top) * LOG2E)
    count, rival_sum, u_rivals, u_largest, distance = together(
        top, b_top, b_scale, b_count, b_sum, b_u, b_u_top, b_distance)
    if ENDS:
        is_top = z_e == top
        count += tl.sum(tl.where(is_top, 1.0, 0.0), axis=0)
        rival_sum += tl.sum(tl.where(is_top, 0.0, tl.exp2(shifted(z_e, top, SIXTEEN_BIT))), axis=0)
        u_rivals += tl.sum(tl.where(is_top, 0.0, u_e), axis=0)
        u_largest += tl.sum(tl.where(is_top, u_e, 0.0), axis=0)
        distance += tl.sum(tl.where(u_e == 0.0, 0.0, u_e * (z_e - top)), axis=0)
    return top, count, rival_sum, u_rivals, u_largest, distance


@triton.jit
def together(top, b_top, b_scale, b_count, b_sum, b_u, b_u_top, b_distance):
    """What :func:`stream_masses` returns, but for the largest logit ``top``, from the same numbers of several parts, of
    which ``b_scale`` is exp(b_top - top)."""
    is_top = b_top == top
    count = tl.sum(tl.where(is_top, b_count, 0.0), axis=0)
    rival_sum = tl.sum((b_sum + tl.where(is_top, 0.0, b_count)) * b_scale, axis=0)
    u_rivals = tl.sum(b_u + tl.where(is_top, 0.0, b_u_top), axis=0)
    u_largest = tl.sum(tl.where(is_top, b_u_top, 0.0), axis=0)
    distance = tl.sum(b_distance + (b_u + b_u_top) * (b_top - top), axis=0)
    return count, rival_sum, u_rivals, u_largest, distance


@triton.jit
def _terms(z, u, o_c, top, pivot, reference, reference_p, log_reference_p, k0, k1, k2, k3, KIND: tl.constexpr,
           TAIL: tl.constexpr, UNBOUNDED: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    """Where the largest class is, exp(z - reference) of its rivals, and their values and pulls / (1 - p)."""
    is_top = o_c == pivot if UNBOUNDED else z == top
    t = tl.where(is_top, -INF, shifted(z, reference, SIXTEEN_BIT))
    e = tl.exp2(t)
    value, over = rival_terms(t, e, reference_p, log_reference_p, k0, k1, k2, k3, KIND, TAIL)
    return is_top, e, value, over, tl.where(is_top, 0.0, u)


# Sums over the rivals of value and of pull / (1 - p), each times the mass, for curves that need p for them.
@triton.jit
def stream_mass_sums(row, target, weight, top, pivot, reference, reference_p, log_reference_p, head, n_inner, n_classes,
                     stride, target_stride, label_part, spread, k0, k1, k2, k3, KIND: tl.constexpr,
                     TAIL: tl.constexpr, UNBOUNDED: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
                     ENDS: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    n_blocks = tl.cdiv(n_inner, BLOCK)
    b_values = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_pulls, b_largest = b_values, b_values
    inner, inner_target = inner_row(row, head, ENDS), inner_row(target, head, ENDS)
    for i_block in tl.range(0, n_blocks, num_stages=1):  # from the end, which was read last
        o = (n_blocks - 1 - i_block) * BLOCK + o_b
        m_c = o < n_inner
        z = tl.load(inner + o.to(tl.int64) * stride, mask=m_c, other=-INF, eviction_policy="evict_last").to(tl.float32)
        u = _load_masses(inner_target + o.to(tl.int64) * target_stride, weight, o + head, m_c, label_part, spread,
                         SMOOTH, WEIGHTED, "evict_last")
        is_top, e, value, over, u_rivals = _terms(z, u, o + head, top, pivot, reference, reference_p, log_reference_p,
                                                  k0, k1, k2, k3, KIND, TAIL, UNBOUNDED, SIXTEEN_BIT)
        b_values += tl.sum(tl.where(u_rivals == 0.0, 0.0, u_rivals * value), axis=1)
        b_pulls += tl.sum(u_rivals * over, axis=1)
        b_largest += tl.sum(tl.where(is_top, u, 0.0), axis=1)
    values, pulls, largest = tl.sum(b_values, axis=0), tl.sum(b_pulls, axis=0), tl.sum(b_largest, axis=0)
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        z = tl.load(row + o_e, mask=m_e, other=-INF).to(tl.float32)
        u = _load_masses(target + o_e, weight, o_e, m_e, label_part, spread, SMOOTH, WEIGHTED, "")
        is_top, e, value, over, u_rivals = _terms(z, u, o_e, top, pivot, reference, reference_p, log_reference_p,
                                                  k0, k1, k2, k3, KIND, TAIL, UNBOUNDED, SIXTEEN_BIT)
        values += tl.sum(tl.where(u_rivals == 0.0, 0.0, u_rivals * value), axis=0)
        pulls += tl.sum(u_rivals * over, axis=0)
        largest += tl.sum(tl.where(is_top, u, 0.0), axis=0)
    return values, pulls, largest


# The gradients of a row from its sums, into ``out`` on the logits and ``out_by_target`` on the targets.
@triton.jit
def stream_slopes(row, masses, weight, out, out_by_target, top, pivot, reference, reference_p, log_reference_p, value,
                  pull, u_largest, factor, base, ratio, row_scale, head, n_inner, n_classes, stride, target_stride,
                  grad_stride, label_part, spread, k0, k1, k2, k3, KIND: tl.constexpr, TAIL: tl.constexpr,
                  UNBOUNDED: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr,
                  SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, GRAD: tl.constexpr,
                  BY_TARGET: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    row_in, row_masses = inner_row(row, head, ENDS), inner_row(masses, head, ENDS)
    row_out, row_by_target = inner_row(out, head, ENDS), inner_row(out_by_target, head, ENDS)
    n_blocks = tl.cdiv(n_inner, BLOCK)
    for i_block in tl.range(0, n_blocks, num_stages=1):
        # In the order in which the last pass left them in the cache.
        o = (n_blocks - 1 - i_block if TAIL == LIKE_CROSS_ENTROPY else i_block) * BLOCK + o_b
        m_c = o < n_inner
        z = tl.load(row_in + o.to(tl.int64) * stride, mask=m_c, other=-INF,
                    eviction_policy="evict_first").to(tl.float32)
        u = _load_masses(row_masses + o.to(tl.int64) * target_stride, weight, o + head, m_c, label_part,
                         spread, SMOOTH, WEIGHTED, "evict_first")
        is_top, e, b_value, b_over, u_low = _terms(
            z, u, o + head, top, pivot, reference, reference_p, log_reference_p, k0, k1, k2, k3, KIND, TAIL,
            UNBOUNDED, SIXTEEN_BIT)
        if BY_TARGET:
            slope = _target_slope(is_top, value, b_value, weight, o + head, m_c, label_part * row_scale,
                                  WEIGHTED)
            tl.store(row_by_target + o.to(tl.int64) * target_stride,
                     slope.to(out_by_target.dtype.element_ty), mask=m_c, eviction_policy="evict_first")
        if GRAD:
            slope = tl.where(is_top, at_largest(u, u_largest, base, ratio, pull), e * factor - u * b_over)
            tl.store(row_out + o.to(tl.int64) * grad_stride,
                     (slope * row_scale).to(out.dtype.element_ty), mask=m_c, eviction_policy="evict_first")
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        z = tl.load(row + o_e, mask=m_e, other=-INF).to(tl.float32)
        u = _load_masses(masses + o_e, weight, o_e, m_e, label_part, spread, SMOOTH, WEIGHTED, "")
        is_top, e, b_value, b_over, u_low = _terms(
            z, u, o_e, top, pivot, reference, reference_p, log_reference_p, k0, k1, k2, k3, KIND, TAIL,
            UNBOUNDED, SIXTEEN_BIT)
        if BY_TARGET:
            slope = _target_slope(is_top, value, b_value, weight, o_e, m_e, label_part * row_scale, WEIGHTED)
            tl.store(out_by_target + o_e, slope.to(out_by_target.dtype.element_ty), mask=m_e)
        if GRAD:
            slope = tl.where(is_top, at_largest(u, u_largest, base, ratio, pull), e * factor - u * b_over)
            tl.store(out + o_e, (slope * row_scale).to(out.dtype.element_ty), mask=m_e)


@triton.jit
def _target_slope(is_top, value, b_value, weight, o_c, m_c, scale, WEIGHTED: tl.constexpr):
    """The gradient on the targets: every class's own value."""
    slope = tl.where(is_top, value, b_value) * scale
    if WEIGHTED:
        slope *= tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)
    return slope


# A persistent grid; a program takes one row at a time. Cross-entropy takes one pass over logits and targets for its
# sums and one for the gradient. Other curves take one more between the two, when the largest logit is known.
@triton.jit(do_not_specialize=["n_rows", "phase"])
def soft_streamed_kernel(
    logits, target, weight, divisor, upstream, loss, shares, counter, grad, by_target, state,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    target_outer_units, target_stride_inner, target_stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, phase, scale, label_part, spread, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNBOUNDED: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    VECTOR: tl.constexpr, ENDS: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, GRAD: tl.constexpr,
    BY_TARGET: tl.constexpr, STATE: tl.constexpr, LOSS: tl.constexpr, SUMS: tl.constexpr, UPSTREAM: tl.constexpr,
    SMOOTH: tl.constexpr, DIVIDED: tl.constexpr, LAST: tl.constexpr,
):
    n_classes = class_units * UNIT
    stride_outer = tl.cast(outer_units, tl.int64) * UNIT
    target_stride_outer = tl.cast(target_outer_units, tl.int64) * UNIT
    grad_stride_outer = tl.cast(grad_outer_units, tl.int64) * UNIT
    total_loss = 0.0
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    for i in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        i_row = tl.cast(i, tl.int32)
        start = row_start(i_row, inner, stride_outer, stride_inner)
        head, n_inner = inner_part(start, phase, n_classes, ENDS)
        row = logits + start
        target_start = row_start(i_row, inner, target_stride_outer, target_stride_inner)
        masses = target + target_start
        top, count, rival_sum, u_rivals, u_largest, distance = stream_masses(
            row, masses, weight, head, n_inner, n_classes, stride_class, target_stride_class, label_part, spread,
            BLOCK, VECTOR, ENDS, SMOOTH, WEIGHTED, SIXTEEN_BIT)
        top, rival_sum = largest_and_rivals(top, count, rival_sum)
        pivot, reference = -1, top
        if UNBOUNDED:  # rivals are measured from their own maximum, however far the largest is ahead
            pivot = stream_index(row, top, -1, head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS)
            reference, rival_sum, two, total = stream_rivals(
                row, pivot, 0.0, head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, False, False)
        p, value, pull, over, reference_p, log_reference_p = largest_class(
            top, reference, rival_sum, k0, k1, k2, k3, KIND, UNBOUNDED)
        if TAIL == LIKE_CROSS_ENTROPY:
            values, pulls = -distance - u_rivals * log_reference_p, u_rivals
        else:
            values, pulls, u_largest = stream_mass_sums(
                row, masses, weight, top, pivot, reference, reference_p, log_reference_p, head, n_inner, n_classes,
                stride_class, target_stride_class, label_part, spread, k0, k1, k2, k3, KIND, TAIL, UNBOUNDED, BLOCK,
                VECTOR, ENDS, SMOOTH, WEIGHTED, SIXTEEN_BIT)
        row_loss, factor, base, ratio = row_terms(
            p, value, pull, over, reference_p, rival_sum, u_largest, values, pulls)
        if SUMS:
            total_loss += row_loss
        elif LOSS:
            tl.store(loss + i_row, row_loss)
        if STATE:
            store_soft_state(state, i_row, True, n_rows, top, factor, base, ratio, u_largest, pull, reference_p,
                             log_reference_p, TAIL)
        if GRAD or BY_TARGET:
            row_scale = scale
            if UPSTREAM == EACH:
                row_scale *= tl.load(upstream + i_row).to(tl.float32)
            if UPSTREAM == ONE:
                row_scale *= tl.load(upstream).to(tl.float32)
            out, out_by_target = row, masses
            if GRAD:
                out = grad + row_start(i_row, inner, grad_stride_outer, grad_stride_inner)
            if BY_TARGET:
                out_by_target = by_target + target_start
            stream_slopes(
                row, masses, weight, out, out_by_target, top, pivot, reference, reference_p, log_reference_p, value,
                pull, u_largest, factor, base, ratio, row_scale, head, n_inner, n_classes, stride_class,
                target_stride_class, grad_stride_class, label_part, spread, k0, k1, k2, k3, KIND, TAIL, UNBOUNDED,
                BLOCK, VECTOR, ENDS, SMOOTH, WEIGHTED, SIXTEEN_BIT, GRAD, BY_TARGET)
    if SUMS:
        finish(shares, counter, loss, total_loss, scale, LAST)
