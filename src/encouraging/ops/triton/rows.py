"""What every kernel does with one row, or with a vector of rows, once its sums are known.

A row's gradient needs only a few numbers of the row, its *state*:

    top        the largest rival's logit, from which the others are measured
    factor     grad_k = factor * exp(z_k - top) for the rivals k of the pivot
    at_pivot   the pivot's own gradient, in closed form
    pivot      the class that is set apart: the label, or -1 for a row that teaches nothing

and with label smoothing, where every class k has a weight u_k, three more:

    top_p      the largest rival's probability: p_k = top_p * exp(z_k - top), and then
               grad_k = factor * exp(z_k - top) - u_k * pull_k / (1 - p_k)
    at_label   the label's gradient: with the label's own weight, or the pivot's where they are the same
    log_top_p  the logarithm of top_p, known also where top_p is too small for a number

Smoothing asks for pull / (1 - p) of every class, which is lost for a class with p near 1. There is at most one, and
setting it apart makes it exact. The label is set apart in any case. Rows on chip set its largest rival apart too
(``top_rival``); rows in two passes take another pivot for a confident mistake, when some other class has p > 1/2.
"""

import triton
import triton.language as tl

from .curves import LIKE_CROSS_ENTROPY, LIKE_NORMAL, chances, curve_at, curve_of_rival
from .maths import inverse_of, log, shifted, weighted


@triton.jit
def sum_of(parts, N: tl.constexpr):
    """The sum of N partial sums; 1 where there are none, which is what a sum over the rows divides by."""
    total = 1.0
    if N:
        total = tl.sum(tl.load(parts + tl.arange(0, N)), axis=0)
    return total


@triton.jit
def store_state(state, o_r, m_r, n_rows, top, factor, at_pivot, pivot):
    n_rows = tl.cast(n_rows, tl.int64)  # six times it passes 2**31 from 358 million rows on
    tl.store(state + o_r, top, mask=m_r)
    tl.store(state + n_rows + o_r, factor, mask=m_r)
    tl.store(state + 2 * n_rows + o_r, at_pivot, mask=m_r)
    tl.store(state + 3 * n_rows + o_r, pivot.to(tl.float32, bitcast=True), mask=m_r)


@triton.jit
def store_smooth_state(state, o_r, m_r, n_rows, top_p, at_label, log_top_p):
    n_rows = tl.cast(n_rows, tl.int64)
    tl.store(state + 4 * n_rows + o_r, top_p, mask=m_r)
    tl.store(state + 5 * n_rows + o_r, at_label, mask=m_r)
    tl.store(state + 6 * n_rows + o_r, log_top_p, mask=m_r)


@triton.jit
def store_by_products(p_out, lse_out, argmax_out, o_r, m_r, taught, z_y, z_pivot, top, rival_sum, best):
    lse = logsumexp_with(z_pivot, top, rival_sum)
    tl.store(lse_out + o_r, lse, mask=m_r)
    tl.store(p_out + o_r, tl.where(taught, tl.exp(z_y - lse), float("nan")), mask=m_r)
    tl.store(argmax_out + o_r, best.to(tl.int64), mask=m_r)


@triton.jit
def read_label(target, weight, o_r, m_r, n_classes, ignore_index, WEIGHTED: tl.constexpr):
    """The label (-1 where the row teaches nothing), its weight, and what such a row is filled with: 0 where it is
    ignored, NaN where the label names no class, which a kernel cannot raise."""
    label = tl.load(target + o_r, mask=m_r, other=0).to(tl.int64)
    ignored = label == ignore_index
    known = (label >= 0) & (label < n_classes)
    taught = m_r & known & (ignored == 0)
    y = tl.where(taught, label, -1).to(tl.int32)
    fill = tl.where(ignored | known, 0.0, float("nan"))
    if WEIGHTED:
        w = tl.load(weight + tl.where(taught, label, 0), mask=taught, other=0.0).to(tl.float32)
    else:
        w = tl.where(taught, 1.0, 0.0)
    return y, taught, w, fill


@triton.jit
def plain_row(z_y, top, rival_sum, w, k0, k1, k2, k3, KIND: tl.constexpr):
    """Loss, factor, the label's gradient and 1 - p. ``rival_sum`` is 0 without rivals: one class, or others masked."""
    gap, p, q, surprise, log_q, top_p, log_top_p = chances(z_y, top, rival_sum)
    value, pull = curve_at(gap, p, q, surprise, log_q, k0, k1, k2, k3, KIND)
    factor = tl.where(rival_sum == 0.0, 0.0, pull / rival_sum)
    return w * value, w * factor, -w * pull, q


@triton.jit
def store_lengths(lengths, o_r, m_r, n_rows, taught, fill, w, q, at_label, rival_sum, two):
    """The lengths of a row's gradients, cross-entropy's and the curve's: w (1 - p) n and w pull n, where n is that of a
    pull of 1 on the label and of its counterpart on the rivals, and ``two`` the sum of exp(z - top) ** 2."""
    n = tl.sqrt(1.0 + tl.where(rival_sum == 0.0, 0.0, two / (rival_sum * rival_sum)))
    tl.store(lengths + o_r, tl.where(taught, tl.abs(w) * q * n, fill), mask=m_r)
    tl.store(lengths + n_rows + o_r, tl.where(taught, tl.abs(at_label) * n, fill), mask=m_r)


@triton.jit
def closed_values(count, total, log_top_p):
    """The sum of -log p over rivals, from how many they are and the sum of their distances from the top: the logits'
    own sum would lose what all of them have in common."""
    return tl.where(count == 0, 0.0, -count * log_top_p - total)


@triton.jit
def top_rival(p, top_p, log_top_p, below, n_top, k0, k1, k2, k3, KIND: tl.constexpr):
    """Value, pull and pull / (1 - p) of the label's largest rival, exact at any probability: 1 - p is what the label
    and the other rivals have, of which ``below`` is the sum of exp(z - top) under the top, and ``n_top`` how many stand
    on it (0 for a label without rivals)."""
    q = p + top_p * (below + (n_top - 1.0))
    log_q = log(q)
    value, pull = curve_at(log_top_p - log_q, top_p, q, -log_top_p, log_q, k0, k1, k2, k3, KIND)
    there = n_top > 0
    return tl.where(there, value, 0.0), tl.where(there, pull, 0.0), tl.where(there & (q != 0.0), pull / q, 0.0)


@triton.jit
def smooth_row(gap, p, q, surprise, log_q, top_p, log_top_p, z_y, top, rival_sum, values, pulls, own, own_of_label,
               label_weight, is_label, k0, k1, k2, k3, KIND: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    """Loss, factor, the pivot's gradient and the label's, from the weighted sums over the pivot's rivals.

    ``own`` is the pivot's weight as one class of many, ``own_of_label`` the label's, and ``label_weight`` what the
    label has on top of that.
    """
    value, pull = curve_at(gap, p, q, surprise, log_q, k0, k1, k2, k3, KIND)
    t = shifted(z_y, top, SIXTEEN_BIT)
    e = tl.exp2(t)
    y_value, y_pull = curve_of_rival(t, e, top_p, log_top_p, k0, k1, k2, k3, KIND)
    u = own + tl.where(is_label, label_weight, 0.0)
    loss = weighted(u, value) + values + tl.where(is_label, 0.0, weighted(label_weight, y_value))
    pulls += tl.where(is_label, 0.0, label_weight * y_pull)
    factor = tl.where(rival_sum == 0.0, 0.0, (q * pulls + u * pull) / rival_sum)
    at_pivot = p * pulls - u * pull
    at_label = e * factor - (own_of_label + label_weight) * y_pull
    return loss, factor, at_pivot, tl.where(is_label, at_pivot, at_label)


@triton.jit
def gradient(z, top, factor, top_p, log_top_p, base, k0, k1, k2, k3, KIND: tl.constexpr, TAIL: tl.constexpr,
             SMOOTH: tl.constexpr, SIXTEEN_BIT: tl.constexpr):
    """A tile of the gradient from the rows' states, right for all classes but the pivot and, with smoothing, the label:
    whoever writes the tile puts their numbers in place afterwards, which is cheaper than a choice for every element."""
    t = shifted(z, top, SIXTEEN_BIT)
    e = tl.exp2(t)
    slope = e * factor
    if SMOOTH:
        if TAIL == LIKE_CROSS_ENTROPY:
            slope -= base
        elif TAIL == LIKE_NORMAL:
            slope -= base * inverse_of(1.0 - e * top_p)
        else:
            value, pull = curve_of_rival(t, e, top_p, log_top_p, k0, k1, k2, k3, KIND)
            slope -= base * pull
    return slope


@triton.jit
def series_sums(count, one, two, three, four, top_p):
    """The logarithm of the product of all 1 - p and the sum of all 1 / (1 - p) over rivals, as power series in p to the
    fourth power, from the sums of e**n with p = top_p * e."""
    square = top_p * top_p
    one *= top_p
    two *= square
    three *= square * top_p
    four *= square * square
    return -(one + two / 2 + three / 3 + four / 4), count + one + two + three + four


@triton.jit
def short_series(rival_sum, two, top_p, SIXTEEN_BIT: tl.constexpr):
    """``series_sums``, the count aside, exact for the largest rival, whose p is at most 1/2 here, and to the second
    power for the others, with 16 bits to the first: enough where every class has little weight. The third number is
    a bound of what is left out with float32."""
    others = top_p * (rival_sum - 1.0)
    product = log(1.0 - top_p) - others
    inverse = inverse_of(1.0 - top_p) - 1.0 + others
    left_out = 0.0
    if not SIXTEEN_BIT:
        rest = (two - 1.0) * top_p * top_p
        product -= rest / 2
        inverse += rest
        left_out = rest * top_p
    return product, inverse, left_out


@triton.jit
def series_gradient(e, factor, top_p, base, SIXTEEN_BIT: tl.constexpr):
    """``gradient`` by the same series: a polynomial in e whose coefficients belong to the row."""
    second = base * top_p
    third = second * top_p
    if SIXTEEN_BIT:
        inner = -third
    else:
        fourth = third * top_p
        inner = e * (e * (-fourth * top_p) - fourth) - third
    return e * (e * inner + (factor - second)) - base


@triton.jit
def not_series(four, top_p, base):
    """Whether what the series leaves out, about p**5 of a class's weight, would show in float32."""
    return top_p * top_p * top_p * top_p * four * base > 4e-7


@triton.jit
def logsumexp_with(z, top, rival_sum):
    """logsumexp of a class and its rivals, if it has any."""
    gap, p, q, surprise, log_q, top_p, log_top_p = chances(z, top, rival_sum)
    return tl.where(rival_sum == 0.0, z, top - log_top_p)
