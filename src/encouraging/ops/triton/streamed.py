"""Loss and gradient of labels where a row is too long for one multiprocessor: it is read twice."""

import triton
import triton.language as tl

from .blocks import offsets, stream_index, stream_rivals
from .ends import end_columns, inner_part, inner_row
from .finish import EVERYONE, THE_FIRST, divisor_of, finish_mean, known_divisor
from .in_order import leave_count
from .maths import INF, row_start, shifted
from .rows import plain_row, read_label, store_by_products, store_lengths, store_state


# The gradient of a row, right but for the label. It begins at the end, which was read last and may still be in the
# cache.
@triton.jit
def _gradient_by_blocks(row, out, top, factor, taught, head, n_inner, n_classes, stride, grad_stride,
                        BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    o_b = offsets(BLOCK, VECTOR)
    inner, inner_out = inner_row(row, head, ENDS), inner_row(out, head, ENDS)
    n_read = tl.where(taught, n_inner, 0)
    n_blocks = tl.cdiv(n_inner, BLOCK)
    for i_block in tl.range(0, n_blocks, num_stages=1):
        o_c = (n_blocks - 1 - i_block) * BLOCK + o_b
        z = tl.load(inner + o_c.to(tl.int64) * stride, mask=o_c < n_read, other=-INF,
                    eviction_policy="evict_first").to(tl.float32)
        slope = tl.exp2(shifted(z, top, SIXTEEN_BIT)) * factor
        tl.store(inner_out + o_c.to(tl.int64) * grad_stride, slope.to(out.dtype.element_ty), mask=o_c < n_inner,
                 eviction_policy="evict_first")
    if ENDS:
        o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
        z = tl.load(row + o_e, mask=m_e & taught, other=-INF).to(tl.float32)
        tl.store(out + o_e, (tl.exp2(shifted(z, top, SIXTEEN_BIT)) * factor).to(out.dtype.element_ty), mask=m_e)


# A persistent grid; a program takes one row at a time. Pass 1: online logsumexp of the rivals -> gap, loss, factor.
# Pass 2: the gradient. Reads the logits twice, writes the gradient once. Offsets are int64: rows * classes passes 2**31
# at language-model sizes.
@triton.jit(do_not_specialize=["n_rows", "ignore_index", "phase"])
def streamed_kernel(
    logits, target, weight, partial_weights, upstream, loss, shares, counter, grad, state, lengths, p_out, lse_out,
    argmax_out,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, ignore_index, phase, k0, k1, k2, k3,
    KIND: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, VECTOR: tl.constexpr, ENDS: tl.constexpr,
    N_PARTIAL: tl.constexpr, WEIGHTED: tl.constexpr, SIXTEEN_BIT: tl.constexpr, GRAD: tl.constexpr, STATE: tl.constexpr,
    LENGTHS: tl.constexpr, SUMS: tl.constexpr, STATS: tl.constexpr, UPSTREAM: tl.constexpr, INPLACE: tl.constexpr,
    COUNT: tl.constexpr, LAST: tl.constexpr,
):
    n_classes = class_units * UNIT
    stride_outer = tl.cast(outer_units, tl.int64) * UNIT
    grad_stride_outer = tl.cast(grad_outer_units, tl.int64) * UNIT
    i_program, n_programs = tl.program_id(0), tl.num_programs(0)
    if COUNT == THE_FIRST:
        i_program, n_programs = i_program - N_PARTIAL, n_programs - N_PARTIAL
        if i_program < 0:
            leave_count(shares, target, weight, n_rows, n_classes, ignore_index, N_PARTIAL, WEIGHTED)
            return
    denominator = divisor_of(partial_weights, shares, target, weight, n_rows, n_classes, ignore_index, N_PARTIAL, COUNT,
                             WEIGHTED)
    denominator = known_divisor(denominator, shares, COUNT, GRAD)
    total_loss, total_weight = 0.0, 0.0
    for i in tl.range(i_program, n_rows, n_programs):
        i_row = tl.cast(i, tl.int32)
        m_r = i_row < n_rows
        y, taught, w, fill = read_label(target, weight, i_row, m_r, n_classes, ignore_index, WEIGHTED)
        start = row_start(i_row, inner, stride_outer, stride_inner)
        row = logits + start
        # A row that teaches nothing is not read: its passes run over no classes.
        n_read = n_classes if STATS else tl.where(taught, n_classes, 0)
        head, n_inner = inner_part(start, phase, n_read, ENDS)
        z_y = tl.load(row + tl.where(taught, y, 0).to(tl.int64) * stride_class, mask=taught, other=-INF).to(tl.float32)
        top, rival_sum, two, total = stream_rivals(
            row, y, 0.0, head, n_inner, n_read, stride_class, BLOCK, VECTOR, ENDS, SIXTEEN_BIT, False,
            LENGTHS)
        row_loss, factor, at_label, q = plain_row(z_y, top, rival_sum, w, k0, k1, k2, k3, KIND)
        row_loss = tl.where(taught, row_loss, fill)
        factor = tl.where(taught, factor, fill)
        if SUMS:
            total_loss += row_loss
            total_weight += w
        else:
            tl.store(loss + i_row, row_loss)
        if STATE:
            store_state(state, i_row, m_r, n_rows, top, factor, at_label, y)
        if LENGTHS:
            store_lengths(lengths, i_row, m_r, n_rows, taught, fill, w, q, at_label, rival_sum, two)
        if STATS:
            best = tl.where(taught & (z_y > top), z_y, top)
            best = stream_index(row, best, -1, head, n_inner, n_classes, stride_class, BLOCK, VECTOR, ENDS)
            store_by_products(p_out, lse_out, argmax_out, i_row, m_r, taught, z_y, z_y, top, rival_sum, best)
        if GRAD:
            if N_PARTIAL or COUNT == EVERYONE or UPSTREAM:
                scale = 1.0 / denominator
                if UPSTREAM:
                    scale *= tl.load(upstream + i_row).to(tl.float32)
                factor = tl.where(taught, factor * scale, factor)
                at_label *= scale
            out = grad + row_start(i_row, inner, grad_stride_outer, grad_stride_inner)
            if INPLACE:
                tl.debug_barrier()  # every thread has read the label's logit before any writes over it
            head, n_inner = inner_part(start, phase, n_classes, ENDS)
            _gradient_by_blocks(row, out, top, factor, taught, head, n_inner, n_classes, stride_class,
                                grad_stride_class, BLOCK, VECTOR, ENDS, SIXTEEN_BIT)
            tl.debug_barrier()  # the row first, then the number that is not of its pattern
            tl.store(out + y.to(tl.int64) * grad_stride_class, at_label.to(grad.dtype.element_ty), mask=taught)
    if SUMS:
        finish_mean(shares, counter, loss, state, n_rows, total_loss, total_weight, denominator, COUNT, N_PARTIAL,
                    4 if STATE else 0, LAST)
