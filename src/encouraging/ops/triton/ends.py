"""Rows that do not start at a multiple of 16 bytes, read and written in aligned vectors all the same.

A row of 50257 classes in 16 bits starts anywhere. Its inner part is made of the aligned vectors of VECTOR elements that
lie wholly inside the row: it is read and written as an aligned row is. The two *ends* before and after it, each less
than a vector, are a small tile of their own, element by element. Nothing outside the row is touched. ENDS is VECTOR
where rows have ends, and 0 where they are aligned as they lie: then the inner part is the row.
"""

import triton
import triton.language as tl


@triton.jit
def inner_part(start, phase, n_classes, ENDS: tl.constexpr):
    """The first column of a row's inner part, and how many it has. The row starts at an offset of the tensor, and
    ``phase`` is the offset of the tensor itself from an aligned address."""
    head, n_inner = 0, n_classes
    if ENDS:
        head = ((ENDS - (start + phase) % ENDS) % ENDS).to(tl.int32)
        head = tl.minimum(head, n_classes)
        n_inner = (n_classes - head) // ENDS * ENDS
    return head, n_inner


@triton.jit
def inner_row(row, head, ENDS: tl.constexpr):
    """Where the inner part of a row begins."""
    if ENDS:
        row = tl.multiple_of(row + head, 16)
    return row


@triton.jit
def end_columns(head, n_inner, n_classes, ENDS: tl.constexpr):
    """The columns of a row's two ends, and which of them exist."""
    o = tl.arange(0, 2 * ENDS)
    o_e = tl.where(o < ENDS, o, o - ENDS + head + n_inner)
    return o_e, tl.where(o < ENDS, o < head, o_e < n_classes)
