"""Loss of labels where few rows are long, smoothed or not: two or three launches, see ``segments.py``.

They leave the state of every row, from which ``later_kernel`` of ``around.py`` writes the gradient: that one has many
programs per row as well.
"""

import triton
import triton.language as tl

from .blocks import stream_index, stream_rivals
from .curves import LIKE_NORMAL, chances
from .ends import inner_part
from .finish import divisor_of, finish_mean
from .maths import INF, LOWEST, exp_of_minus, row_start
from .rows import (
    closed_values,
    plain_row,
    read_label,
    short_series,
    smooth_row,
    store_by_products,
    store_lengths,
    store_smooth_state,
    store_state,
)
from .segments import load_partials, segment_of_row, store_partial, sum_of_partials
from .streamed_smooth import stream_sums

# The partials, by their numbers: the largest of the label's rivals, the sums of exp(z - top) and of its square, and the
# sum of all logits; with smoothing the largest rival's column, and the same of all classes but that one; the column of
# the largest logit, and that logit; from the second launch on, what stream_sums returns.
TOP = tl.constexpr(0)
RIVAL_SUM = tl.constexpr(1)
SQUARES = tl.constexpr(2)
TOTAL = tl.constexpr(3)
HAS_LABEL = tl.constexpr(4)
COLUMN = tl.constexpr(5)
SECOND = tl.constexpr(6)
SECOND_SUM = tl.constexpr(7)
BEST = tl.constexpr(8)
BEST_COLUMN = tl.constexpr(9)
VALUES = tl.constexpr(10)
PULLS = tl.constexpr(11)
NUMBERS = 12


@triton.jit
def _label(logits, target, weight, i_row, start, n_classes, stride_class, ignore_index, WEIGHTED: tl.constexpr):
    """What ``read_label`` returns, and the label's logit."""
    y, taught, w, fill = read_label(target, weight, i_row, i_row >= 0, n_classes, ignore_index, WEIGHTED)
    z_y = tl.load(logits + start + tl.where(taught, y, 0).to(tl.int64) * stride_class, mask=taught,
                  other=-INF).to(tl.float32)
    return y, taught, w, fill, z_y


@triton.jit
def _origin(z_y):
    """From where logits are measured in their sum."""
    return tl.where((z_y > -INF) & (z_y < INF), z_y, 0.0)


# The first pass over a segment: the label's rivals. A rival with p > 1/2 has more than half of its segment too: then
# two more passes find its column and what the sums are without it. Reads the logits, writes the partials.
@triton.jit(do_not_specialize=["n_rows", "n_segments", "segment_blocks", "ignore_index", "phase"])
def split_kernel(
    logits, target, weight, partials,
    n_rows, n_segments, segment_blocks, class_units, inner, outer_units, stride_inner, stride_class, ignore_index,
    phase,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr, WEIGHTED: tl.constexpr,
    SIXTEEN_BIT: tl.constexpr, SMOOTH: tl.constexpr, MOMENTS: tl.constexpr, LENGTHS: tl.constexpr, STATS: tl.constexpr,
):
    i_row, i_segment = tl.program_id(0) // n_segments, tl.program_id(0) % n_segments
    start = row_start(i_row, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
    y, taught, w, fill, z_y = _label(logits, target, weight, i_row, start, class_units * UNIT, stride_class,
                                     ignore_index, WEIGHTED)
    # A row that teaches nothing is not read: it has no classes.
    n_read = class_units * UNIT if STATS else tl.where(taught, class_units * UNIT, 0)
    head, n_inner = inner_part(start, phase, n_read, ENDS)
    first, n_classes, head, n_inner = segment_of_row(i_segment, segment_blocks * BLOCK, head, n_read, ENDS)
    row = logits + start + first.to(tl.int64) * stride_class
    label = y - first
    has_label = taught & (label >= 0) & (label < n_classes)
    top, rival_sum, two, total = stream_rivals(
        row, label, _origin(z_y), head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, MOMENTS,
        LENGTHS)
    store_partial(partials, top, i_row, i_segment, n_rows, n_segments, TOP)
    store_partial(partials, rival_sum, i_row, i_segment, n_rows, n_segments, RIVAL_SUM)
    if LENGTHS:
        store_partial(partials, two, i_row, i_segment, n_rows, n_segments, SQUARES)
    if MOMENTS:
        store_partial(partials, total, i_row, i_segment, n_rows, n_segments, TOTAL)
    if SMOOTH:
        column, second, second_sum = label, top, rival_sum
        if rival_sum < 2.0:
            column = stream_index(row, top, label, head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS)
            second, second_sum, two, total = stream_rivals(
                row, column, 0.0, head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, False,
                False)
        column = (column + first).to(tl.float32, bitcast=True)
        store_partial(partials, tl.where(has_label, 1.0, 0.0), i_row, i_segment, n_rows, n_segments, HAS_LABEL)
        store_partial(partials, column, i_row, i_segment, n_rows, n_segments, COLUMN)
        store_partial(partials, second, i_row, i_segment, n_rows, n_segments, SECOND)
        store_partial(partials, second_sum, i_row, i_segment, n_rows, n_segments, SECOND_SUM)
    if STATS:
        best = tl.where(has_label & (z_y > top), z_y, top)
        column = stream_index(row, best, -1, head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS) + first
        store_partial(partials, best, i_row, i_segment, n_rows, n_segments, BEST)
        store_partial(partials, column.to(tl.float32, bitcast=True), i_row, i_segment, n_rows, n_segments, BEST_COLUMN)


@triton.jit
def _rivals(partials, i_row, n_rows, n_segments, LENGTHS: tl.constexpr, SEGMENTS: tl.constexpr):
    """What ``stream_rivals`` finds in the whole row but for the sum of the logits: few distances, which deserve the
    exact exponential."""
    b_top = load_partials(partials, LOWEST, i_row, n_rows, n_segments, TOP, SEGMENTS)
    b_sum = load_partials(partials, 0.0, i_row, n_rows, n_segments, RIVAL_SUM, SEGMENTS)
    top = tl.max(b_top, axis=0)
    b_scale = exp_of_minus(top - b_top)
    two = top
    if LENGTHS:
        b_two = load_partials(partials, 0.0, i_row, n_rows, n_segments, SQUARES, SEGMENTS)
        two = tl.sum(b_two * (b_scale * b_scale), axis=0)
    return top, tl.sum(b_sum * b_scale, axis=0), two


@triton.jit
def _pivot(partials, i_row, n_rows, n_segments, y, z_y, taught, SEGMENTS: tl.constexpr):
    """The class that is set apart with smoothing, its logit, and its rivals: the label, or another one with p > 1/2."""
    top, rival_sum, two = _rivals(partials, i_row, n_rows, n_segments, False, SEGMENTS)
    gap, p, q, surprise, log_q, top_p, log_top_p = chances(z_y, top, rival_sum)
    mistaken = taught & (top_p > 0.5)
    b_top = load_partials(partials, LOWEST, i_row, n_rows, n_segments, TOP, SEGMENTS)
    b_sum = load_partials(partials, 0.0, i_row, n_rows, n_segments, RIVAL_SUM, SEGMENTS)
    b_has_label = load_partials(partials, 0.0, i_row, n_rows, n_segments, HAS_LABEL, SEGMENTS)
    b_column = load_partials(partials, 0.0, i_row, n_rows, n_segments, COLUMN, SEGMENTS).to(tl.int32, bitcast=True)
    b_second = load_partials(partials, LOWEST, i_row, n_rows, n_segments, SECOND, SEGMENTS)
    b_second_sum = load_partials(partials, 0.0, i_row, n_rows, n_segments, SECOND_SUM, SEGMENTS)
    # One segment has the pivot. A class with p > 1/2 is alone on top, but with rounding p of one of two equal classes
    # may be above 1/2: the other one stays among the rivals.
    o = tl.arange(0, SEGMENTS)
    is_own = o == tl.min(tl.where(b_top == top, o, SEGMENTS), axis=0)
    pivot = tl.max(tl.where(is_own, b_column, -1), axis=0)
    # Without the pivot, the sums of its segment have the label, if that is there; those of all others do not.
    with_label = tl.sum(tl.where(is_own, b_has_label, 0.0), axis=0) > 0.0
    z_added = tl.where(with_label, -INF, z_y)
    b_top = tl.where(is_own, b_second, b_top)
    b_sum = tl.where(is_own, b_second_sum, b_sum)
    second = tl.maximum(tl.max(b_top, axis=0), z_added)
    second_sum = tl.sum(b_sum * exp_of_minus(second - b_top), axis=0) + exp_of_minus(second - z_added)
    return (tl.where(mistaken, pivot, y), tl.where(mistaken, top, z_y), tl.where(mistaken, second, top),
            tl.where(mistaken, second_sum, rival_sum))


# The second pass, for smoothed curves and weights that have no closed sums.
@triton.jit(do_not_specialize=["n_rows", "n_segments", "segment_blocks", "ignore_index", "phase"])
def split_sums_kernel(
    logits, target, weight, partials,
    n_rows, n_segments, segment_blocks, class_units, inner, outer_units, stride_inner, stride_class, ignore_index,
    phase, k0, k1, k2, k3,
    KIND: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr,
    WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, SEGMENTS: tl.constexpr,
):
    i_row, i_segment = tl.program_id(0) // n_segments, tl.program_id(0) % n_segments
    start = row_start(i_row, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
    y, taught, w, fill, z_y = _label(logits, target, weight, i_row, start, class_units * UNIT, stride_class,
                                     ignore_index, WEIGHTED)
    pivot, z_pivot, top, rival_sum = _pivot(partials, i_row, n_rows, n_segments, y, z_y, taught, SEGMENTS)
    gap, p, q, surprise, log_q, top_p, log_top_p = chances(z_pivot, top, rival_sum)
    n_read = tl.where(taught, class_units * UNIT, 0)
    head, n_inner = inner_part(start, phase, n_read, ENDS)
    first, n_classes, head, n_inner = segment_of_row(i_segment, segment_blocks * BLOCK, head, n_read, ENDS)
    if WEIGHTED:
        weight += first
    values, pulls = stream_sums(
        logits + start + first.to(tl.int64) * stride_class, weight, pivot - first, 1.0, top, top_p, log_top_p, head,
        n_inner, n_classes, stride_class, k0, k1, k2, k3, KIND, BLOCK, VECTOR, ENDS, WEIGHTED, SIXTEEN_BIT)
    store_partial(partials, values, i_row, i_segment, n_rows, n_segments, VALUES)
    store_partial(partials, pulls, i_row, i_segment, n_rows, n_segments, PULLS)


# The last launch, one program per row: its loss or (SUMS) its share of the sum, see finish.py, its state, the lengths
# for norm matching and the by-products.
@triton.jit(do_not_specialize=["n_rows", "n_segments", "ignore_index"])
def split_end_kernel(
    logits, target, weight, partials, partial_weights, loss, shares, counter, state, lengths, p_out, lse_out,
    argmax_out,
    n_rows, n_segments, class_units, inner, outer_units, stride_inner, stride_class, ignore_index, smoothing,
    label_part, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, N_PARTIAL: tl.constexpr, WEIGHTED: tl.constexpr,
    SIXTEEN_BIT: tl.constexpr, SMOOTH: tl.constexpr, MOMENTS: tl.constexpr, STATE: tl.constexpr, LENGTHS: tl.constexpr,
    SUMS: tl.constexpr, STATS: tl.constexpr, COUNT: tl.constexpr, LAST: tl.constexpr, SEGMENTS: tl.constexpr,
):
    n_classes = class_units * UNIT
    i_row = tl.program_id(0)
    m_r = i_row < n_rows
    denominator = divisor_of(partial_weights, shares, target, weight, n_rows, n_classes, ignore_index, N_PARTIAL, COUNT,
                             WEIGHTED)
    start = row_start(i_row, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
    y, taught, w, fill, z_y = _label(logits, target, weight, i_row, start, n_classes, stride_class, ignore_index,
                                     WEIGHTED)
    if SMOOTH:
        pivot, z_pivot, top, rival_sum = _pivot(partials, i_row, n_rows, n_segments, y, z_y, taught, SEGMENTS)
        gap, p, q, surprise, log_q, top_p, log_top_p = chances(z_pivot, top, rival_sum)
        base = tl.where(taught, smoothing / n_classes, 0.0)
        own, own_of_label = base, base * w if WEIGHTED else base
        if WEIGHTED:
            own *= tl.load(weight + tl.where(taught, pivot, 0), mask=taught, other=0.0).to(tl.float32)
        if MOMENTS:
            count, origin = n_classes - 1.0, _origin(z_y)
            total = sum_of_partials(partials, i_row, n_rows, n_segments, TOTAL, SEGMENTS)
            total -= tl.where(z_pivot > -INF, z_pivot - origin, 0.0) + count * (top - origin)
            values = closed_values(count, total, log_top_p)
            pulls = top_p * 0.0 + count
            if TAIL == LIKE_NORMAL:
                product, inverse, left_out = short_series(rival_sum, rival_sum, top_p, True)
                values += product
                pulls += inverse
        else:
            values = sum_of_partials(partials, i_row, n_rows, n_segments, VALUES, SEGMENTS)
            pulls = sum_of_partials(partials, i_row, n_rows, n_segments, PULLS, SEGMENTS)
        row_loss, factor, at_pivot, at_label = smooth_row(
            gap, p, q, surprise, log_q, top_p, log_top_p, z_y, top, rival_sum, base * values, base * pulls, own,
            own_of_label, label_part * w, pivot == y, k0, k1, k2, k3, KIND, SIXTEEN_BIT)
    else:
        pivot, z_pivot = y, z_y
        top, rival_sum, two = _rivals(partials, i_row, n_rows, n_segments, LENGTHS, SEGMENTS)
        row_loss, factor, at_pivot, q = plain_row(z_y, top, rival_sum, w, k0, k1, k2, k3, KIND)
    row_loss = tl.where(taught, row_loss, fill)
    factor = tl.where(taught, factor, fill)
    if not SUMS:
        tl.store(loss + i_row, row_loss)
    if STATE:
        store_state(state, i_row, m_r, n_rows, top, factor, at_pivot, pivot)
        if SMOOTH:
            store_smooth_state(state, i_row, m_r, n_rows, top_p, at_label, log_top_p)
    if LENGTHS:
        store_lengths(lengths, i_row, m_r, n_rows, taught, fill, w, q, at_pivot, rival_sum, two)
    if STATS:
        b_best = load_partials(partials, -INF, i_row, n_rows, n_segments, BEST, SEGMENTS)
        b_column = load_partials(partials, 0.0, i_row, n_rows, n_segments, BEST_COLUMN, SEGMENTS)
        b_column = tl.where(b_best == tl.max(b_best, axis=0), b_column.to(tl.int32, bitcast=True), n_classes - 1)
        store_by_products(p_out, lse_out, argmax_out, i_row, m_r, taught, z_y, z_pivot, top, rival_sum,
                          tl.min(b_column, axis=0))
    if SUMS:
        finish_mean(shares, counter, loss, state, n_rows, row_loss, w, denominator, COUNT, N_PARTIAL,
                    (7 if SMOOTH else 4) if STATE else 0, LAST)
