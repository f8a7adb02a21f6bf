"""Few long rows, each split into segments: one program per row and segment, and one launch per pass over the row.

One program per row leaves most of a GPU idle where rows are few. So every pass is a launch of its own, and each of its
programs walks over one segment. It begins by adding up what the launch before has left of its row: a few numbers per
segment, the *partials*, in a fixed order. No program waits for another of its launch, and the result has the same bits
every time.

A segment is a short row of its own to the functions that walk over rows: it has a first column, a head, an inner part
and ends, see ``ends.py``. Columns, labels and weights are then counted from its first column.
"""

import triton
import triton.language as tl


@triton.jit
def segment_of_row(i_segment, size, head, n_classes, ENDS: tl.constexpr):
    """The first column of a segment, how many columns it has, the head and the inner part among them. ``size`` is a
    multiple of a block, so that every segment but the first begins aligned. The last ones of a row with a head may be
    empty."""
    first = i_segment * size
    if ENDS:
        end = tl.minimum(first + size + head, n_classes)
        first = tl.where(i_segment == 0, 0, first + head)
        own_head = tl.where(i_segment == 0, head, 0)
        n_columns = tl.maximum(end - first, 0)
        n_inner = tl.maximum(n_columns - own_head, 0) // ENDS * ENDS
    else:
        own_head = head
        n_columns = tl.maximum(tl.minimum(size, n_classes - first), 0)
        n_inner = n_columns
    return first, n_columns, own_head, n_inner


@triton.jit
def store_partial(partials, number, i_row, i_segment, n_rows, n_segments, NUMBER: tl.constexpr):
    """Leave one number of a segment: the one with this NUMBER."""
    tl.store(partials + (NUMBER * n_rows + i_row) * n_segments + i_segment, number)


@triton.jit
def load_partials(partials, other, i_row, n_rows, n_segments, NUMBER: tl.constexpr, SEGMENTS: tl.constexpr):
    """One number of every segment of a row; ``other`` where there is no segment."""
    o = tl.arange(0, SEGMENTS)
    return tl.load(partials + (NUMBER * n_rows + i_row) * n_segments + o, mask=o < n_segments, other=other)


@triton.jit
def sum_of_partials(partials, i_row, n_rows, n_segments, NUMBER: tl.constexpr, SEGMENTS: tl.constexpr):
    return tl.sum(load_partials(partials, 0.0, i_row, n_rows, n_segments, NUMBER, SEGMENTS), axis=0)
