"""A row that is read block by block: the rivals' maximum and sums, and where a value stands.

``row`` points at the first class; ``head`` and ``n_inner`` are its inner part, see ``ends.py``.
"""

import triton
import triton.language as tl

from .ends import end_columns, inner_row
from .maths import INF, LOG2E, LOWEST, shifted


@triton.jit
def offsets(BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    """Columns of a block, VECTOR neighbours to a line: one vector load, and sums along a line stay in one thread."""
    return tl.arange(0, BLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]


# The online logsumexp of a row without its pivot. Every line of the block has a running maximum and sum of its own, so
# that no two warps wait for each other before the row ends. With MOMENTS also the sum of the logits, measured from
# ``origin`` because what they have in common would cost digits; with SQUARES that of exp(2 (z - top)).
@triton.jit
def stream_rivals(row, pivot, origin, head, n_inner, n_classes, stride, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
                  ENDS: tl.constexpr, SIXTEEN_BIT: tl.constexpr, MOMENTS: tl.constexpr, SQUARES: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_top = tl.full([BLOCK // VECTOR], LOWEST, tl.float32)
    b_sum = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_two, b_total = b_sum, b_sum
    inner = inner_row(row, head, ENDS)
    i_pivot = pivot - head
    for first in tl.range(0, n_inner, BLOCK, num_stages=1):
        o_c = first + o_b
        m_c = o_c < n_inner
        z = tl.load(inner + o_c.to(tl.int64) * stride, mask=m_c, other=-INF,
                    eviction_policy="evict_last").to(tl.float32)
        if MOMENTS:
            b_total += tl.sum(tl.where(m_c, z - origin, 0.0), axis=1)
        if (i_pivot >= first) & (i_pivot < first + BLOCK):
            z = tl.where(o_c == i_pivot, -INF, z)
        b_new = tl.maximum(b_top, tl.max(z, axis=1))
        b_scale = tl.exp2((b_top - b_new) * LOG2E)
        e = tl.exp2(shifted(z, b_new[:, None], SIXTEEN_BIT))
        b_sum = b_sum * b_scale + tl.sum(e, axis=1)
        if SQUARES:
            b_two = b_two * (b_scale * b_scale) + tl.sum(e * e, axis=1)
        b_top = b_new
    top = tl.max(b_top, axis=0)
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        z_e = tl.load(row + o_e, mask=m_e, other=-INF).to(tl.float32)
        rivals_e = tl.where(o_e == pivot, -INF, z_e)
        top = tl.maximum(top, tl.max(rivals_e, axis=0))
        e_e = tl.exp2(shifted(rivals_e, top, SIXTEEN_BIT))
    b_scale = tl.exp2((b_top - top) * LOG2E)
    rival_sum = tl.sum(b_sum * b_scale, axis=0)
    if ENDS:
        rival_sum += tl.sum(e_e, axis=0)
    two, total = rival_sum, rival_sum
    if SQUARES:
        two = tl.sum(b_two * (b_scale * b_scale), axis=0)
        if ENDS:
            two += tl.sum(e_e * e_e, axis=0)
    if MOMENTS:
        total = tl.sum(b_total, axis=0)
        if ENDS:
            total += tl.sum(tl.where(m_e, z_e - origin, 0.0), axis=0)
    return top, rival_sum, two, total


# The first column that holds this value, other than the one left out.
@triton.jit
def stream_index(row, value, left_out, head, n_inner, n_classes, stride, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
                 ENDS: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_first = tl.full([BLOCK // VECTOR], 2**31 - 1, tl.int32)
    inner = inner_row(row, head, ENDS)
    for first in tl.range(0, n_inner, BLOCK):
        o = first + o_b
        z = tl.load(inner + o.to(tl.int64) * stride, mask=o < n_inner, other=-INF).to(tl.float32)
        o_c = o + head
        hit = (z == value) & (o < n_inner) & (o_c != left_out)
        b_first = tl.minimum(b_first, tl.min(tl.where(hit, o_c, 2**31 - 1), axis=1))
    column = tl.minimum(tl.min(b_first, axis=0), n_classes - 1)
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        z_e = tl.load(row + o_e, mask=m_e, other=-INF).to(tl.float32)
        hit = (z_e == value) & m_e & (o_e != left_out)
        column = tl.minimum(column, tl.min(tl.where(hit, o_e, 2**31 - 1), axis=0))
    return column
