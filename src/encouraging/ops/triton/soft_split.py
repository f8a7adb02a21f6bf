"""Loss and gradient of soft targets where few rows are long: two or three launches, see ``segments.py``."""

import triton
import triton.language as tl

from .blocks import stream_index, stream_rivals
from .curves import LIKE_CROSS_ENTROPY
from .ends import inner_part
from .finish import finish
from .maths import EACH, LOWEST, ONE, exp_of_minus, row_start
from .segments import load_partials, segment_of_row, store_partial, sum_of_partials
from .soft_rows import largest_and_rivals, largest_class, row_terms, store_soft_state
from .soft_streamed import stream_mass_sums, stream_masses, stream_slopes, together

# The partials, by their numbers: what stream_masses returns; with UNBOUNDED the column of the segment's largest class
# and its rivals' maximum and sum; from the second launch on, what stream_mass_sums returns.
TOP = tl.constexpr(0)
COUNT = tl.constexpr(1)
RIVAL_SUM = tl.constexpr(2)
U_RIVALS = tl.constexpr(3)
U_LARGEST = tl.constexpr(4)
DISTANCE = tl.constexpr(5)
COLUMN = tl.constexpr(6)
SECOND = tl.constexpr(7)
SECOND_SUM = tl.constexpr(8)
VALUES = tl.constexpr(9)
PULLS = tl.constexpr(10)
LARGEST = tl.constexpr(11)
NUMBERS = 12


# The first pass over a segment, and with UNBOUNDED two more: where its largest class is, and its rivals. Reads logits
# and targets, writes the partials.
@triton.jit(do_not_specialize=["n_rows", "n_segments", "segment_blocks", "phase"])
def soft_split_kernel(
    logits, target, weight, partials,
    n_rows, n_segments, segment_blocks, class_units, inner, outer_units, stride_inner, stride_class,
    target_outer_units, target_stride_inner, target_stride_class, phase, label_part, spread,
    UNBOUNDED: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr,
    WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, SMOOTH: tl.constexpr,
):
    i_row, i_segment = tl.program_id(0) // n_segments, tl.program_id(0) % n_segments
    start = row_start(i_row, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
    head, n_inner = inner_part(start, phase, class_units * UNIT, ENDS)
    first, n_classes, head, n_inner = segment_of_row(i_segment, segment_blocks * BLOCK, head, class_units * UNIT, ENDS)
    row = logits + start + first.to(tl.int64) * stride_class
    masses = target + row_start(i_row, inner, tl.cast(target_outer_units, tl.int64) * UNIT, target_stride_inner)
    masses += first.to(tl.int64) * target_stride_class
    if WEIGHTED:
        weight += first
    top, count, rival_sum, u_rivals, u_largest, distance = stream_masses(
        row, masses, weight, head, n_inner, n_classes, stride_class, target_stride_class, label_part, spread,
        BLOCK, VECTOR, ENDS, SMOOTH, WEIGHTED, SIXTEEN_BIT)
    store_partial(partials, top, i_row, i_segment, n_rows, n_segments, TOP)
    store_partial(partials, count, i_row, i_segment, n_rows, n_segments, COUNT)
    store_partial(partials, rival_sum, i_row, i_segment, n_rows, n_segments, RIVAL_SUM)
    store_partial(partials, u_rivals, i_row, i_segment, n_rows, n_segments, U_RIVALS)
    store_partial(partials, u_largest, i_row, i_segment, n_rows, n_segments, U_LARGEST)
    store_partial(partials, distance, i_row, i_segment, n_rows, n_segments, DISTANCE)
    if UNBOUNDED:
        column = stream_index(row, top, -1, head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS)
        second, second_sum, two, total = stream_rivals(
            row, column, 0.0, head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, False, False)
        column = (column + first).to(tl.float32, bitcast=True)
        store_partial(partials, column, i_row, i_segment, n_rows, n_segments, COLUMN)
        store_partial(partials, second, i_row, i_segment, n_rows, n_segments, SECOND)
        store_partial(partials, second_sum, i_row, i_segment, n_rows, n_segments, SECOND_SUM)


@triton.jit
def _whole_row(partials, i_row, n_rows, n_segments, UNBOUNDED: tl.constexpr, SEGMENTS: tl.constexpr):
    """What one program finds that walks over the whole row: its largest logit, the column and the reference of its
    rivals, their sum and masses, and the mass on the largest. Distances of few segments deserve the exact
    exponential."""
    b_top = load_partials(partials, LOWEST, i_row, n_rows, n_segments, TOP, SEGMENTS)
    b_count = load_partials(partials, 0.0, i_row, n_rows, n_segments, COUNT, SEGMENTS)
    b_sum = load_partials(partials, 0.0, i_row, n_rows, n_segments, RIVAL_SUM, SEGMENTS)
    b_u = load_partials(partials, 0.0, i_row, n_rows, n_segments, U_RIVALS, SEGMENTS)
    b_u_top = load_partials(partials, 0.0, i_row, n_rows, n_segments, U_LARGEST, SEGMENTS)
    b_distance = load_partials(partials, 0.0, i_row, n_rows, n_segments, DISTANCE, SEGMENTS)
    largest = tl.max(b_top, axis=0)
    count, rival_sum, u_rivals, u_largest, distance = together(
        largest, b_top, exp_of_minus(largest - b_top), b_count, b_sum, b_u, b_u_top, b_distance)
    top, rival_sum = largest_and_rivals(largest, count, rival_sum)
    pivot, reference = -1, top
    if UNBOUNDED:
        b_column = load_partials(partials, 0.0, i_row, n_rows, n_segments, COLUMN, SEGMENTS)
        b_column = b_column.to(tl.int32, bitcast=True)
        pivot = tl.min(tl.where((b_top == largest) & (b_count > 0.0), b_column, 2**31 - 1), axis=0)
        b_second = load_partials(partials, LOWEST, i_row, n_rows, n_segments, SECOND, SEGMENTS)
        b_second_sum = load_partials(partials, 0.0, i_row, n_rows, n_segments, SECOND_SUM, SEGMENTS)
        # The largest of every other segment is one of the rivals, where the segment has any logit above -inf.
        is_rival = (b_column != pivot) & (b_count > 0.0)
        reference = tl.maximum(tl.max(b_second, axis=0), tl.max(tl.where(is_rival, b_top, LOWEST), axis=0))
        b_rivals = b_second_sum * exp_of_minus(reference - b_second)
        rival_sum = tl.sum(b_rivals + tl.where(is_rival, exp_of_minus(reference - b_top), 0.0), axis=0)
    return top, pivot, reference, rival_sum, u_rivals, u_largest, distance


# The second pass, for curves that need p for their sums over the rivals.
@triton.jit(do_not_specialize=["n_rows", "n_segments", "segment_blocks", "phase"])
def soft_split_sums_kernel(
    logits, target, weight, partials,
    n_rows, n_segments, segment_blocks, class_units, inner, outer_units, stride_inner, stride_class,
    target_outer_units, target_stride_inner, target_stride_class, phase, label_part, spread, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNBOUNDED: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    VECTOR: tl.constexpr, ENDS: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, SMOOTH: tl.constexpr,
    SEGMENTS: tl.constexpr,
):
    i_row, i_segment = tl.program_id(0) // n_segments, tl.program_id(0) % n_segments
    top, pivot, reference, rival_sum, u_rivals, u_largest, distance = _whole_row(
        partials, i_row, n_rows, n_segments, UNBOUNDED, SEGMENTS)
    p, value, pull, over, reference_p, log_reference_p = largest_class(
        top, reference, rival_sum, k0, k1, k2, k3, KIND, UNBOUNDED)
    start = row_start(i_row, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
    head, n_inner = inner_part(start, phase, class_units * UNIT, ENDS)
    first, n_classes, head, n_inner = segment_of_row(i_segment, segment_blocks * BLOCK, head, class_units * UNIT, ENDS)
    row = logits + start + first.to(tl.int64) * stride_class
    masses = target + row_start(i_row, inner, tl.cast(target_outer_units, tl.int64) * UNIT, target_stride_inner)
    masses += first.to(tl.int64) * target_stride_class
    if WEIGHTED:
        weight += first
    values, pulls, largest = stream_mass_sums(
        row, masses, weight, top, pivot - first, reference, reference_p, log_reference_p, head, n_inner, n_classes,
        stride_class, target_stride_class, label_part, spread, k0, k1, k2, k3, KIND, TAIL, UNBOUNDED, BLOCK, VECTOR,
        ENDS, SMOOTH, WEIGHTED, SIXTEEN_BIT)
    store_partial(partials, values, i_row, i_segment, n_rows, n_segments, VALUES)
    store_partial(partials, pulls, i_row, i_segment, n_rows, n_segments, PULLS)
    store_partial(partials, largest, i_row, i_segment, n_rows, n_segments, LARGEST)


# The last launch: the program of a row's first segment writes the loss of the row or (SUMS) its share of the sum, see
# finish.py, and all write the gradients of their segments. Without gradients there is one program per row, which keeps
# (STATE) what soft_later.py needs of it.
@triton.jit(do_not_specialize=["n_rows", "n_segments", "segment_blocks", "phase"])
def soft_split_end_kernel(
    logits, target, weight, partials, divisor, upstream, loss, shares, counter, grad, by_target, state,
    n_rows, n_segments, segment_blocks, class_units, inner, outer_units, stride_inner, stride_class,
    target_outer_units, target_stride_inner, target_stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, phase, scale, label_part, spread, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNBOUNDED: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
    VECTOR: tl.constexpr, ENDS: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, GRAD: tl.constexpr,
    BY_TARGET: tl.constexpr, STATE: tl.constexpr, SUMS: tl.constexpr, UPSTREAM: tl.constexpr, SMOOTH: tl.constexpr,
    DIVIDED: tl.constexpr, LAST: tl.constexpr, SEGMENTS: tl.constexpr,
):
    i_row, i_segment = tl.program_id(0), 0
    if GRAD or BY_TARGET:
        i_row, i_segment = tl.program_id(0) // n_segments, tl.program_id(0) % n_segments
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    top, pivot, reference, rival_sum, u_rivals, u_largest, distance = _whole_row(
        partials, i_row, n_rows, n_segments, UNBOUNDED, SEGMENTS)
    p, value, pull, over, reference_p, log_reference_p = largest_class(
        top, reference, rival_sum, k0, k1, k2, k3, KIND, UNBOUNDED)
    if TAIL == LIKE_CROSS_ENTROPY:
        values, pulls = -distance - u_rivals * log_reference_p, u_rivals
    else:
        values = sum_of_partials(partials, i_row, n_rows, n_segments, VALUES, SEGMENTS)
        pulls = sum_of_partials(partials, i_row, n_rows, n_segments, PULLS, SEGMENTS)
        u_largest = sum_of_partials(partials, i_row, n_rows, n_segments, LARGEST, SEGMENTS)
    row_loss, factor, base, ratio = row_terms(p, value, pull, over, reference_p, rival_sum, u_largest, values, pulls)
    if STATE:
        store_soft_state(state, i_row, True, n_rows, top, factor, base, ratio, u_largest, pull, reference_p,
                         log_reference_p, TAIL)
    if GRAD or BY_TARGET:
        start = row_start(i_row, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
        head, n_inner = inner_part(start, phase, class_units * UNIT, ENDS)
        first, n_classes, head, n_inner = segment_of_row(
            i_segment, segment_blocks * BLOCK, head, class_units * UNIT, ENDS)
        row = logits + start + first.to(tl.int64) * stride_class
        target_start = row_start(i_row, inner, tl.cast(target_outer_units, tl.int64) * UNIT, target_stride_inner)
        target_start += first.to(tl.int64) * target_stride_class
        masses = target + target_start
        if WEIGHTED:
            weight += first
        row_scale = scale
        if UPSTREAM == EACH:
            row_scale *= tl.load(upstream + i_row).to(tl.float32)
        if UPSTREAM == ONE:
            row_scale *= tl.load(upstream).to(tl.float32)
        out, out_by_target = row, masses
        if GRAD:
            out = grad + row_start(i_row, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)
            out += first.to(tl.int64) * grad_stride_class
        if BY_TARGET:
            out_by_target = by_target + target_start
        stream_slopes(
            row, masses, weight, out, out_by_target, top, pivot - first, reference, reference_p, log_reference_p, value,
            pull, u_largest, factor, base, ratio, row_scale, head, n_inner, n_classes, stride_class,
            target_stride_class, grad_stride_class, label_part, spread, k0, k1, k2, k3, KIND, TAIL, UNBOUNDED,
            BLOCK, VECTOR, ENDS, SMOOTH, WEIGHTED, SIXTEEN_BIT, GRAD, BY_TARGET)
        row_loss = tl.where(i_segment == 0, row_loss, 0.0)
    if SUMS:
        finish(shares, counter, loss, row_loss, scale, LAST)
    else:
        tl.store(loss + i_row, row_loss, mask=i_segment == 0)
