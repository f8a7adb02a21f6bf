"""Loss and gradient of soft targets where a row is too long for one multiprocessor: two or three passes over it."""

import triton
import triton.language as tl

from .blocks import offsets, stream_index, stream_rivals
from .curves import LIKE_CROSS_ENTROPY
from .maths import INF, LOG2E, LOWEST, row_start, shifted
from .soft_rows import at_largest, largest_class, rival_terms, row_terms
from .window import end_of, ends_of, in_row, load_window, store_window, window_of


@triton.jit
def _load_block(row, target, weight, o, first, window, end, stride, target_stride, label_part, spread,
                BLOCK: tl.constexpr, WINDOW: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr,
                EVICTION: tl.constexpr):
    """A block of logits and of masses."""
    shift, leaves_front, leaves_end = window
    has_ends, leaves = ends_of(first, shift, end, leaves_front, leaves_end, BLOCK, WINDOW)
    z = load_window(row, o, shift, end, has_ends, leaves, stride, -INF, WINDOW, EVICTION)
    u = load_window(target, o, shift, end, has_ends, leaves, target_stride, 0.0, WINDOW, EVICTION)
    if SMOOTH:
        u = tl.where(in_row(o, shift, end, WINDOW), label_part * u + spread, 0.0)
    if WEIGHTED:
        u *= tl.load(weight + o - shift, mask=in_row(o, shift, end, WINDOW), other=0.0).to(tl.float32)
    return z, u, has_ends


# One pass: the largest logit, and of the others the sum of exp(z - top), the mass, and the mass times (z - top); and
# the mass on the largest. Every line has these of its own until the row ends. Its largest is left out of its sum, where
# everything else would drown in it: it joins when a larger one comes.
@triton.jit
def _stream_row(row, target, weight, window, end, stride, target_stride, label_part, spread, BLOCK: tl.constexpr,
                VECTOR: tl.constexpr, WINDOW: tl.constexpr, SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr,
                SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_top = tl.full([BLOCK // VECTOR], LOWEST, tl.float32)
    b_sum = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_u, b_u_top, b_distance, b_count = b_sum, b_sum, b_sum, b_sum
    for first in tl.range(0, end, BLOCK, num_stages=1):
        z, u, has_ends = _load_block(row, target, weight, first + o_b, first, window, end, stride, target_stride,
                                     label_part, spread, BLOCK, WINDOW, SMOOTH, WEIGHTED, "evict_last")
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
def _stream_sums(row, target, weight, top, pivot, reference, reference_p, log_reference_p, window, end, stride,
                 target_stride, label_part, spread, k0, k1, k2, k3, KIND: tl.constexpr, TAIL: tl.constexpr,
                 UNBOUNDED: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, WINDOW: tl.constexpr,
                 SMOOTH: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    n_blocks = tl.cdiv(end, BLOCK)
    b_values = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_pulls, b_largest = b_values, b_values
    for i_block in tl.range(0, n_blocks, num_stages=1):  # from the end, which was read last
        first = (n_blocks - 1 - i_block) * BLOCK
        o = first + o_b
        z, u, has_ends = _load_block(row, target, weight, o, first, window, end, stride, target_stride, label_part,
                                     spread, BLOCK, WINDOW, SMOOTH, WEIGHTED, "evict_last")
        is_top = o == pivot + window[0] if UNBOUNDED else z == top
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
@triton.jit(do_not_specialize=["n_rows", "phase"])
def soft_streamed_kernel(
    logits, target, weight, upstream, loss, grad, by_target,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    target_outer_units, target_stride_inner, target_stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, phase, scale, label_part, spread, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNBOUNDED: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    VECTOR: tl.constexpr, WINDOW: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, GRAD: tl.constexpr,
    BY_TARGET: tl.constexpr, SUMS: tl.constexpr, UPSTREAM: tl.constexpr, SMOOTH: tl.constexpr,
):
    n_classes = class_units * UNIT
    stride_outer = tl.cast(outer_units, tl.int64) * UNIT
    target_stride_outer = tl.cast(target_outer_units, tl.int64) * UNIT
    grad_stride_outer = tl.cast(grad_outer_units, tl.int64) * UNIT
    o_b = offsets(BLOCK, VECTOR)
    total_loss = 0.0
    for i in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        i_row = tl.cast(i, tl.int32)
        start = row_start(i_row, inner, stride_outer, stride_inner)
        window = window_of(start, phase, i_row, n_rows, n_classes, WINDOW)
        shift, leaves_front, leaves_end = window
        end = end_of(shift, n_classes, WINDOW)
        n_blocks = tl.cdiv(end, BLOCK)
        row = logits + start
        target_start = row_start(i_row, inner, target_stride_outer, target_stride_inner)
        masses = target + target_start
        top, rival_sum, u_rivals, u_largest, distance = _stream_row(
            row, masses, weight, window, end, stride_class, target_stride_class, label_part, spread, BLOCK, VECTOR,
            WINDOW, SMOOTH, WEIGHTED, SIXTEEN_BIT)
        pivot, reference = -1, top
        if UNBOUNDED:  # rivals are measured from their own maximum, however far the largest is ahead
            pivot = stream_index(row, top, -1, shift, leaves_front, leaves_end, n_classes, stride_class, BLOCK, VECTOR,
                                 WINDOW)
            reference, rival_sum, two, total = stream_rivals(
                row, pivot, 0.0, shift, leaves_front, leaves_end, n_classes, stride_class, BLOCK, VECTOR, WINDOW,
                SIXTEEN_BIT, False)
        p, value, pull, over, reference_p, log_reference_p = largest_class(
            top, reference, rival_sum, k0, k1, k2, k3, KIND, UNBOUNDED)
        if TAIL == LIKE_CROSS_ENTROPY:
            values, pulls = -distance - u_rivals * log_reference_p, u_rivals
        else:
            values, pulls, u_largest = _stream_sums(
                row, masses, weight, top, pivot, reference, reference_p, log_reference_p, window, end, stride_class,
                target_stride_class, label_part, spread, k0, k1, k2, k3, KIND, TAIL, UNBOUNDED, BLOCK, VECTOR, WINDOW,
                SMOOTH, WEIGHTED, SIXTEEN_BIT)
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
            grad_start = row_start(i_row, inner, grad_stride_outer, grad_stride_inner)
            for i_block in tl.range(0, n_blocks, num_stages=1):
                # In the order in which the last pass left them in the cache.
                first = (n_blocks - 1 - i_block if TAIL == LIKE_CROSS_ENTROPY else i_block) * BLOCK
                o = first + o_b
                z, u, has_ends = _load_block(row, masses, weight, o, first, window, end, stride_class,
                                             target_stride_class, label_part, spread, BLOCK, WINDOW, SMOOTH, WEIGHTED,
                                             "evict_first")
                is_top = o == pivot + shift if UNBOUNDED else z == top
                t = tl.where(is_top, -INF, shifted(z, reference, SIXTEEN_BIT))
                e = tl.exp2(t)
                b_value, b_over = rival_terms(t, e, reference_p, log_reference_p, k0, k1, k2, k3, KIND, TAIL)
                if BY_TARGET:
                    slope = tl.where(is_top, value, b_value) * (label_part * row_scale)
                    if WEIGHTED:
                        m_c = in_row(o, shift, end, WINDOW)
                        slope *= tl.load(weight + o - shift, mask=m_c, other=0.0).to(tl.float32)
                    store_window(by_target + target_start, o, shift, end, has_ends, target_stride_class,
                                 slope.to(by_target.dtype.element_ty), WINDOW, "evict_first")
                if GRAD:
                    slope = tl.where(is_top, at_largest(u, u_largest, base, ratio, pull), e * factor - u * b_over)
                    store_window(grad + grad_start, o, shift, end, has_ends, grad_stride_class,
                                 (slope * row_scale).to(grad.dtype.element_ty), WINDOW, "evict_first")
    if SUMS:
        tl.store(loss + tl.program_id(0), total_loss)
