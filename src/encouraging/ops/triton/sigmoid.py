"""The sigmoid link: every logit is a class of its own, so loss and gradient are elementwise.

One read of the logits, one of the targets, one write of the gradient. The target says of every logit whether its class
is present (integers, bool), or how surely (floats); or it has one class index per row, which is a read less.
"""

import triton
import triton.language as tl

from .curves import SQUARE_BONUS, curve_at
from .finish import finish
from .maths import EACH, ONE, exp_of_minus, inverse_of_sum, log_of_rest

PRESENCE = tl.constexpr(0)       # integers or bool
PROBABILITY = tl.constexpr(1)    # floats from 0 to 1
CLASS_INDEX = tl.constexpr(2)    # one integer per row of classes; none of them where it names no class


@triton.jit
def _chances(z):
    """p = sigmoid(z), 1 - p, -log p and -log(1 - p), to full relative precision at any z."""
    x = exp_of_minus(tl.abs(z))
    larger = inverse_of_sum(x)
    smaller = x * larger
    excess = -log_of_rest(smaller)  # log(1 + x)
    ahead = z >= 0
    p, q = tl.where(ahead, larger, smaller), tl.where(ahead, smaller, larger)
    surprise = tl.where(ahead, excess, excess - z)
    surprise_of_rest = tl.where(ahead, excess + z, excess)
    return p, q, surprise, surprise_of_rest


@triton.jit
def _presence(target, i_block, m, n_elements, n_classes, WIDE: tl.constexpr, LARGE: tl.constexpr,
              BLOCK: tl.constexpr):
    """Which elements of a block are those of their row's label, and (0, else NaN) whether that names a class. One
    division for all of them: two for each, as ``//`` and ``%`` would be, take longer than the loss. WIDE rows are no
    shorter than a block, which then has parts of two at most: two labels, and two places where they may be."""
    first = (tl.cast(i_block, tl.int64) if LARGE else i_block) * BLOCK
    first_row = first // n_classes
    first_column = (first - first_row * n_classes).to(tl.int32)
    i = tl.arange(0, BLOCK)
    if WIDE:
        n_first = n_classes - first_column  # elements of the first row
        y, known = _label(target + first_row, True, n_classes)
        y_next, next_known = _label(target + first_row + 1, first + n_first < n_elements, n_classes)
        place = tl.where(known, y - first_column, -1).to(tl.int32)
        next_place = tl.where(next_known, y_next + n_first, -1).to(tl.int32)
        unknown = tl.where(known, 0.0, float("nan")), tl.where(next_known, 0.0, float("nan"))
        return (i == place) | (i == next_place), tl.where(i < n_first, unknown[0], unknown[1])
    else:  # the quotients of numbers below 2 * BLOCK are at least 0.5 / n_classes away from where they would be wrong
        column = first_column + i
        behind = ((column.to(tl.float32) + 0.5) * (1.0 / n_classes)).to(tl.int32)
        label, known = _label(target + first_row + behind, m, n_classes)
        return label == (column - behind * n_classes).to(tl.uint32), tl.where(known, 0.0, float("nan"))


@triton.jit
def _label(pointers, m, n_classes):
    """Labels, and whether they name a class: as an unsigned number, one below 0 is large."""
    label = tl.load(pointers, mask=m, other=0).to(tl.int64)
    return label, label.to(tl.uint64) < n_classes


# A program takes BLOCK elements. A factor's offset is (element // size after it) % its own size, which is what
# broadcasting over neighbouring dimensions means. MSE corrects the two parts of a square curve for targets between 0
# and 1, of which the squared error is not linear.
@triton.jit
def sigmoid_kernel(
    logits, target, weight, pos_weight, divisor, upstream, loss, shares, counter, grad,
    n_units, n_classes, weight_after, weight_size, pos_after, pos_size, for_positives, for_negatives, scale,
    k0, k1, k2, k3, n0, n1, n2, n3,
    KIND: tl.constexpr, NEGATIVE_KIND: tl.constexpr, TWO_CURVES: tl.constexpr, TARGET: tl.constexpr, MSE: tl.constexpr,
    WEIGHTED: tl.constexpr, POS_WEIGHTED: tl.constexpr, DIVIDED: tl.constexpr, GRAD: tl.constexpr, SUMS: tl.constexpr,
    VALUES: tl.constexpr, UPSTREAM: tl.constexpr, LARGE: tl.constexpr, WIDE: tl.constexpr, UNIT: tl.constexpr,
    BLOCK: tl.constexpr, LAST: tl.constexpr,
):
    # The product tells the compiler how far loads may be vectorised.
    n_elements = (tl.cast(n_units, tl.int64) if LARGE else n_units) * UNIT
    i_block = tl.program_id(0)
    o = (tl.cast(i_block, tl.int64) if LARGE else i_block) * BLOCK + tl.arange(0, BLOCK)
    m = o < n_elements
    z = tl.load(logits + o, mask=m, other=0.0).to(tl.float32)
    weight_of_positives = for_positives
    if POS_WEIGHTED:
        weight_of_positives *= tl.load(pos_weight + (o // pos_after) % pos_size, mask=m, other=0.0).to(tl.float32)
    if TARGET == PROBABILITY:
        t = tl.load(target + o, mask=m, other=0.0).to(tl.float32)
        p, q, surprise, surprise_of_rest = _chances(z)
        value, pull = curve_at(z, p, q, surprise, -surprise_of_rest, k0, k1, k2, k3, KIND)
        negative_value, negative_pull = curve_at(-z, q, p, surprise_of_rest, -surprise, n0, n1, n2, n3, NEGATIVE_KIND)
        u, v = t * weight_of_positives, (1.0 - t) * for_negatives
        # A part of no weight adds nothing, also where its value is infinite.
        row_loss = tl.where(u == 0.0, 0.0, u * value) + tl.where(v == 0.0, 0.0, v * negative_value)
        slope = v * negative_pull - u * pull
        if MSE:
            between = t * (1.0 - t)
            if KIND == SQUARE_BONUS:
                row_loss -= 2.0 * between * p * q
                slope -= 2.0 * between * p * q * (q - p)
            else:
                row_loss -= between
    else:
        if TARGET == CLASS_INDEX:
            present, unknown = _presence(target, i_block, m, n_elements, n_classes, WIDE, LARGE, BLOCK)
            if MSE:  # there every row has a label
                z += unknown
        else:
            present = tl.load(target + o, mask=m, other=0) != 0
        gap = tl.where(present, z, -z)
        p, q, surprise, surprise_of_rest = _chances(gap)
        value, pull = curve_at(gap, p, q, surprise, -surprise_of_rest, k0, k1, k2, k3, KIND)
        if TWO_CURVES:
            negative_value, negative_pull = curve_at(gap, p, q, surprise, -surprise_of_rest, n0, n1, n2, n3,
                                                     NEGATIVE_KIND)
            value, pull = tl.where(present, value, negative_value), tl.where(present, pull, negative_pull)
        w = tl.where(present, weight_of_positives, for_negatives)
        row_loss = w * value
        slope = tl.where(present, -w, w) * pull
    if WEIGHTED:
        w = tl.load(weight + (o // weight_after) % weight_size, mask=m, other=0.0).to(tl.float32)
        row_loss *= w
        slope *= w
    if VALUES:
        tl.store(loss + o, row_loss.to(loss.dtype.element_ty), mask=m)
    if DIVIDED:
        scale /= tl.load(divisor).to(tl.float32)
    if GRAD:
        above = scale
        if UPSTREAM == ONE:
            above *= tl.load(upstream).to(tl.float32)
        if UPSTREAM == EACH:
            slope *= tl.load(upstream + o, mask=m, other=0.0).to(tl.float32)
        tl.store(grad + o, (slope * above).to(grad.dtype.element_ty), mask=m)
    if SUMS:
        finish(shares, counter, loss, tl.sum(tl.where(m, row_loss, 0.0), axis=0), scale, LAST)
