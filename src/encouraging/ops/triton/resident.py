"""Loss and gradient of labels where a row of logits fits on chip: one read of the logits, one write of the gradient."""

import triton
import triton.language as tl

from .maths import INF, row_start
from .rows import plain_row, read_label, store_by_products, store_state, sum_of
from .tile import exponentials, first_column, load_logits


# A program takes ROWS whole rows and keeps them in registers between the sums and the gradient. With SKIP it does not
# read rows that teach nothing, for which it must know the labels first. It writes the loss, one number per row or
# (SUMS) per program, and on request the gradient, the state from which it can be made later, and the by-products.
@triton.jit(do_not_specialize=["n_rows", "ignore_index"])
def resident_kernel(
    logits, target, weight, partial_weights, upstream, loss, grad, state, p_out, lse_out, argmax_out,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, ignore_index, k0, k1, k2, k3,
    KIND: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PIECE: tl.constexpr,
    SKIP: tl.constexpr, N_PARTIAL: tl.constexpr, WEIGHTED: tl.constexpr, GRAD: tl.constexpr, STATE: tl.constexpr,
    SUMS: tl.constexpr, STATS: tl.constexpr, UPSTREAM: tl.constexpr, INPLACE: tl.constexpr,
):
    n_classes = class_units * UNIT  # the product tells the compiler how far loads may be vectorised
    scale = 1.0 / sum_of(partial_weights, N_PARTIAL)
    o_c = tl.arange(0, BLOCK)[None, :]
    o_r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m_r = o_r < n_rows
    y, taught, w, fill = read_label(target, weight, o_r, m_r, n_classes, ignore_index, WEIGHTED)
    start = row_start(o_r, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
    z = load_logits(logits, start, taught if SKIP else m_r, n_classes, stride_class, PIECE, BLOCK)
    z_y = tl.load(logits + start + tl.where(taught, y, 0).to(tl.int64) * stride_class, mask=taught,
                  other=-INF).to(tl.float32)
    rivals = tl.where(o_c == y[:, None], -INF, z)
    top, e = exponentials(rivals)
    rival_sum = tl.sum(e, axis=1)
    row_loss, factor, at_label = plain_row(z_y, top, rival_sum, w, k0, k1, k2, k3, KIND)
    row_loss = tl.where(taught, row_loss, fill)
    factor = tl.where(taught, factor, fill)
    if SUMS:
        tl.store(loss + tl.program_id(0), tl.sum(tl.where(m_r, row_loss, 0.0), axis=0))
    else:
        tl.store(loss + o_r, row_loss, mask=m_r)
    if STATE:
        store_state(state, o_r, m_r, n_rows, top, factor, at_label, y)
    if STATS:
        best = first_column(z, o_c, tl.where(z_y > top, z_y, top), n_classes)
        store_by_products(p_out, lse_out, argmax_out, o_r, m_r, taught, z_y, z_y, top, rival_sum, best)
    if GRAD:
        if N_PARTIAL or UPSTREAM:
            if UPSTREAM:
                scale *= tl.load(upstream + o_r, mask=m_r, other=0.0).to(tl.float32)
            factor = tl.where(taught, factor * scale, factor)
            at_label *= scale
        slope = e * factor[:, None]
        if not SKIP:
            slope = tl.where(taught[:, None], slope, fill[:, None])
        if INPLACE:
            tl.debug_barrier()  # every thread has read the label's logit before any writes over it
        out = grad + row_start(o_r, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)
        tl.store(out[:, None] + o_c.to(tl.int64) * grad_stride_class, slope.to(grad.dtype.element_ty),
                 mask=m_r[:, None] & (o_c < n_classes))
        tl.debug_barrier()  # the tile first, then the number that is not of its pattern
        tl.store(out + y.to(tl.int64) * grad_stride_class, at_label.to(grad.dtype.element_ty), mask=taught)
