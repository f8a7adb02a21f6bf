"""Loss and gradient of labels where a row of logits fits on chip: one read of the logits, one write of the gradient."""

import triton
import triton.language as tl

from .ends import end_columns, inner_part, inner_row
from .finish import EVERYONE, SCALE, THE_FIRST, divisor_of, finish_mean, known_divisor
from .in_order import leave_count
from .maths import INF, LOG2E, LOWEST, ONE_AGAIN, PULLS, row_start
from .rows import plain_row, read_label, store_by_products, store_lengths, store_state
from .tile import first_column, load_tile, store_tile


# A program takes ROWS whole rows and keeps them in registers between the sums and the gradient. With SKIP it does not
# read rows that teach nothing, for which it must know the labels first. It writes the loss of every row, or (SUMS) its
# share of their sum, see finish.py, and on request the gradient, the state from which it can be made later, and the
# by-products. UPSTREAM has a number for every row, by which its gradient is multiplied; where these are the PULLS of a
# curve of one's own, also by minus the first of ``partial_weights``, which then is the upstream gradient of the sum,
# and by the first of ``state``, the sum's own factor. EACH_AGAIN and ONE_AGAIN ask for nothing but the gradient, the
# second with one upstream gradient for all rows, of a sum (STATE) again times its factor.
@triton.jit(do_not_specialize=["n_rows", "ignore_index", "phase"])
def resident_kernel(
    logits, target, weight, partial_weights, upstream, loss, shares, counter, grad, state, lengths, p_out, lse_out,
    argmax_out,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, ignore_index, phase, k0, k1, k2, k3,
    KIND: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PIECE: tl.constexpr,
    ENDS: tl.constexpr, SKIP: tl.constexpr, N_PARTIAL: tl.constexpr, WEIGHTED: tl.constexpr, GRAD: tl.constexpr,
    STATE: tl.constexpr, LENGTHS: tl.constexpr, SUMS: tl.constexpr, STATS: tl.constexpr, UPSTREAM: tl.constexpr,
    INPLACE: tl.constexpr, COUNT: tl.constexpr, LAST: tl.constexpr,
):
    n_classes = class_units * UNIT  # the product tells the compiler how far loads may be vectorised
    i_program = tl.program_id(0)
    if COUNT == THE_FIRST:
        i_program -= N_PARTIAL
        if i_program < 0:
            leave_count(shares, target, weight, n_rows, n_classes, ignore_index, N_PARTIAL, WEIGHTED)
            return
    denominator = divisor_of(partial_weights, shares, target, weight, n_rows, n_classes, ignore_index, N_PARTIAL, COUNT,
                             WEIGHTED)
    o_r = i_program * ROWS + tl.arange(0, ROWS)
    m_r = o_r < n_rows
    y, taught, w, fill = read_label(target, weight, o_r, m_r, n_classes, ignore_index, WEIGHTED)
    start = row_start(o_r, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
    m_read = taught if SKIP else m_r
    o_c = tl.arange(0, BLOCK)[None, :]
    if ENDS:  # the one row's inner part, and its ends as a second tile
        i_start = row_start(i_program, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
        head, n_inner = inner_part(i_start, phase, n_classes, ENDS)
        z = tl.load(inner_row(logits + i_start, head, ENDS) + o_c, mask=m_read[:, None] & (o_c < n_inner),
                    other=-INF).to(tl.float32)
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        z_e = tl.load(logits + i_start + o_e[None, :], mask=m_read[:, None] & m_e[None, :], other=-INF).to(tl.float32)
        rivals_e = tl.where(o_e[None, :] == y[:, None], -INF, z_e)
        o_c += head
    else:
        z = load_tile(logits, start, m_read, n_classes, stride_class, -INF, PIECE, BLOCK)
    z_y = tl.load(logits + start + tl.where(taught, y, 0).to(tl.int64) * stride_class, mask=taught,
                  other=-INF).to(tl.float32)
    rivals = tl.where(o_c == y[:, None], -INF, z)
    top = tl.maximum(tl.max(rivals, axis=1), LOWEST)
    if ENDS:
        top = tl.maximum(top, tl.max(rivals_e, axis=1))
    e = tl.exp2((rivals - top[:, None]) * LOG2E)
    rival_sum = tl.sum(e, axis=1)
    if ENDS:
        e_e = tl.exp2((rivals_e - top[:, None]) * LOG2E)
        rival_sum += tl.sum(e_e, axis=1)
    row_loss, factor, at_label, q = plain_row(z_y, top, rival_sum, w, k0, k1, k2, k3, KIND)
    row_loss = tl.where(taught, row_loss, fill)
    factor = tl.where(taught, factor, fill)
    denominator = known_divisor(denominator, shares, COUNT, GRAD)
    if not SUMS and UPSTREAM < PULLS:
        tl.store(loss + o_r, row_loss, mask=m_r)
    if STATE == 1:
        store_state(state, o_r, m_r, n_rows, top, factor, at_label, y)
    if LENGTHS:
        two = tl.sum(e * e, axis=1)
        if ENDS:
            two += tl.sum(e_e * e_e, axis=1)
        store_lengths(lengths, o_r, m_r, n_rows, taught, fill, w, q, at_label, rival_sum, two)
    if STATS:
        best = tl.where(z_y > top, z_y, top)
        column = first_column(z, o_c, best, n_classes)
        if ENDS:
            column = tl.minimum(column, first_column(z_e, o_e[None, :], best, n_classes))
        store_by_products(p_out, lse_out, argmax_out, o_r, m_r, taught, z_y, z_y, top, rival_sum, column)
    if GRAD:
        if N_PARTIAL or COUNT == EVERYONE or UPSTREAM:
            scale = 1.0 / denominator
            if UPSTREAM == ONE_AGAIN:
                scale *= tl.load(upstream).to(tl.float32)
                if STATE:
                    scale *= tl.load(state)
            elif UPSTREAM:
                scale *= tl.load(upstream + o_r, mask=m_r, other=0.0).to(tl.float32)
            if UPSTREAM == PULLS:
                scale *= -tl.load(partial_weights).to(tl.float32) * tl.load(state)
            factor = tl.where(taught, factor * scale, factor)
            at_label *= scale
        slope = e * factor[:, None]
        if not SKIP:
            slope = tl.where(taught[:, None], slope, fill[:, None])
        if INPLACE:
            tl.debug_barrier()  # every thread has read the label's logit before any writes over it
        start = row_start(o_r, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)
        if ENDS:
            i_start = row_start(i_program, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)
            tl.store(inner_row(grad + i_start, head, ENDS) + (o_c - head), slope.to(grad.dtype.element_ty),
                     mask=m_r[:, None] & (o_c - head < n_inner))
            slope = tl.where(taught[:, None], e_e * factor[:, None], fill[:, None])
            tl.store(grad + i_start + o_e[None, :], slope.to(grad.dtype.element_ty), mask=m_r[:, None] & m_e[None, :])
        else:
            store_tile(grad, start, m_r, n_classes, grad_stride_class, slope, BLOCK)
        tl.debug_barrier()  # the tile first, then the number that is not of its pattern
        tl.store(grad + start + y.to(tl.int64) * grad_stride_class, at_label.to(grad.dtype.element_ty), mask=taught)
    if SUMS:
        finish_mean(shares, counter, loss, state, n_rows, tl.sum(tl.where(m_r, row_loss, 0.0), axis=0),
                    tl.sum(w, axis=0), denominator, COUNT, N_PARTIAL,
                    (-1 if STATE == SCALE else 4) if STATE else 0, LAST)
