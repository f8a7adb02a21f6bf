"""Loss and gradient of soft targets where a row is too long for one multiprocessor: two or three passes over it."""

import triton
import triton.language as tl

from .blocks import offsets, stream_index, stream_rivals
from .curves import LIKE_CROSS_ENTROPY
from .maths import INF, LOG2E, LOWEST, row_start, shifted
from .soft_rows import at_largest, largest_class, rival_terms, row_terms


@triton.jit
def _load_mass(target, weight, o_c, m_c, stride, label_part, spread, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr,
               EVICTION: tl.constexpr):
    u = tl.load(target + o_c.to(tl.int64) * stride, mask=m_c, other=0.0, eviction_policy=EVICTION).to(tl.float32)
    if SMOOTH:
        u = tl.where(m_c, label_part * u + spread, 0.0)
    if WEIGHTED:
        u *= tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)
    return u


# One pass: the largest logit, and of the others the sum of exp(z - top), the mass, and the mass times (z - top); and
# the mass on the largest. Every line has these of its own until the row ends. Its largest is left out of its sum, where
# everything else would drown in it: it joins when a larger one comes.
@triton.jit
def _stream_row(row, target, weight, n_classes, stride, target_stride, label_part, spread, BLOCK: tl.constexpr,
                VECTOR: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_top = tl.full([BLOCK // VECTOR], LOWEST, tl.float32)
    b_sum = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_u, b_u_top, b_distance, b_count = b_sum, b_sum, b_sum, b_sum
    for start in tl.range(0, n_classes, BLOCK, num_stages=1):
        o_c = start + o_b
        m_c = o_c < n_classes
        z = tl.load(row + o_c.to(tl.int64) * stride, mask=m_c, other=-INF, eviction_policy="evict_last").to(tl.float32)
        u = _load_mass(target, weight, o_c, m_c, target_stride, label_part, spread, SMOOTH, WEIGHTED,
                       "evict_last")
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
        b_count = tl.where(grows, 0.0, b_count) + tl.sum(is_top.to(tl.float32), axis=1)
        b_u += tl.where(grows, b_u_top, 0.0) + tl.sum(u_rivals, axis=1)
        b_u_top = tl.where(grows, 0.0, b_u_top) + tl.sum(u - u_rivals, axis=1)
        b_top = b_new
    top = tl.max(b_top, axis=0)
    is_top = b_top == top
    b_scale = tl.exp2((b_top - top) * LOG2E)
    count = tl.sum(tl.where(is_top, b_count, 0.0), axis=0)
    rival_sum = tl.sum((b_sum + tl.where(is_top, 0.0, b_count)) * b_scale, axis=0) + (count - 1.0)
    u_rivals = tl.sum(b_u + tl.where(is_top, 0.0, b_u_top), axis=0)
    u_largest = tl.sum(tl.where(is_top, b_u_top, 0.0), axis=0)
    distance = tl.sum(b_distance + (b_u + b_u_top) * (b_top - top), axis=0)
    top = tl.where(count == 0.0, float("nan"), top)
    return top, rival_sum, u_rivals, u_largest, distance


# Sums over the rivals of value and of pull / (1 - p), each times the mass, for curves that need p for them.
@triton.jit
def _stream_sums(row, target, weight, top, pivot, reference, reference_p, log_reference_p, n_classes, stride,
                 target_stride, label_part, spread, k0, k1, k2, k3, KIND: tl.constexpr, TAIL: tl.constexpr,
                 UNBOUNDED: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, SMOOTH: tl.constexpr,
                 WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    n_blocks = tl.cdiv(n_classes, BLOCK)
    b_values = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_pulls, b_largest = b_values, b_values
    for i_block in tl.range(0, n_blocks, num_stages=1):  # from the end, which was read last
        o_c = (n_blocks - 1 - i_block) * BLOCK + o_b
        m_c = o_c < n_classes
        z = tl.load(row + o_c.to(tl.int64) * stride, mask=m_c, other=-INF, eviction_policy="evict_last").to(tl.float32)
        u = _load_mass(target, weight, o_c, m_c, target_stride, label_part, spread, SMOOTH, WEIGHTED,
                       "evict_last")
        is_top = o_c == pivot if UNBOUNDED else z == top
        t = tl.where(is_top, -INF, shifted(z, reference, SIXTEEN_BIT))
        e = tl.exp2(t)
        u_rivals = tl.where(is_top, 0.0, u)
        value, over = rival_terms(t, e, reference_p, log_reference_p, k0, k1, k2, k3, KIND, TAIL)
        b_values += tl.sum(tl.where(u_rivals == 0.0, 0.0, u_rivals * value), axis=1)
        b_pulls += tl.sum(u_rivals * over, axis=1)
        b_largest += tl.sum(u - u_rivals, axis=1)
    return tl.sum(b_values, axis=0), tl.sum(b_pulls, axis=0), tl.sum(b_largest, axis=0)


# A persistent grid; a program takes one row at a time. Cross-entropy takes one pass over logits and targets for its
# sums and one for the gradient. Other curves take one more between the two, when the largest logit is known.
@triton.jit(do_not_specialize=["n_rows"])
def soft_streamed_kernel(
    logits, target, weight, upstream, loss, grad, by_target,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    target_outer_units, target_stride_inner, target_stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, scale, label_part, spread, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNBOUNDED: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    VECTOR: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, GRAD: tl.constexpr,
    BY_TARGET: tl.constexpr, SUMS: tl.constexpr, UPSTREAM: tl.constexpr, SMOOTH: tl.constexpr,
):
    n_classes = class_units * UNIT
    stride_outer = tl.cast(outer_units, tl.int64) * UNIT
    target_stride_outer = tl.cast(target_outer_units, tl.int64) * UNIT
    grad_stride_outer = tl.cast(grad_outer_units, tl.int64) * UNIT
    o_b = offsets(BLOCK, VECTOR)
    n_blocks = tl.cdiv(n_classes, BLOCK)
    total_loss = 0.0
    for i in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        i_row = tl.cast(i, tl.int32)
        row = logits + row_start(i_row, inner, stride_outer, stride_inner)
        target_start = row_start(i_row, inner, target_stride_outer, target_stride_inner)
        masses = target + target_start
        top, rival_sum, u_rivals, u_largest, distance = _stream_row(
            row, masses, weight, n_classes, stride_class, target_stride_class, label_part, spread, BLOCK, VECTOR,
            SMOOTH, WEIGHTED, SIXTEEN_BIT)
        pivot, reference = -1, top
        if UNBOUNDED:  # rivals are measured from their own maximum, however far the largest is ahead
            pivot = stream_index(row, top, -1, n_classes, stride_class, BLOCK, VECTOR)
            reference, rival_sum, two, total = stream_rivals(
                row, pivot, 0.0, n_classes, stride_class, BLOCK, VECTOR, SIXTEEN_BIT, False)
        p, value, pull, over, reference_p, log_reference_p = largest_class(
            top, reference, rival_sum, k0, k1, k2, k3, KIND, UNBOUNDED)
        if TAIL == LIKE_CROSS_ENTROPY:
            values, pulls = -distance - u_rivals * log_reference_p, u_rivals
        else:
            values, pulls, u_largest = _stream_sums(
                row, masses, weight, top, pivot, reference, reference_p, log_reference_p, n_classes, stride_class,
                target_stride_class, label_part, spread, k0, k1, k2, k3, KIND, TAIL, UNBOUNDED, BLOCK, VECTOR, SMOOTH,
                WEIGHTED, SIXTEEN_BIT)
        row_loss, factor, base, ratio = row_terms(
            p, value, pull, over, reference_p, rival_sum, u_largest, values, pulls)
        if SUMS:
            total_loss += row_loss
        else:
            tl.store(loss + i_row, row_loss)
        if GRAD or BY_TARGET:
            row_scale = scale
            if UPSTREAM:
                row_scale *= tl.load(upstream + i_row).to(tl.float32)
            out = row
            if GRAD:
                out = grad + row_start(i_row, inner, grad_stride_outer, grad_stride_inner)
            for i_block in tl.range(0, n_blocks, num_stages=1):
                # In the order in which the last pass left them in the cache.
                o_c = (n_blocks - 1 - i_block if TAIL == LIKE_CROSS_ENTROPY else i_block) * BLOCK + o_b
                m_c = o_c < n_classes
                z = tl.load(row + o_c.to(tl.int64) * stride_class, mask=m_c, other=-INF,
                            eviction_policy="evict_first").to(tl.float32)
                is_top = o_c == pivot if UNBOUNDED else z == top
                t = tl.where(is_top, -INF, shifted(z, reference, SIXTEEN_BIT))
                e = tl.exp2(t)
                b_value, b_over = rival_terms(t, e, reference_p, log_reference_p, k0, k1, k2, k3, KIND, TAIL)
                if BY_TARGET:
                    slope = tl.where(is_top, value, b_value) * (label_part * row_scale)
                    if WEIGHTED:
                        slope *= tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)
                    tl.store(by_target + target_start + o_c.to(tl.int64) * target_stride_class,
                             slope.to(by_target.dtype.element_ty), mask=m_c, eviction_policy="evict_first")
                if GRAD:
                    u = _load_mass(masses, weight, o_c, m_c, target_stride_class, label_part, spread, SMOOTH,
                                   WEIGHTED, "evict_first")
                    slope = tl.where(is_top, at_largest(u, u_largest, base, ratio, pull), e * factor - u * b_over)
                    tl.store(out + o_c.to(tl.int64) * grad_stride_class,
                             (slope * row_scale).to(out.dtype.element_ty), mask=m_c, eviction_policy="evict_first")
    if SUMS:
        tl.store(loss + tl.program_id(0), total_loss)
