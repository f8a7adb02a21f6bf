"""A row that is read block by block: its maximum and sums, where a value stands, its gradient."""

import triton
import triton.language as tl

from .maths import INF, LOG2E, LOWEST, shifted


@triton.jit
def offsets(BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    """Columns of a block, VECTOR neighbours to a line: one vector load, and sums along a line stay in one thread."""
    return tl.arange(0, BLOCK // VECTOR)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]


# The online logsumexp of a row without its pivot. Every line of the block has a running maximum and sum of its own, so
# that no two warps wait for each other before the row ends. With MOMENTS also the sum of the logits, measured from
# ``origin`` because what they have in common would cost digits, and, for float32, of exp(2 (z - top)).
@triton.jit
def stream_rivals(row, pivot, origin, n_classes, stride, BLOCK: tl.constexpr, VECTOR: tl.constexpr,
                  SIXTEEN_BIT: tl.constexpr, MOMENTS: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_top = tl.full([BLOCK // VECTOR], LOWEST, tl.float32)
    b_sum = tl.zeros([BLOCK // VECTOR], tl.float32)
    b_two, b_total = b_sum, b_sum
    for start in tl.range(0, n_classes, BLOCK, num_stages=1):
        o_c = start + o_b
        m_c = o_c < n_classes
        z = tl.load(row + o_c.to(tl.int64) * stride, mask=m_c, other=-INF, eviction_policy="evict_last").to(tl.float32)
        if MOMENTS:
            b_total += tl.sum(tl.where(m_c, z - origin, 0.0), axis=1)
        if (pivot >= start) & (pivot < start + BLOCK):
            z = tl.where(o_c == pivot, -INF, z)
        b_new = tl.maximum(b_top, tl.max(z, axis=1))
        b_scale = tl.exp2((b_top - b_new) * LOG2E)
        e = tl.exp2(shifted(z, b_new[:, None], SIXTEEN_BIT))
        b_sum = b_sum * b_scale + tl.sum(e, axis=1)
        if MOMENTS and not SIXTEEN_BIT:
            b_two = b_two * (b_scale * b_scale) + tl.sum(e * e, axis=1)
        b_top = b_new
    top = tl.max(b_top, axis=0)
    b_scale = tl.exp2((b_top - top) * LOG2E)
    rival_sum = tl.sum(b_sum * b_scale, axis=0)
    two, total = rival_sum, rival_sum
    if MOMENTS:
        total = tl.sum(b_total, axis=0)
        if not SIXTEEN_BIT:
            two = tl.sum(b_two * (b_scale * b_scale), axis=0)
    return top, rival_sum, two, total


# The first column that holds this value, other than the one left out.
@triton.jit
def stream_index(row, value, left_out, n_classes, stride, BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    b_first = tl.full([BLOCK // VECTOR], 2**31 - 1, tl.int32)
    for start in tl.range(0, n_classes, BLOCK):
        o_c = start + o_b
        z = tl.load(row + o_c.to(tl.int64) * stride, mask=o_c < n_classes, other=-INF).to(tl.float32)
        hit = (z == value) & (o_c < n_classes) & (o_c != left_out)
        b_first = tl.minimum(b_first, tl.min(tl.where(hit, o_c, 2**31 - 1), axis=1))
    return tl.minimum(tl.min(b_first, axis=0), n_classes - 1)
