"""The loss of labels without its gradient, for rows that the next power of two would pad by an eighth or more."""

import triton
import triton.language as tl

from .finish import SCALE, THE_FIRST, divisor_of, finish_mean, known_divisor
from .in_order import leave_count
from .maths import INF, LOG2E, LOWEST, row_start
from .rows import plain_row, read_label, store_state


# A program takes ROWS whole rows as REPEAT tiles of BLOCK columns side by side. All are loaded first; maxima and sums
# are taken tile by tile, element by element, and along the row only once. It writes the loss of every row, or (SUMS)
# its share of their sum, see finish.py, and on request the state from which the gradient can be made later.
@triton.jit(do_not_specialize=["n_rows", "ignore_index"])
def narrow_kernel(
    logits, target, weight, partial_weights, upstream, loss, shares, counter, grad, state, lengths, p_out, lse_out,
    argmax_out,
    n_rows, class_units, inner, outer_units, stride_inner, stride_class, ignore_index, k0, k1, k2, k3,
    KIND: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, REPEAT: tl.constexpr,
    N_PARTIAL: tl.constexpr, WEIGHTED: tl.constexpr, STATE: tl.constexpr, SUMS: tl.constexpr, COUNT: tl.constexpr,
    LAST: tl.constexpr,
):
    n_classes = class_units * UNIT
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
    o_b = tl.arange(0, BLOCK)[None, :]
    b_z = ()
    for i in tl.static_range(REPEAT):
        o_c = o_b + i * BLOCK
        z = tl.load(logits + start[:, None] + o_c, mask=m_r[:, None] & (o_c < n_classes), other=-INF).to(tl.float32)
        b_z += (tl.where(o_c == y[:, None], -INF, z),)  # type: ignore[assignment]
    z_y = tl.load(logits + start + tl.where(taught, y, 0).to(tl.int64), mask=taught, other=-INF).to(tl.float32)
    b_top = b_z[0]  # type: ignore[misc]
    for i in tl.static_range(1, REPEAT):
        b_top = tl.maximum(b_top, b_z[i])
    top = tl.maximum(tl.max(b_top, axis=1), LOWEST)
    b_sum = tl.exp2((b_z[0] - top[:, None]) * LOG2E)  # type: ignore[misc]
    for i in tl.static_range(1, REPEAT):
        b_sum += tl.exp2((b_z[i] - top[:, None]) * LOG2E)
    rival_sum = tl.sum(b_sum, axis=1)
    row_loss, factor, at_label, q = plain_row(z_y, top, rival_sum, w, k0, k1, k2, k3, KIND)
    row_loss = tl.where(taught, row_loss, fill)
    factor = tl.where(taught, factor, fill)
    denominator = known_divisor(denominator, shares, COUNT, False)
    if not SUMS:
        tl.store(loss + o_r, row_loss, mask=m_r)
    if STATE == 1:
        store_state(state, o_r, m_r, n_rows, top, factor, at_label, y)
    if SUMS:
        finish_mean(shares, counter, loss, state, n_rows, tl.sum(tl.where(m_r, row_loss, 0.0), axis=0),
                    tl.sum(w, axis=0), denominator, COUNT, N_PARTIAL, (-1 if STATE == SCALE else 4) if STATE else 0,
                    LAST)
