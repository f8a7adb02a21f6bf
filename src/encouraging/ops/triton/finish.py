"""The end of a sum over all rows: the last program to arrive adds up what all programs have left.

Every program writes its share and then counts itself. The one that finds all others counted adds the shares up in the
order of the programs, so that the result does not depend on which one it is, and sets the counter back to 0 for the
next launch. So a sum takes no launch of its own, and no buffer has to be cleared. Many programs take the other way of
``in_order.py``.
"""

import triton
import triton.language as tl

from .in_order import add_in_order, look_at_count, take_count, wait_for_count
from .rows import read_label, sum_of

# Who counts the labels' weights, by which a mean divides: nobody, for there is no mean or it is given as partial sums;
# every program for itself, before it writes the gradient; the last program, where no gradient is written yet; or
# N_PARTIAL programs before all others, see in_order.py.
NOBODY = tl.constexpr(0)
EVERYONE = tl.constexpr(1)
THE_LAST = tl.constexpr(2)
THE_FIRST = tl.constexpr(3)

# Who makes the sum of all shares, LAST: another launch, the last program to arrive, or the one with the last number. In
# the third case ``shares`` are the words of in_order.py.
LATER = tl.constexpr(0)
BY_ARRIVAL = tl.constexpr(1)
IN_ORDER = tl.constexpr(2)

SCALE = tl.constexpr(2)  # a STATE that has no numbers of the rows, only what the gradient of the sum is multiplied by


@triton.jit
def sum_of_shares(shares, n, BLOCK: tl.constexpr = 1024):
    """The sum of n shares in a fixed order. They are read past the level-1 cache, which other programs do not write."""
    b_sum = tl.zeros([BLOCK], tl.float32)
    for first in tl.range(0, n, BLOCK):
        o = first + tl.arange(0, BLOCK)
        b_sum += tl.load(shares + o, mask=o < n, other=0.0, cache_modifier=".cg")
    return tl.sum(b_sum, axis=0)


@triton.jit
def arrives_last(counter):
    """Whether all other programs have been here before. Then the counter is 0 again."""
    tl.debug_barrier()  # all threads have written what they leave
    arrived = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
    last = arrived == tl.num_programs(0) - 1
    if last:
        tl.store(counter, 0)
    return last


@triton.jit
def finish(shares, counter, out, share, scale, LAST: tl.constexpr):
    """Leave this program's share of a sum. With LAST, the last program writes the sum of all, times ``scale``."""
    if LAST == IN_ORDER:
        last, total = add_in_order(shares, share, 0)
        if last:
            tl.store(out, total * scale)
    else:
        tl.store(shares + tl.program_id(0), share)
        if LAST:  # noqa: SIM102 - decided by the compiler, and what follows by the program
            if arrives_last(counter):
                tl.store(out, sum_of_shares(shares, tl.num_programs(0)) * scale)


@triton.jit
def finish_mean(shares, counter, out, state, n_rows, share, weights, denominator, COUNT: tl.constexpr,
                N_PARTIAL: tl.constexpr, KEEP: tl.constexpr, LAST: tl.constexpr):
    """:func:`finish` of a loss over labels. The programs also leave the weights of their labels where THE_LAST counts
    them. Behind a state of KEEP numbers per row, or of none where KEEP is -1, comes what the gradient of the sum is to
    be multiplied by."""
    if LAST == IN_ORDER:
        last, total = add_in_order(shares, share, N_PARTIAL if COUNT == THE_FIRST else 0)
        if last:
            over = denominator
            if COUNT == THE_FIRST:
                over = take_count(shares)
            _store_mean(out, state, n_rows, total, over, KEEP)
    else:
        n = tl.num_programs(0)
        tl.store(shares + tl.program_id(0), share)
        if COUNT == THE_LAST:
            tl.store(shares + n + tl.program_id(0), weights)
        if LAST:  # noqa: SIM102 - decided by the compiler, and what follows by the program
            if arrives_last(counter):
                over = denominator
                if COUNT == THE_LAST:
                    over = sum_of_shares(shares + n, n)
                _store_mean(out, state, n_rows, sum_of_shares(shares, n), over, KEEP)


@triton.jit
def _store_mean(out, state, n_rows, total, over, KEEP: tl.constexpr):
    tl.store(out, total / over)  # 0 / 0 is the NaN that torch gives for no labels
    if KEEP:
        tl.store(state + (KEEP if KEEP > 0 else 0) * n_rows, 1.0 / over)


@triton.jit
def count_labels(target, weight, n_rows, n_classes, ignore_index, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr = 1024):
    """The sum of the weights of all labels, by one program."""
    b_sum = tl.zeros([BLOCK], tl.float32)
    for first in tl.range(0, n_rows, BLOCK):
        o_r = first + tl.arange(0, BLOCK)
        y, taught, w, fill = read_label(target, weight, o_r, o_r < n_rows, n_classes, ignore_index, WEIGHTED)
        b_sum += w
    return tl.sum(b_sum, axis=0)


@triton.jit
def divisor_of(partial_weights, shares, target, weight, n_rows, n_classes, ignore_index, N_PARTIAL: tl.constexpr,
               COUNT: tl.constexpr, WEIGHTED: tl.constexpr):
    """What a gradient is divided by that is written at once; 1 for a sum, and where THE_LAST will count. Where
    THE_FIRST count, it is what :func:`known_divisor` makes the number of, later."""
    if COUNT == EVERYONE:
        return count_labels(target, weight, n_rows, n_classes, ignore_index, WEIGHTED)
    elif COUNT == THE_FIRST:
        return look_at_count(shares)
    else:
        return sum_of(partial_weights, N_PARTIAL)


@triton.jit
def known_divisor(divisor, shares, COUNT: tl.constexpr, GRAD: tl.constexpr):
    """The number that :func:`divisor_of` stands for, where a gradient asks for it."""
    if COUNT != THE_FIRST:
        return divisor
    elif GRAD:
        return wait_for_count(divisor, shares)
    else:
        return 1.0


@triton.jit
def group_of_shares(shares, n_shares, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """This program's part of the sum of what the programs of another kernel have left, and of the weights behind it
    where COUNT is THE_LAST."""
    b_total = tl.zeros([BLOCK], tl.float32)
    b_weights = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(tl.program_id(0) * BLOCK, n_shares, tl.num_programs(0) * BLOCK):
        o = start + tl.arange(0, BLOCK)
        b_total += tl.load(shares + o, mask=o < n_shares, other=0.0)
        if COUNT == THE_LAST:
            b_weights += tl.load(shares + n_shares + o, mask=o < n_shares, other=0.0)
    return tl.sum(b_total, axis=0), tl.sum(b_weights, axis=0)


# The sum of what the programs of another kernel have left, by a few programs, times a number, over the denominator:
# shares of it where COUNT is THE_LAST, or partial sums.
@triton.jit(do_not_specialize=["n_shares", "scale_at"])
def total_kernel(shares, partial_weights, groups, counter, out, scale_out, n_shares, scale_at, factor,
                 N_PARTIAL: tl.constexpr, COUNT: tl.constexpr, KEEP: tl.constexpr, GROUPED: tl.constexpr,
                 BLOCK: tl.constexpr):
    total, weights = group_of_shares(shares, n_shares, COUNT, BLOCK)
    last = True
    if GROUPED:
        n = tl.num_programs(0)
        tl.store(groups + tl.program_id(0), total)
        tl.store(groups + n + tl.program_id(0), weights)
        last = arrives_last(counter)
    if last:
        if GROUPED:
            total, weights = sum_of_shares(groups, n, 64), sum_of_shares(groups + n, n, 64)
        over = weights if COUNT == THE_LAST else sum_of(partial_weights, N_PARTIAL)
        tl.store(out, total * factor / over)
        if KEEP:
            tl.store(scale_out + scale_at, factor / over)
