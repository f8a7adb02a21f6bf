"""What the kernels of soft targets do with a row: the class with the largest logit is set apart.

Every class k has a mass u_k, and the row's loss is the sum of u_k times the curve at p_k. All classes but the one with
the largest logit have p <= 1/2, where 1 - p loses nothing. That one's own 1 - p comes from the sum over its rivals, so
it is exact at any confidence. With r = pull / (1 - p) the gradient is

    p_k * sum_j u_j r_j - u_k r_k        for the rivals
    p * sum_j u_j r_j - u * pull         for the largest, the sum over its rivals j alone

Where several classes share the largest logit they are treated alike, and ``at_largest`` is right for each.
"""

import triton
import triton.language as tl

from .curves import LIKE_CROSS_ENTROPY, LIKE_NORMAL, chances, curve_at, curve_of_rival
from .maths import LN2, inverse_of, log_of_rest


@triton.jit
def largest_and_rivals(top, count, rival_sum):
    """The largest logit, NaN where there are no probabilities (NaN among the logits, or all at -inf), and the sum over
    all classes but one of those ``count`` that have it."""
    return tl.where(count == 0.0, float("nan"), top), rival_sum + (count - 1.0)


@triton.jit
def largest_class(top, reference, rival_sum, k0, k1, k2, k3, KIND: tl.constexpr, UNBOUNDED: tl.constexpr):
    """p, value, pull and pull / (1 - p) of the class with the logit ``top``, whose rivals have the sum ``rival_sum`` of
    exp(z - reference); and p with its logarithm for a class with the logit ``reference``."""
    gap, p, q, surprise, log_q, reference_p, log_reference_p = chances(top, reference, rival_sum)
    value, pull = curve_at(gap, p, q, surprise, log_q, k0, k1, k2, k3, KIND)
    over = tl.where(q == 0.0, 0.0, pull / q)
    if not UNBOUNDED:  # then the reference is the largest itself
        reference_p, log_reference_p = p, -surprise
    return p, value, pull, over, reference_p, log_reference_p


@triton.jit
def rival_terms(t, e, reference_p, log_reference_p, k0, k1, k2, k3, KIND: tl.constexpr, TAIL: tl.constexpr):
    """Value and pull / (1 - p) of rivals: ``t`` is (z - reference) / log 2 (-inf for what is none), ``e`` is 2 ** t."""
    if TAIL == LIKE_CROSS_ENTROPY:
        return -(t * LN2 + log_reference_p), e * 0.0 + 1.0
    elif TAIL == LIKE_NORMAL:
        b_p = e * reference_p
        return log_of_rest(b_p) - (t * LN2 + log_reference_p), inverse_of(1.0 - b_p)
    else:
        return curve_of_rival(t, e, reference_p, log_reference_p, k0, k1, k2, k3, KIND)


@triton.jit
def row_terms(p, value, pull, over, reference_p, rival_sum, u_largest, values, pulls):
    """The loss, and what the gradient needs, from the sums over the rivals: their ``factor``, and two numbers for the
    largest class."""
    loss = values + tl.where((u_largest == 0.0) & (p == p), 0.0, u_largest * value)  # NaN without probabilities
    factor = reference_p * pulls + tl.where(rival_sum == 0.0, 0.0, u_largest * pull / rival_sum)
    # A class with p > 1/2 is the only largest one. Its u_largest - u is 0, but not where the compiler makes the product
    # behind u part of the subtraction: one multiply-add leaves the rounding error, and ``over`` is 1e5 at p = 1 - 1e-5.
    return loss, factor, p * pulls, tl.where(p < 0.6, p * over, 0.0)


# What the gradient needs of a row, one number per row each: where the largest logit is the reference, all of it.
STATE_NUMBERS = 8


@triton.jit
def store_soft_state(state, o_r, m_r, n_rows, top, factor, base, ratio, u_largest, pull, reference_p, log_reference_p,
                     TAIL: tl.constexpr):
    tl.store(state + o_r, top, mask=m_r)
    tl.store(state + n_rows + o_r, factor, mask=m_r)
    tl.store(state + 2 * n_rows + o_r, base, mask=m_r)
    tl.store(state + 3 * n_rows + o_r, ratio, mask=m_r)
    tl.store(state + 4 * n_rows + o_r, u_largest, mask=m_r)
    tl.store(state + 5 * n_rows + o_r, pull, mask=m_r)
    if TAIL != LIKE_CROSS_ENTROPY:
        tl.store(state + 6 * n_rows + o_r, reference_p, mask=m_r)
        tl.store(state + 7 * n_rows + o_r, log_reference_p, mask=m_r)


@triton.jit
def load_soft_state(state, o_r, m_r, n_rows, TAIL: tl.constexpr):
    """What :func:`store_soft_state` was given, in its order."""
    top = tl.load(state + o_r, mask=m_r, other=0.0)
    factor = tl.load(state + n_rows + o_r, mask=m_r, other=0.0)
    base = tl.load(state + 2 * n_rows + o_r, mask=m_r, other=0.0)
    ratio = tl.load(state + 3 * n_rows + o_r, mask=m_r, other=0.0)
    u_largest = tl.load(state + 4 * n_rows + o_r, mask=m_r, other=0.0)
    pull = tl.load(state + 5 * n_rows + o_r, mask=m_r, other=0.0)
    reference_p, log_reference_p = top, top
    if TAIL != LIKE_CROSS_ENTROPY:
        reference_p = tl.load(state + 6 * n_rows + o_r, mask=m_r, other=0.0)
        log_reference_p = tl.load(state + 7 * n_rows + o_r, mask=m_r, other=0.0)
    return top, factor, base, ratio, u_largest, pull, reference_p, log_reference_p


@triton.jit
def at_largest(u, u_largest, base, ratio, pull):
    """The gradient of the largest class; of several alike, each has its own mass ``u`` and together ``u_largest``."""
    return base + ratio * (u_largest - u) - u * pull
