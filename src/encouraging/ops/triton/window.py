"""Rows that do not start at a multiple of 16 bytes, read and written in aligned vectors all the same.

A row of 50257 classes in 16 bits starts anywhere. Its *window* is made of the aligned vectors of WINDOW elements that
overlap it: ``shift`` elements before the row, the row, and what the last vector has more. Loads take whole vectors, and
what belongs to other rows is replaced. Stores take the vectors that lie wholly inside the row, and the elements of the
two others one by one. Nothing outside the tensor is read: its first and its last vector are loaded element by element.
With WINDOW = 0 all of this is nothing, and rows are read as they lie.
"""

import triton
import triton.language as tl


@triton.jit
def window_of(start, phase, i_row, n_rows, n_classes, WINDOW: tl.constexpr):
    """The shift of a row that starts at an offset, and whether its first or its last vector leaves the tensor.
    ``phase`` is the offset of the tensor itself from an aligned address."""
    shift, leaves_front, leaves_end = 0, False, False
    if WINDOW:
        shift = ((start + phase) % WINDOW).to(tl.int32)
        leaves_front = (i_row == 0) & (shift > 0)
        leaves_end = (i_row == n_rows - 1) & ((shift + n_classes) % WINDOW > 0)
    return shift, leaves_front, leaves_end


@triton.jit
def end_of(shift, n_classes, WINDOW: tl.constexpr):
    """Where the row ends in its window; 0 where no class is to be read."""
    end = n_classes
    if WINDOW:
        end = tl.where(n_classes > 0, shift + n_classes, 0)
    return end


@triton.jit
def in_row(o, shift, end, WINDOW: tl.constexpr):
    """Which elements of the window are the row's."""
    inside = o < end
    if WINDOW:
        inside &= o >= shift
    return inside


@triton.jit
def ends_of(first, shift, end, leaves_front, leaves_end, BLOCK: tl.constexpr, WINDOW: tl.constexpr):
    """Whether a block of the window that begins at ``first`` has a vector that is only partly the row's, and whether
    one that leaves the tensor."""
    has_ends, leaves = False, False
    if WINDOW:
        has_ends = (first < shift) | (first + BLOCK > end - WINDOW)
        leaves = (leaves_front & (first < shift)) | (leaves_end & (first + BLOCK > end - WINDOW))
    return has_ends, leaves


@triton.jit
def load_window(row, o, shift, end, has_ends, leaves, stride, other, WINDOW: tl.constexpr, EVICTION: tl.constexpr):
    """Elements ``o`` of the window of a row in float32; ``other`` outside the row."""
    if WINDOW:
        pointers = tl.multiple_of(row - shift, 16) + o
        if leaves:
            tile = tl.load(pointers, mask=in_row(o, shift, end, WINDOW), other=other, eviction_policy=EVICTION)
        else:
            tile = tl.load(pointers, mask=o // WINDOW * WINDOW < end, other=other, eviction_policy=EVICTION)
        tile = tile.to(tl.float32)
        if has_ends:
            tile = tl.where(in_row(o, shift, end, WINDOW), tile, other)
        return tile
    else:
        return tl.load(row + o.to(tl.int64) * stride, mask=o < end, other=other,
                       eviction_policy=EVICTION).to(tl.float32)


@triton.jit
def store_window(row, o, shift, end, has_ends, stride, tile, WINDOW: tl.constexpr, EVICTION: tl.constexpr):
    """Write elements ``o`` of the window, as far as they are the row's."""
    if WINDOW:
        pointers = tl.multiple_of(row - shift, 16) + o
        line = o // WINDOW * WINDOW
        whole = (line >= shift) & (line + WINDOW <= end)
        tl.store(pointers, tile, mask=whole, eviction_policy=EVICTION)
        if has_ends:
            tl.store(pointers, tile, mask=in_row(o, shift, end, WINDOW) & (whole == 0), eviction_policy=EVICTION)
    else:
        tl.store(row + o.to(tl.int64) * stride, tile, mask=o < end, eviction_policy=EVICTION)
