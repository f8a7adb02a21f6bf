"""The squared error of a softmax where few rows are long: three launches, see ``segments.py``."""

import triton
import triton.language as tl

from .ends import inner_part
from .finish import finish
from .maths import EACH, LOWEST, ONE, exp_of_minus
from .mse import store_errors
from .mse_streamed import label_of_row, largest_of_all, stream_errors, stream_largest, stream_slopes
from .segments import load_partials, segment_of_row, store_partial, sum_of_partials

# The partials, by their numbers: what stream_largest returns, and from the second launch on what stream_errors returns.
TOP = tl.constexpr(0)
COUNT = tl.constexpr(1)
RIVALS = tl.constexpr(2)
LOSS = tl.constexpr(3)
OF_TOP = tl.constexpr(4)
OF_REST = tl.constexpr(5)
NUMBERS = 6


@triton.jit
def _segment(i_segment, size, start, phase, n_classes, ENDS: tl.constexpr):
    """:func:`segment_of_row` of the row at this offset of the logits."""
    head, n_inner = inner_part(start, phase, n_classes, ENDS)
    return segment_of_row(i_segment, size, head, n_classes, ENDS)


# The first pass over a segment. Reads the logits, writes the partials.
@triton.jit(do_not_specialize=["n_rows", "n_segments", "segment_blocks", "phase"])
def mse_split_kernel(
    logits, partials, n_rows, n_segments, segment_blocks, class_units, stride_units, phase,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr, SIXTEEN_BIT: tl.constexpr,
):
    i_row, i_segment = tl.program_id(0) // n_segments, tl.program_id(0) % n_segments
    start = tl.cast(i_row, tl.int64) * (tl.cast(stride_units, tl.int64) * UNIT)
    first, n_classes, head, n_inner = _segment(
        i_segment, segment_blocks * BLOCK, start, phase, class_units * UNIT, ENDS)
    top, count, rivals = stream_largest(
        logits + start + first, head, n_inner, n_classes, BLOCK, VECTOR, ENDS, SIXTEEN_BIT)
    store_partial(partials, top, i_row, i_segment, n_rows, n_segments, TOP)
    store_partial(partials, count, i_row, i_segment, n_rows, n_segments, COUNT)
    store_partial(partials, rivals, i_row, i_segment, n_rows, n_segments, RIVALS)


@triton.jit
def _whole_row(partials, i_row, n_rows, n_segments, SEGMENTS: tl.constexpr):
    """The largest logit of a row and the sum over its rivals."""
    b_top = load_partials(partials, LOWEST, i_row, n_rows, n_segments, TOP, SEGMENTS)
    b_count = load_partials(partials, 0.0, i_row, n_rows, n_segments, COUNT, SEGMENTS)
    b_sum = load_partials(partials, 0.0, i_row, n_rows, n_segments, RIVALS, SEGMENTS)
    top = tl.max(b_top, axis=0)
    count, rivals = largest_of_all(top, b_top, exp_of_minus(top - b_top), b_count, b_sum)
    return top, rivals + (count - 1.0)


# The second pass: the sums, or (VALUES) the losses, and the sums for the gradient.
@triton.jit(do_not_specialize=["n_rows", "n_segments", "segment_blocks", "phase"])
def mse_split_sums_kernel(
    logits, target, upstream, loss, partials,
    n_rows, n_segments, segment_blocks, class_units, stride_units, target_units, phase,
    SOFT: tl.constexpr, BONUS: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
    ENDS: tl.constexpr, SIXTEEN_BIT: tl.constexpr, VALUES: tl.constexpr, UPSTREAM: tl.constexpr, SEGMENTS: tl.constexpr,
):
    i_row, i_segment = tl.program_id(0) // n_segments, tl.program_id(0) % n_segments
    top, rivals = _whole_row(partials, i_row, n_rows, n_segments, SEGMENTS)
    i_row = tl.cast(i_row, tl.int64)
    start = i_row * (tl.cast(stride_units, tl.int64) * UNIT)
    first, n_classes, head, n_inner = _segment(
        i_segment, segment_blocks * BLOCK, start, phase, class_units * UNIT, ENDS)
    masses, y, known = label_of_row(target, i_row, tl.cast(target_units, tl.int64) * UNIT, class_units * UNIT, SOFT)
    if SOFT:
        masses += first
    own = i_row * (class_units * UNIT)
    losses, above, above_first = loss, upstream, 0.0
    if VALUES:
        losses += own + first
    if UPSTREAM == EACH:
        above_first = tl.load(upstream + own).to(tl.float32)
        above += own + first
    row_loss, of_top, of_rest = stream_errors(
        logits + start + first, masses, y - first, above, losses, above_first, known, top, rivals, 1.0 / (1.0 + rivals),
        head, n_inner, n_classes, SOFT, BONUS, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, VALUES, UPSTREAM)
    store_partial(partials, row_loss, i_row, i_segment, n_rows, n_segments, LOSS)
    store_partial(partials, of_top, i_row, i_segment, n_rows, n_segments, OF_TOP)
    store_partial(partials, of_rest, i_row, i_segment, n_rows, n_segments, OF_REST)


# The last launch, which losses that nobody adds up (VALUES) do without: the program of a row's first segment leaves its
# share of the sum, see finish.py, and all write the gradient of their segments. Without a gradient there is one program
# per row, which keeps (STATE) what mse_later.py needs of it.
@triton.jit(do_not_specialize=["n_rows", "n_segments", "segment_blocks", "phase"])
def mse_split_end_kernel(
    logits, target, divisor, upstream, loss, shares, counter, grad, state, partials,
    n_rows, n_segments, segment_blocks, class_units, stride_units, target_units, phase, scale,
    SOFT: tl.constexpr, BONUS: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
    ENDS: tl.constexpr, SIXTEEN_BIT: tl.constexpr, DIVIDED: tl.constexpr, GRAD: tl.constexpr, UPSTREAM: tl.constexpr,
    STATE: tl.constexpr, LAST: tl.constexpr, SEGMENTS: tl.constexpr,
):
    i_row, i_segment = tl.program_id(0), 0
    if GRAD:
        i_row, i_segment = tl.program_id(0) // n_segments, tl.program_id(0) % n_segments
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    row_loss = sum_of_partials(partials, i_row, n_rows, n_segments, LOSS, SEGMENTS)
    if GRAD or STATE:
        top, rivals = _whole_row(partials, i_row, n_rows, n_segments, SEGMENTS)
        of_top = sum_of_partials(partials, i_row, n_rows, n_segments, OF_TOP, SEGMENTS)
        of_rest = sum_of_partials(partials, i_row, n_rows, n_segments, OF_REST, SEGMENTS)
    if STATE:
        masses, y, known = label_of_row(target, i_row, 0, class_units * UNIT, SOFT)
        store_errors(state, i_row, True, n_rows, top, rivals, of_top, of_rest * known)
    if GRAD:
        row_loss = tl.where(i_segment == 0, row_loss, 0.0)
        above_all = scale
        if UPSTREAM == ONE:
            above_all *= tl.load(upstream).to(tl.float32)
        i_row = tl.cast(i_row, tl.int64)
        start = i_row * (tl.cast(stride_units, tl.int64) * UNIT)
        first, n_classes, head, n_inner = _segment(
            i_segment, segment_blocks * BLOCK, start, phase, class_units * UNIT, ENDS)
        masses, y, known = label_of_row(target, i_row, tl.cast(target_units, tl.int64) * UNIT, class_units * UNIT, SOFT)
        if SOFT:
            masses += first
        own = i_row * (class_units * UNIT)
        above, above_first = upstream, 0.0
        if UPSTREAM == EACH:
            above_first = tl.load(upstream + own).to(tl.float32)
            above += own + first
        stream_slopes(logits + start + first, masses, y - first, above, grad + own + first, above_first,
                      above_all * known, top, rivals, 1.0 / (1.0 + rivals), of_top, of_rest, head, n_inner, n_classes,
                      SOFT, BONUS, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, UPSTREAM)
    finish(shares, counter, loss, row_loss, scale, LAST)
