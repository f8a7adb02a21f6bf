"""The kernels around the loss: the mean's denominator, the upstream gradient, the gradient made later."""

import triton
import triton.language as tl

from .ends import end_columns, inner_part, inner_row
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


# out = source * upstream. Where that is 1 and nothing is to be copied, all programs exit at once: a few microseconds
# for the whole grid, which is persistent so that it stays small. DENSE buffers are walked in memory order.
@triton.jit
def scale_kernel(source, out, upstream, n_units, n_classes, inner, stride_outer, stride_inner, stride_class,
                 COPY: tl.constexpr, DENSE: tl.constexpr, LARGE: tl.constexpr, UNIT: tl.constexpr,
                 BLOCK: tl.constexpr):
    factor = tl.load(upstream).to(tl.float32)
    if COPY or factor != 1.0:
        # The product tells the compiler how far loads may be vectorised.
        n_elements = (tl.cast(n_units, tl.int64) if LARGE else n_units) * UNIT
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


@triton.jit
def _gradient_tile(z, to_pointers, o_c, m_c, m_r, weight, pivot, y, top, factor, at_pivot, g, top_p, log_top_p,
                   at_label, base, k0, k1, k2, k3, KIND: tl.constexpr, TAIL: tl.constexpr, WEIGHTED: tl.constexpr,
                   SMOOTH: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    """Columns ``o_c`` of the gradient of some rows, from their states and logits."""
    if SMOOTH and WEIGHTED:
        base = base * tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)
    slope = gradient(z.to(tl.float32), top, factor, top_p, log_top_p, base, k0, k1, k2, k3, KIND, TAIL, SMOOTH,
                     SIXTEEN_BIT)
    if SMOOTH:
        slope = tl.where(o_c == y, at_label, slope)
    slope = tl.where(o_c == pivot, at_pivot, slope)
    tl.store(to_pointers, (slope * g).to(to_pointers.dtype.element_ty), mask=m_r & m_c)


# The gradient from the rows' states and any upstream gradient, one per row or (of stride 0) one for all: one read of
# the logits, one write, no sums. SCALED gradients are those of a sum or mean, whose scale stands behind the state; with
# OWN, the upstream gradients are a curve's pulls, and ``above`` is what comes from above the sum. A program takes ROWS
# rows and REPEAT blocks of BLOCK columns.
@triton.jit(do_not_specialize=["n_rows", "phase"])
def later_kernel(
    logits, target, weight, state, upstream, above, grad,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, stride_upstream, phase,
    smoothing, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    REPEAT: tl.constexpr, ENDS: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTH: tl.constexpr, SCALED: tl.constexpr,
    OWN: tl.constexpr, SIXTEEN_BIT: tl.constexpr,
):
    n_classes = class_units * UNIT
    n_groups = tl.cdiv(n_classes, BLOCK * REPEAT)
    i_group, i_tile = tl.program_id(0) % n_groups, tl.program_id(0) // n_groups
    o_r = i_tile * ROWS + tl.arange(0, ROWS)
    o_c = i_group * (BLOCK * REPEAT) + tl.arange(0, BLOCK)[None, :]
    m_r = o_r < n_rows
    n_rows = tl.cast(n_rows, tl.int64)  # up to seven times it, see store_state
    top = tl.load(state + o_r, mask=m_r, other=0.0)[:, None]
    factor = tl.load(state + n_rows + o_r, mask=m_r, other=0.0)[:, None]
    at_pivot = tl.load(state + 2 * n_rows + o_r, mask=m_r, other=0.0)[:, None]
    pivot = tl.load(state + 3 * n_rows + o_r, mask=m_r, other=0.0).to(tl.int32, bitcast=True)
    taught = m_r & (pivot >= 0)
    g = tl.load(upstream + o_r.to(tl.int64) * stride_upstream, mask=m_r, other=0.0).to(tl.float32)
    if SCALED:
        g *= tl.load(state + (7 if SMOOTH else 4) * n_rows)
    if OWN:  # the upstream gradient of a row's gap is minus its pull, times what is above the curve
        g *= -tl.load(above).to(tl.float32)
        if WEIGHTED:
            g *= tl.load(weight + tl.where(taught, pivot, 0), mask=taught, other=0.0)
    top_p, log_top_p, at_label, base, y = top, top, top, top, pivot[:, None]
    if SMOOTH:
        top_p = tl.load(state + 4 * n_rows + o_r, mask=m_r, other=0.0)[:, None]
        at_label = tl.load(state + 5 * n_rows + o_r, mask=taught, other=0.0)[:, None]
        log_top_p = tl.load(state + 6 * n_rows + o_r, mask=m_r, other=0.0)[:, None]
        base = tl.where(taught, smoothing / n_classes, 0.0)[:, None]
        y = tl.load(target + o_r, mask=taught, other=-1).to(tl.int32)[:, None]
    m_r, taught, pivot = m_r[:, None], taught[:, None], pivot[:, None]
    # An ignored row has gradient 0 under any upstream gradient, also the infinite one of a mean over no labels.
    g = tl.where(taught | (factor != 0.0), g[:, None], 0.0)
    if ENDS:  # one row
        start = row_start(i_tile, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
        grad_start = row_start(i_tile, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)
        head, n_inner = inner_part(start, phase, n_classes, ENDS)
        z = tl.load(inner_row(logits + start, head, ENDS) + o_c, mask=taught & (o_c < n_inner), other=-INF)
        _gradient_tile(z, inner_row(grad + grad_start, head, ENDS) + o_c, o_c + head, o_c < n_inner, m_r, weight, pivot,
                       y, top, factor, at_pivot, g, top_p, log_top_p, at_label, base, k0, k1, k2, k3, KIND, TAIL,
                       WEIGHTED, SMOOTH, SIXTEEN_BIT)
        if i_group == 0:
            o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
            o_e, m_e = o_e[None, :], m_e[None, :]
            z_e = tl.load(logits + start + o_e, mask=taught & m_e, other=-INF)
            _gradient_tile(z_e, grad + grad_start + o_e, o_e, m_e, m_r, weight, pivot, y, top, factor, at_pivot, g,
                           top_p, log_top_p, at_label, base, k0, k1, k2, k3, KIND, TAIL, WEIGHTED, SMOOTH, SIXTEEN_BIT)
    else:
        row = logits + row_start(o_r, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)[:, None]
        out = grad + row_start(o_r, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)[:, None]
        b_z = ()
        for i in tl.static_range(REPEAT):  # no load waits for a store
            o = o_c + i * BLOCK
            b_z += (tl.load(row + o.to(tl.int64) * stride_class, mask=taught & (o < n_classes), other=-INF),)  # type: ignore[assignment]
        for i in tl.static_range(REPEAT):
            o = o_c + i * BLOCK
            _gradient_tile(b_z[i], out + o.to(tl.int64) * grad_stride_class, o, o < n_classes, m_r, weight, pivot, y,
                           top, factor, at_pivot, g, top_p, log_top_p, at_label, base, k0, k1, k2, k3, KIND, TAIL,
                           WEIGHTED, SMOOTH, SIXTEEN_BIT)
