"""A sum over all programs of a launch, made inside it however many they are: some programs wait for lower numbers.

Every program leaves its share in a word of its own, which until then holds EMPTY, a NaN that no arithmetic makes. Share
and sign that it is there are one word: no program waits for an atomic or a fence. The last program of every GROUP waits
for the shares of its group, adds them up in their order and leaves the sum; the last program of all adds up the groups.
Whoever has read a word makes it EMPTY again, for the next launch. So the result is the same every time, and a sum over
any number of programs takes no launch of its own.

The denominator of a mean is made in the same launch: N more programs, the first ones, add up the weights of one part of
the labels each and end; the last of them leaves the sum of all parts in one word. All others need that word when they
have read and added up their rows, that is later.

Programs wait for lower numbers alone, and a GPU begins them in the order of their numbers: what is waited for has begun
before, and waits for nothing that has not. Triton's interpreter, which runs them one after the other, would never end
if it were otherwise.
"""

import triton
import triton.language as tl

from .rows import read_label

EMPTY = tl.constexpr(0x7F800001)
_NAN = tl.constexpr(0x7FC00000)

# Whoever takes words has at most as many threads as there are words in a tile, MOST_WARPS: each word is read by one
# thread, which empties it. Two that read the same word could see different things.
MOST_WARPS = 8

# The words, in this order.
COUNTS = tl.constexpr(256)  # of labels, in parts; the last one is that of all
GROUPS = tl.constexpr(256)  # sums of groups; then the shares
GROUP = tl.constexpr(256)

LABELS = tl.constexpr(256)  # that a program counts at a time


@triton.jit
def _leave(word, number):
    bits = number.to(tl.int32, bitcast=True)
    tl.store(word, tl.where(bits == EMPTY, _NAN, bits), cache_modifier=".cg")


@triton.jit
def _take(words, m):
    """The sum of what others have left, as soon as all of it is there. The words are EMPTY afterwards."""
    bits = tl.load(words, mask=m, other=0, volatile=True)
    while tl.max((bits == EMPTY).to(tl.int32), axis=0) != 0:
        bits = tl.load(words, mask=m, other=0, volatile=True)
    tl.debug_barrier()  # all threads have what they wait for
    tl.store(words, tl.full(bits.shape, EMPTY, tl.int32), mask=m)
    return tl.sum(bits.to(tl.float32, bitcast=True), axis=0)


@triton.jit
def add_in_order(words, share, N: tl.constexpr):
    """Leave this program's share, after everything that it has read of the words. Returns whether it is the last
    program, and the sum of all shares, which that one alone has. The first N programs have none."""
    i, n = tl.program_id(0) - N, tl.num_programs(0) - N
    sums, shares = words + COUNTS, words + COUNTS + GROUPS
    last = i == n - 1
    if N:
        tl.debug_barrier()  # no thread is still waiting for the count, which the last program takes away
    _leave(shares + i, share)
    total = share
    if last | (i % GROUP == GROUP - 1):
        o = i // GROUP * GROUP + tl.arange(0, GROUP)
        total = _take(shares + o, o <= i)
        if last:
            o_g = tl.arange(0, GROUPS)
            total += _take(sums + o_g, o_g < i // GROUP)
        else:
            _leave(sums + i // GROUP, total)
    return last, total


@triton.jit
def leave_count(words, target, weight, n_rows, n_classes, ignore_index, N: tl.constexpr, WEIGHTED: tl.constexpr):
    """Add up the weights of one part of the labels, by one of the first N programs, and of all parts, by the last."""
    i = tl.program_id(0)
    b_sum = tl.zeros([LABELS], tl.float32)
    for first in tl.range(i * LABELS, n_rows, N * LABELS):
        o_r = first + tl.arange(0, LABELS)
        y, taught, w, fill = read_label(target, weight, o_r, o_r < n_rows, n_classes, ignore_index, WEIGHTED)
        b_sum += w
    count = tl.sum(b_sum, axis=0)
    if i == N - 1:
        o = tl.arange(0, COUNTS)
        _leave(words + COUNTS - 1, count + _take(words + o, o < N - 1))
    else:
        _leave(words + i, count)


@triton.jit
def look_at_count(words):
    """The count or EMPTY, for :func:`wait_for_count`. Asked for early, it does not have to be waited for."""
    return tl.load(words + COUNTS - 1, volatile=True)


@triton.jit
def wait_for_count(bits, words):
    """The count, from the first look at it, or as many more as it takes."""
    while bits == EMPTY:
        bits = tl.load(words + COUNTS - 1, volatile=True)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def take_count(words):
    """The count, for the last program, when all others have left their shares. The word is EMPTY afterwards."""
    count = wait_for_count(look_at_count(words), words)
    tl.debug_barrier()  # all threads have it
    tl.store(words + COUNTS - 1, EMPTY)
    return count
