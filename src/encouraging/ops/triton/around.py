"""The kernels around the loss: the mean's denominator, its last sum, the upstream gradient, the gradient made later."""

import triton
import triton.language as tl

from .maths import INF, row_start
from .rows import gradient, read_label


# Weights of the labels that count, one sum per program of a fixed grid. The kernels that divide by the mean's
# denominator add the sums up themselves: no atomics, so the result is the same every time, and no second launch.
@triton.jit(do_not_specialize=["n_rows", "ignore_index"])
def denominator_kernel(target, weight, partial_weights, n_rows, n_classes, ignore_index, BLOCK: tl.constexpr,
                       WEIGHTED: tl.constexpr):
    b_sum = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(tl.program_id(0) * BLOCK, n_rows, tl.num_programs(0) * BLOCK):
        o_r = start + tl.arange(0, BLOCK)
        y, taught, w, fill = read_label(target, weight, o_r, o_r < n_rows, n_classes, ignore_index, WEIGHTED)
        b_sum += w
    tl.store(partial_weights + tl.program_id(0), tl.sum(b_sum, axis=0))


# One program: the sum of the programs' losses, over the denominator. 0 / 0 is the NaN that torch gives for no labels.
@triton.jit(do_not_specialize=["n_sums"])
def total_kernel(sums, partial_weights, out, n_sums, N_PARTIAL: tl.constexpr, BLOCK: tl.constexpr):
    b_total = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, n_sums, BLOCK):
        o = start + tl.arange(0, BLOCK)
        b_total += tl.load(sums + o, mask=o < n_sums, other=0.0)
    total = tl.sum(b_total, axis=0)
    if N_PARTIAL:
        total /= tl.sum(tl.load(partial_weights + tl.arange(0, N_PARTIAL)), axis=0)
    tl.store(out, total)


# out = source * upstream. Where that is 1 and nothing is to be copied, all programs exit at once: a few microseconds
# for the whole grid, which is persistent so that it stays small. DENSE buffers are walked in memory order.
@triton.jit
def scale_kernel(source, out, upstream, n_elements, n_classes, inner, stride_outer, stride_inner, stride_class,
                 COPY: tl.constexpr, DENSE: tl.constexpr, BLOCK: tl.constexpr):
    factor = tl.load(upstream).to(tl.float32)
    if COPY or factor != 1.0:
        n_blocks = tl.cdiv(n_elements, BLOCK)
        for i_block in tl.range(tl.program_id(0), n_blocks, tl.num_programs(0)):
            o = tl.cast(i_block, tl.int64) * BLOCK + tl.arange(0, BLOCK)
            m = o < n_elements
            at = o
            if not DENSE:
                at = row_start(o // n_classes, inner, stride_outer, stride_inner) + (o % n_classes) * stride_class
            g = tl.load(source + at, mask=m, other=0.0).to(tl.float32)
            # What is 0 stays 0 under an infinite factor: rows that teach nothing.
            tl.store(out + at, tl.where(g == 0.0, g, g * factor).to(out.dtype.element_ty), mask=m)


# The gradient from the rows' states and any upstream gradient: one read of the logits, one write, no sums.
@triton.jit(do_not_specialize=["n_rows"])
def later_kernel(
    logits, target, weight, state, upstream, grad,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, stride_upstream,
    smoothing, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    WEIGHTED: tl.constexpr, SMOOTH: tl.constexpr, SIXTEEN_BIT: tl.constexpr,
):
    n_classes = class_units * UNIT
    n_blocks = tl.cdiv(n_classes, BLOCK)
    o_c = (tl.program_id(0) % n_blocks) * BLOCK + tl.arange(0, BLOCK)[None, :]
    o_r = (tl.program_id(0) // n_blocks) * ROWS + tl.arange(0, ROWS)
    m_r = o_r < n_rows
    top = tl.load(state + o_r, mask=m_r, other=0.0)[:, None]
    factor = tl.load(state + n_rows + o_r, mask=m_r, other=0.0)
    at_pivot = tl.load(state + 2 * n_rows + o_r, mask=m_r, other=0.0)
    pivot = tl.load(state + 3 * n_rows + o_r, mask=m_r, other=0.0).to(tl.int32, bitcast=True)
    taught = m_r & (pivot >= 0)
    g = tl.load(upstream + o_r.to(tl.int64) * stride_upstream, mask=m_r, other=0.0).to(tl.float32)
    # An ignored row has gradient 0 under any upstream gradient, also the infinite one of a mean over no labels.
    g = tl.where(taught | (factor != 0.0), g, 0.0)[:, None]
    top_p, log_top_p, base = top, top, top
    if SMOOTH:
        top_p = tl.load(state + 4 * n_rows + o_r, mask=m_r, other=0.0)[:, None]
        log_top_p = tl.load(state + 6 * n_rows + o_r, mask=m_r, other=0.0)[:, None]
        base = tl.where(taught, smoothing / n_classes, 0.0)[:, None]
        if WEIGHTED:
            base = base * tl.load(weight + o_c, mask=o_c < n_classes, other=0.0).to(tl.float32)
    start = row_start(o_r, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)[:, None]
    z = tl.load(logits + start + o_c.to(tl.int64) * stride_class, mask=taught[:, None] & (o_c < n_classes),
                other=-INF).to(tl.float32)
    slope = gradient(z, top, factor[:, None], top_p, log_top_p, base, k0, k1, k2, k3, KIND, TAIL, SMOOTH, SIXTEEN_BIT)
    if SMOOTH:
        y = tl.load(target + o_r, mask=taught, other=-1).to(tl.int32)
        at_label = tl.load(state + 5 * n_rows + o_r, mask=taught, other=0.0)
        slope = tl.where(o_c == y[:, None], at_label[:, None], slope)
    slope = tl.where(o_c == pivot[:, None], at_pivot[:, None], slope)
    start = row_start(o_r, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)[:, None]
    tl.store(grad + start + o_c.to(tl.int64) * grad_stride_class, (slope * g).to(grad.dtype.element_ty),
             mask=m_r[:, None] & (o_c < n_classes))
