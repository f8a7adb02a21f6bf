"""Loss and gradient of soft targets where a row of logits and its targets fit on chip."""

import triton
import triton.language as tl

from .curves import LIKE_CROSS_ENTROPY
from .finish import finish
from .maths import EACH, INF, LOG2E, LOWEST, ONE, exp_of_distance, row_start
from .soft_rows import at_largest, largest_class, rival_terms, row_terms, store_soft_state
from .tile import FEW_CLASSES, load_tile, store_tile


# A program takes ROWS whole rows of logits and targets. It reads both once and writes the loss of every row, or (SUMS)
# its share of their sum, see finish.py, and on request the gradient on the logits and (BY_TARGET) that on the targets.
# ``label_part`` and ``spread`` smooth the targets: u = (label_part * target + spread) * weight. STATE keeps what
# ``soft_later.py`` makes the gradient of. Where only gradients are asked for, LOSS is off.
@triton.jit(do_not_specialize=["n_rows"])
def soft_kernel(
    logits, target, weight, divisor, upstream, loss, shares, counter, grad, by_target, state,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class,
    target_outer_units, target_stride_inner, target_stride_class,
    grad_outer_units, grad_stride_inner, grad_stride_class, scale, label_part, spread, k0, k1, k2, k3,
    KIND: tl.constexpr, TAIL: tl.constexpr, UNBOUNDED: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr,
    BLOCK: tl.constexpr, PIECE: tl.constexpr, WEIGHTED: tl.constexpr, GRAD: tl.constexpr, BY_TARGET: tl.constexpr,
    STATE: tl.constexpr, LOSS: tl.constexpr, SUMS: tl.constexpr, UPSTREAM: tl.constexpr, SMOOTH: tl.constexpr,
    DIVIDED: tl.constexpr, LAST: tl.constexpr,
):
    n_classes = class_units * UNIT  # the product tells the compiler how far loads may be vectorised
    o_r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    m_r = o_r < n_rows
    start = row_start(o_r, inner, tl.cast(outer_units, tl.int64) * UNIT, stride_inner)
    z = load_tile(logits, start, m_r, n_classes, stride_class, -INF, PIECE, BLOCK)
    target_start = row_start(o_r, inner, tl.cast(target_outer_units, tl.int64) * UNIT, target_stride_inner)
    u = load_tile(target, target_start, m_r, n_classes, target_stride_class, 0.0, PIECE, BLOCK)
    o_c = tl.arange(0, BLOCK)[None, :]
    m_c = o_c < n_classes
    if SMOOTH:
        u = tl.where(m_r[:, None] & m_c, label_part * u + spread, 0.0)
    if WEIGHTED:
        u *= tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)

    top = tl.maximum(tl.max(z, axis=1), LOWEST)
    is_top = z == top[:, None]
    n_top = tl.sum(tl.where(is_top, 1.0, 0.0), axis=1)
    top = tl.where(n_top == 0.0, float("nan"), top)  # NaN among the logits, or all at -inf: there are no probabilities
    reference = top
    if UNBOUNDED:  # the rivals' own maximum, from which they are known however far the largest is ahead
        second = tl.maximum(tl.max(tl.where(is_top, -INF, z), axis=1), LOWEST)
        reference = tl.where(n_top > 1.0, top, second)
    t = tl.where(is_top, -INF, (z - reference[:, None]) * LOG2E)
    e = tl.where(is_top, 0.0, exp_of_distance(z, reference[:, None], BLOCK <= FEW_CLASSES))
    rival_sum = tl.sum(e, axis=1) + (n_top - 1.0)
    u_rivals = tl.where(is_top, 0.0, u)
    u_largest = tl.sum(tl.where(is_top, u, 0.0), axis=1)
    p, value, pull, over, reference_p, log_reference_p = largest_class(
        top, reference, rival_sum, k0, k1, k2, k3, KIND, UNBOUNDED)
    b_value, b_over = rival_terms(t, e, reference_p[:, None], log_reference_p[:, None], k0, k1, k2, k3, KIND, TAIL)
    # A class of no mass adds nothing, also where its value is infinite.
    if TAIL == LIKE_CROSS_ENTROPY:  # the largest has no distance from itself
        pulls = tl.sum(u_rivals, axis=1)
        distance = tl.sum(tl.where(u == 0.0, 0.0, u * (z - top[:, None])), axis=1)
        values = -distance - tl.where(pulls == 0.0, 0.0, pulls * log_reference_p)
    else:
        values = tl.sum(tl.where(u_rivals == 0.0, 0.0, u_rivals * b_value), axis=1)
        pulls = tl.sum(u_rivals * b_over, axis=1)
    row_loss, factor, base, ratio = row_terms(p, value, pull, over, reference_p, rival_sum, u_largest, values, pulls)
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    if LOSS and not SUMS:
        tl.store(loss + o_r, row_loss, mask=m_r)
    if STATE:
        store_soft_state(state, o_r, m_r, n_rows, top, factor, base, ratio, u_largest, pull, reference_p,
                         log_reference_p, TAIL)
    if GRAD or BY_TARGET:
        row_scale = tl.zeros([ROWS], tl.float32) + scale
        if UPSTREAM == EACH:
            row_scale *= tl.load(upstream + o_r, mask=m_r, other=0.0).to(tl.float32)
        if UPSTREAM == ONE:
            row_scale *= tl.load(upstream).to(tl.float32)
    if BY_TARGET:
        slope = tl.where(is_top, value[:, None], b_value) * (label_part * row_scale[:, None])
        if WEIGHTED:
            slope *= tl.load(weight + o_c, mask=m_c, other=0.0).to(tl.float32)
        store_tile(by_target, target_start, m_r, n_classes, target_stride_class, slope, BLOCK)
    if GRAD:
        slope = tl.where(is_top, at_largest(u, u_largest[:, None], base[:, None], ratio[:, None], pull[:, None]),
                         e * factor[:, None] - u * b_over)
        start = row_start(o_r, inner, tl.cast(grad_outer_units, tl.int64) * UNIT, grad_stride_inner)
        slope *= row_scale[:, None]
        store_tile(grad, start, m_r, n_classes, grad_stride_class, slope, BLOCK)
    if SUMS:
        finish(shares, counter, loss, tl.sum(tl.where(m_r, row_loss, 0.0), axis=0), scale, LAST)
