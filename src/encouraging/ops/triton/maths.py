"""Scalar mathematics for the kernels, in float32.

The fast intrinsics are right for the elements of a row, whose errors average out in a sum. What a row has only one of
(its gap, its probability, its loss) is computed here to about an ulp, at any confidence, for a few instructions.
"""

import math

import triton
import triton.language as tl

LOG2E = tl.constexpr(math.log2(math.e))
LOG2E_REST = tl.constexpr(1.9259629911266175e-08)  # what float32 drops of log2(e)
LN2 = tl.constexpr(math.log(2))
# Logits below this count as masked, as -inf does: a finite floor for the running maximum keeps -inf - -inf away.
LOWEST = tl.constexpr(-1e38)
INF = tl.constexpr(math.inf)

# The upstream gradient of a loss per element: one number for all, as a sum or a mean of the losses has, or one each.
ONE = tl.constexpr(1)
EACH = tl.constexpr(2)
PULLS = tl.constexpr(3)  # of a curve of one's own, one per row
# For a gradient that is made again from the logits, without the loss: one per row, or one for all.
EACH_AGAIN = tl.constexpr(4)
ONE_AGAIN = tl.constexpr(5)


@triton.jit
def exp_of_minus(x):
    """exp(-x) for x >= 0. The rounding error of x * log2(e) is put back; past 200 the result is 0 anyway."""
    x = tl.minimum(x, 200.0, propagate_nan=tl.PropagateNan.ALL)
    t = x * LOG2E
    lost = tl.fma(x, LOG2E, -t) + x * LOG2E_REST
    return tl.exp2(-t) * (1.0 - lost * LN2)


@triton.jit
def exp_of_distance(z, top, EXACT: tl.constexpr):
    """exp(z - top) for z <= top. EXACT where a row has so few classes that no sum averages the errors of the fast one,
    which grow with the distance."""
    if EXACT:
        return exp_of_minus(top - z)
    else:
        return tl.exp2((z - top) * LOG2E)


@triton.jit
def weighted(weight, value):
    """Their product, in which a weight of 0 leaves nothing of an infinite value."""
    return tl.where(weight == 0.0, 0.0, weight * value)


@triton.jit
def log1p(x):
    """log(1 + x) for 0 <= x <= 1: twice the series of artanh, which is short because x / (2 + x) <= 1/3."""
    t = x / (2.0 + x)
    u = t * t
    series = 1.0 + u * (1 / 3 + u * (1 / 5 + u * (1 / 7 + u * (1 / 9 + u * (1 / 11 + u * (1 / 13 + u * (1 / 15)))))))
    return 2.0 * t * series


@triton.jit
def log_of_rest(p):
    """log(1 - p) for 0 <= p <= 1/2, from p itself: a polynomial of degree 9, wrong by 1.3 ulp at most. It takes half of
    the instructions of a logarithm, which would also see only what rounding leaves of 1 - p."""
    s = 1.4079567028635502 * p - 1.6302116903983566
    s = s * p + 1.2050138964472943
    s = s * p - 0.18157164776234336
    s = s * p + 0.2645475838387454
    s = s * p + 0.2434374400986204
    s = s * p + 0.3336619917565396
    s = s * p + 0.4999937467729804
    s = s * p + 1.0000000193555454
    return -p * s


@triton.jit
def log(x):
    """log(x) for x = 0 or x >= 2**-126, inf and NaN included, through the exponent and the series above."""
    return _log_with(x, x - 1.0, x != x)


@triton.jit
def log1p_of_any(x):
    """log(1 + x) for any x >= -1 that is no closer to -1 than float32 shows."""
    return _log_with(1.0 + x, x, (x >= 0.0) & (x < 1.0))


@triton.jit
def _log_with(x, excess, near):
    """log(x), where ``near`` from the digits of ``excess`` = x - 1, which x itself has lost."""
    bits = x.to(tl.int32, bitcast=True)
    exponent = tl.where(near, 0, (bits >> 23) - 127)
    fraction = ((bits & 0x7FFFFF) | 0x3F800000).to(tl.float32, bitcast=True)
    finite = exponent.to(tl.float32) * LN2 + log1p(tl.where(near, excess, fraction - 1.0))
    return tl.where(x == 0.0, -INF, tl.where(x < INF, finite, x))


@triton.jit
def difference(a, b):
    """a - b, and what rounding took from it (0 where a - b is infinite)."""
    rounded = a - b
    back = rounded - a
    lost = (a - (rounded - back)) - (b + back)
    return rounded, tl.where(lost == lost, lost, 0.0)


@triton.jit
def inverse_of(x):
    """1 / x for 1/2 <= x <= 1 to half an ulp: the best parabola, wrong by 1/99, and two of Newton's steps. No slower
    than a division's own checks of its range, and the unit that divides is left to the exponentials."""
    r = (256 / 99 * x - 576 / 99) * x + 420 / 99
    r += r * (1.0 - x * r)
    return r + r * (1.0 - x * r)


@triton.jit
def inverse_of_sum(x):
    """1 / (1 + x) for 0 <= x <= 1, in the same way."""
    y = 1.0 + x
    r = (32 / 99 * y - 144 / 99) * y + 210 / 99
    r += r * (1.0 - y * r)
    return r + r * (1.0 - y * r)


@triton.jit
def shifted(z, top, SIXTEEN_BIT: tl.constexpr):
    """(z - top) in units of log 2, the argument of exp2.

    For 16-bit logits one fused multiply-add is accurate enough; for float32 the difference, exact near the maximum,
    comes first.
    """
    if SIXTEEN_BIT:
        t = z * LOG2E - top * LOG2E
    else:
        t = (z - top) * LOG2E
    return t


@triton.jit
def row_start(i_row, inner, stride_outer, stride_inner):
    """Offset of a row of logits, whose rows may be laid out along one dimension or two (N, C, d). int64: rows times
    classes passes 2**31 at language-model sizes."""
    i_row = tl.cast(i_row, tl.int64)
    return (i_row // inner) * stride_outer + (i_row % inner) * stride_inner
