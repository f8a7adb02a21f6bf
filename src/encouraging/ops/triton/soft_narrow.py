"""Loss and gradient of soft targets for rows that the next power of two would pad by an eighth or more."""

import triton
import triton.language as tl

from .curves import LIKE_CROSS_ENTROPY
from .finish import finish
from .maths import EACH, INF, LOG2E, LOWEST, ONE, row_start
from .soft_rows import at_largest, largest_class, rival_terms, row_terms, store_soft_state


# ``soft_kernel`` for rows whose classes are neighbours, without a gradient on the targets, for curves with a bounded
# pull. A program takes ROWS whole rows as REPEAT tiles of BLOCK columns side by side. All are loaded first; maxima and
# sums are taken tile by tile, element by element, and along the row only once.
@triton.jit(do_not_specialize=["n_rows"])
def soft_narrow_kernel(
    logits, target, weight, divisor, upstream, loss, shares, counter, grad, by_target, state,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    target_outer_units, target_stride_inner, target_stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, scale, label_part, spread, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    REPEAT: tl.constexpr, WEIGHTED: tl.constexpr, GRAD: tl.constexpr, STATE: tl.constexpr, LOSS: tl.constexpr,
    SUMS: tl.constexpr, UPSTREAM: tl.constexpr, SMOOTH: tl.constexpr, DIVIDED: tl.constexpr, LAST: tl.constexpr,
):
    n_classes = class_units * UNIT
    o_r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m_r = o_r < n_rows
    row = logits + row_start(o_r, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)[:, None]
    masses = target + row_start(o_r, inner, tl.cast(target_outer_units, tl.int64) * UNIT, target_stride_inner)[:, None]
    o_b = tl.arange(0, BLOCK)[None, :]
    b_z, b_u = (), ()
    for i in tl.static_range(REPEAT):
        o_c = o_b + i * BLOCK
        m = m_r[:, None] & (o_c < n_classes)
        b_z += (tl.load(row + o_c, mask=m, other=-INF).to(tl.float32),)  # type: ignore[assignment]
        u = tl.load(masses + o_c, mask=m, other=0.0).to(tl.float32)
        if SMOOTH:
            u = tl.where(m, label_part * u + spread, 0.0)
        if WEIGHTED:
            u *= tl.load(weight + o_c, mask=o_c < n_classes, other=0.0).to(tl.float32)
        b_u += (u,)  # type: ignore[assignment]

    b_top = b_z[0]  # type: ignore[misc]
    for i in tl.static_range(1, REPEAT):
        b_top = tl.maximum(b_top, b_z[i])
    top = tl.maximum(tl.max(b_top, axis=1), LOWEST)
    b_zero = tl.zeros([ROWS, BLOCK], tl.float32)
    b_count, b_sum, b_largest, b_e = b_zero, b_zero, b_zero, ()
    for i in tl.static_range(REPEAT):
        is_top = b_z[i] == top[:, None]
        b_count += tl.where(is_top, 1.0, 0.0)
        e = tl.where(is_top, 0.0, tl.exp2((b_z[i] - top[:, None]) * LOG2E))
        b_sum += e
        b_largest += tl.where(is_top, b_u[i], 0.0)
        b_e += (e,)  # type: ignore[assignment]
    n_top = tl.sum(b_count, axis=1)
    top = tl.where(n_top == 0.0, float("nan"), top)  # NaN among the logits, or all at -inf: there are no probabilities
    rival_sum = tl.sum(b_sum, axis=1) + (n_top - 1.0)
    u_largest = tl.sum(b_largest, axis=1)
    p, value, pull, over, reference_p, log_reference_p = largest_class(
        top, top, rival_sum, k0, k1, k2, k3, KIND, False)

    b_values, b_pulls, b_over = b_zero, b_zero, ()
    for i in tl.static_range(REPEAT):
        z, u, e = b_z[i], b_u[i], b_e[i]  # type: ignore[var-annotated]
        u_rival = tl.where(z == top[:, None], 0.0, u)
        # A class of no mass adds nothing, also where its value is infinite.
        if TAIL == LIKE_CROSS_ENTROPY:  # the largest has no distance from itself
            b_pulls += u_rival
            b_values -= tl.where(u == 0.0, 0.0, u * (z - top[:, None]))
            b_over += (1.0,)  # type: ignore[assignment]
        else:
            each, slope = rival_terms((z - top[:, None]) * LOG2E, e, reference_p[:, None], log_reference_p[:, None],
                                      k0, k1, k2, k3, KIND, TAIL)
            b_values += tl.where(u_rival == 0.0, 0.0, u_rival * each)
            b_pulls += u_rival * slope
            b_over += (slope,)  # type: ignore[assignment]
    values, pulls = tl.sum(b_values, axis=1), tl.sum(b_pulls, axis=1)
    if TAIL == LIKE_CROSS_ENTROPY:
        values -= tl.where(pulls == 0.0, 0.0, pulls * log_reference_p)
    row_loss, factor, base, ratio = row_terms(p, value, pull, over, reference_p, rival_sum, u_largest, values, pulls)
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    if LOSS and not SUMS:
        tl.store(loss + o_r, row_loss, mask=m_r)
    if STATE:
        store_soft_state(state, o_r, m_r, n_rows, top, factor, base, ratio, u_largest, pull, reference_p,
                         log_reference_p, TAIL)
    if GRAD:
        row_scale = tl.zeros([ROWS], tl.float32) + scale
        if UPSTREAM == EACH:
            row_scale *= tl.load(upstream + o_r, mask=m_r, other=0.0).to(tl.float32)
        if UPSTREAM == ONE:
            row_scale *= tl.load(upstream).to(tl.float32)
        out = grad + row_start(o_r, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)[:, None]
        for i in tl.static_range(REPEAT):
            o_c = o_b + i * BLOCK
            slope = tl.where(b_z[i] == top[:, None],
                             at_largest(b_u[i], u_largest[:, None], base[:, None], ratio[:, None], pull[:, None]),
                             b_e[i] * factor[:, None] - b_u[i] * b_over[i])
            tl.store(out + o_c, (slope * row_scale[:, None]).to(grad.dtype.element_ty),
                     mask=m_r[:, None] & (o_c < n_classes))
    if SUMS:
        finish(shares, counter, loss, tl.sum(tl.where(m_r, row_loss, 0.0), axis=0), scale, LAST)
