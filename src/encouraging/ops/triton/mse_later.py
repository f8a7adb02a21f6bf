"""The gradient of the squared error of a softmax from what the forward pass has kept of every row: no sums, so that
tiles are free."""

import triton
import triton.language as tl

from .ends import end_columns, inner_part, inner_row
from .maths import INF, LOG2E
from .mse import label_and_known, slope_of, terms


@triton.jit
def _gradient_tile(z, t, to_pointers, m, top, rivals, over, of_top, of_rest, scale, BONUS: tl.constexpr):
    """Some columns of the gradient of some rows, from their logits and targets."""
    z, t = z.to(tl.float32), t.to(tl.float32)
    is_top = z == top
    p = tl.exp2((z - top) * LOG2E) * over
    q = tl.where(is_top, rivals * over, 1.0 - p)
    value, g = terms(t, p, q, BONUS)
    slope = slope_of(g, p, q, is_top, of_top, of_rest, rivals) * scale
    tl.store(to_pointers, slope.to(to_pointers.dtype.element_ty), mask=m)


@triton.jit
def _targets(masses, y, o_c, m, SOFT: tl.constexpr):
    if SOFT:
        return tl.load(masses + o_c, mask=m, other=0.0)
    else:
        return tl.where(o_c == y, 1.0, 0.0)


# A program takes ROWS rows and REPEAT blocks of BLOCK columns: of each block it reads logits and targets once and
# writes the gradient of the sum once.
@triton.jit(do_not_specialize=["n_rows", "phase"])
def mse_later_kernel(
    logits, target, state, divisor, upstream, grad,
    n_rows, class_units, stride_units, target_units, phase, scale,
    SOFT: tl.constexpr, BONUS: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    REPEAT: tl.constexpr, ENDS: tl.constexpr, DIVIDED: tl.constexpr, UPSTREAM: tl.constexpr,
):
    n_classes = class_units * UNIT
    stride, target_stride = tl.cast(stride_units, tl.int64) * UNIT, tl.cast(target_units, tl.int64) * UNIT
    n_groups = tl.cdiv(n_classes, BLOCK * REPEAT)
    i_group, i_tile = tl.program_id(0) % n_groups, tl.program_id(0) // n_groups
    o_r = i_tile * ROWS + tl.arange(0, ROWS)
    m_r = (o_r < n_rows)[:, None]
    top = tl.load(state + o_r, mask=o_r < n_rows, other=0.0)[:, None]
    rivals = tl.load(state + n_rows + o_r, mask=o_r < n_rows, other=0.0)[:, None]
    of_top = tl.load(state + 2 * n_rows + o_r, mask=o_r < n_rows, other=0.0)[:, None]
    of_rest = tl.load(state + 3 * n_rows + o_r, mask=o_r < n_rows, other=0.0)[:, None]
    over = 1.0 / (1.0 + rivals)
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    if UPSTREAM:
        scale *= tl.load(upstream).to(tl.float32)
    y = o_r[:, None]
    if not SOFT:
        y, known = label_and_known(target + o_r, o_r < n_rows, n_classes)
        y = y[:, None]
    o_b = i_group * (BLOCK * REPEAT) + tl.arange(0, BLOCK)[None, :]
    if ENDS:  # one row
        i_row = tl.cast(i_tile, tl.int64)
        head, n_inner = inner_part(i_row * stride, phase, n_classes, ENDS)
        row, out = logits + i_row * stride, grad + i_row * n_classes
        masses, inner_masses = target, target
        if SOFT:
            masses = target + i_row * target_stride
            inner_masses = inner_row(masses, head, ENDS)
        m = o_b < n_inner
        z = tl.load(inner_row(row, head, ENDS) + o_b, mask=m, other=-INF)
        _gradient_tile(z, _targets(inner_masses, y - head, o_b, m, SOFT), inner_row(out, head, ENDS) + o_b, m, top,
                       rivals, over, of_top, of_rest, scale, BONUS)
        if i_group == 0:
            o_e, m_e = end_columns(head, n_inner, n_classes, ENDS)
            o_e, m_e = o_e[None, :], m_e[None, :]
            z_e = tl.load(row + o_e, mask=m_e, other=-INF)
            _gradient_tile(z_e, _targets(masses, y, o_e, m_e, SOFT), out + o_e, m_e, top, rivals, over, of_top, of_rest,
                           scale, BONUS)
    else:
        row, out = logits + o_r.to(tl.int64)[:, None] * stride, grad + o_r.to(tl.int64)[:, None] * n_classes
        masses = target
        if SOFT:
            masses = target + o_r.to(tl.int64)[:, None] * target_stride
        b_z, b_t = (), ()
        for i in tl.static_range(REPEAT):  # no load waits for a store
            o_c = o_b + i * BLOCK
            m = m_r & (o_c < n_classes)
            b_z += (tl.load(row + o_c, mask=m, other=-INF),)  # type: ignore[assignment]
            b_t += (_targets(masses, y, o_c, m, SOFT),)  # type: ignore[assignment]
        for i in tl.static_range(REPEAT):
            o_c = o_b + i * BLOCK
            _gradient_tile(b_z[i], b_t[i], out + o_c, m_r & (o_c < n_classes), top, rivals, over, of_top, of_rest,
                           scale, BONUS)
