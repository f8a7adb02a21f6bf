"""The gradient of soft targets from what the forward pass has kept of every row: no sums, so that tiles are free."""

import triton
import triton.language as tl

from .ends import end_columns, inner_part, inner_row
from .maths import EACH, INF, LOG2E, row_start
from .soft_rows import at_largest, load_soft_state, rival_terms


@triton.jit
def _gradient_tile(z, u, to_pointers, weight, o_c, m, m_c, top, factor, base, ratio, u_largest, pull, reference_p,
                   log_reference_p, row_scale, label_part, spread, k0, k1, k2, k3, KIND: tl.constexpr,
                   TAIL: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTH: tl.constexpr):
    """Some columns of the gradient of some rows, from their logits and targets."""
    z, u = z.to(tl.float32), u.to(tl.float32)
    if SMOOTH:
        u = label_part * u + spread
    if WEIGHTED:
        u *= tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)
    t = (z - top) * LOG2E
    e = tl.exp2(t)
    value, over = rival_terms(t, e, reference_p, log_reference_p, k0, k1, k2, k3, KIND, TAIL)
    slope = tl.where(z == top, at_largest(u, u_largest, base, ratio, pull), e * factor - u * over)
    tl.store(to_pointers, (slope * row_scale).to(to_pointers.dtype.element_ty), mask=m)


# A program takes ROWS rows and REPEAT blocks of BLOCK columns: of each block it reads logits and targets once and
# writes the gradient once. The upstream gradient is one for all, or (EACH) one per row.
@triton.jit(do_not_specialize=["n_rows", "phase"])
def soft_later_kernel(
    logits, target, weight, state, divisor, upstream, grad,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    target_outer_units, target_stride_inner, target_stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, phase, scale, label_part, spread, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    REPEAT: tl.constexpr, ENDS: tl.constexpr, WEIGHTED: tl.constexpr, SMOOTH: tl.constexpr, UPSTREAM: tl.constexpr,
    DIVIDED: tl.constexpr,
):
    n_classes = class_units * UNIT
    n_groups = tl.cdiv(n_classes, BLOCK * REPEAT)
    i_group, i_tile = tl.program_id(0) % n_groups, tl.program_id(0) // n_groups
    o_r = i_tile * ROWS + tl.arange(0, ROWS)
    m_r = o_r < n_rows
    top, factor, base, ratio, u_largest, pull, reference_p, log_reference_p = load_soft_state(
        state, o_r, m_r, n_rows, TAIL)
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    if UPSTREAM == EACH:
        row_scale = scale * tl.load(upstream + o_r, mask=m_r, other=0.0).to(tl.float32)
    else:
        row_scale = tl.zeros([ROWS], tl.float32) + scale * tl.load(upstream).to(tl.float32)
    top, factor, base, ratio = top[:, None], factor[:, None], base[:, None], ratio[:, None]
    u_largest, pull, row_scale = u_largest[:, None], pull[:, None], row_scale[:, None]
    reference_p, log_reference_p = reference_p[:, None], log_reference_p[:, None]
    o_b = i_group * (BLOCK * REPEAT) + tl.arange(0, BLOCK)[None, :]
    if ENDS:  # one row
        start = row_start(i_tile, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
        target_start = row_start(i_tile, inner, tl.cast(target_outer_units, tl.int64) * UNIT, target_stride_inner)
        grad_start = row_start(i_tile, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)
        head, n_inner = inner_part(start, phase, n_classes, ENDS)
        row, masses = inner_row(logits + start, head, ENDS), inner_row(target + target_start, head, ENDS)
        out = inner_row(grad + grad_start, head, ENDS)
        m_c = o_b < n_inner
        z = tl.load(row + o_b, mask=m_c, other=-INF)
        u = tl.load(masses + o_b, mask=m_c, other=0.0)
        _gradient_tile(z, u, out + o_b, weight, o_b + head, m_c, m_c, top, factor, base, ratio, u_largest, pull,
                       reference_p, log_reference_p, row_scale, label_part, spread, k0, k1, k2, k3, KIND, TAIL,
                       WEIGHTED, SMOOTH)
        if i_group == 0:
            o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
            o_e, m_e = o_e[None, :], m_e[None, :]
            z_e = tl.load(logits + start + o_e, mask=m_e, other=-INF)
            u_e = tl.load(target + target_start + o_e, mask=m_e, other=0.0)
            _gradient_tile(z_e, u_e, grad + grad_start + o_e, weight, o_e, m_e, m_e, top, factor, base, ratio,
                           u_largest, pull, reference_p, log_reference_p, row_scale, label_part, spread, k0, k1, k2, k3,
                           KIND, TAIL, WEIGHTED, SMOOTH)
    else:
        row = logits + row_start(o_r, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)[:, None]
        masses = target + row_start(o_r, inner, tl.cast(target_outer_units, tl.int64) * UNIT,
                                    target_stride_inner)[:, None]
        out = grad + row_start(o_r, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)[:, None]
        b_z, b_u = (), ()
        for i in tl.static_range(REPEAT):  # no load waits for a store
            o_c = o_b + i * BLOCK
            m = m_r[:, None] & (o_c < n_classes)
            b_z += (tl.load(row + o_c.to(tl.int64) * stride_class, mask=m, other=-INF),)  # type: ignore[assignment]
            b_u += (tl.load(masses + o_c.to(tl.int64) * target_stride_class, mask=m, other=0.0),)  # type: ignore[assignment]
        for i in tl.static_range(REPEAT):
            o_c = o_b + i * BLOCK
            m_c = o_c < n_classes
            _gradient_tile(b_z[i], b_u[i], out + o_c.to(tl.int64) * grad_stride_class, weight, o_c, m_r[:, None] & m_c,
                           m_c, top, factor, base, ratio, u_largest, pull, reference_p, log_reference_p, row_scale,
                           label_part, spread, k0, k1, k2, k3, KIND, TAIL, WEIGHTED, SMOOTH)
