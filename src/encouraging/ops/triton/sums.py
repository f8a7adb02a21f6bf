"""What programs leave for a sum over all rows, and the launches that make one of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .around import denominator_kernel
from .cached_launch import Kept, Prepared, current_stream, is_captured
from .finish import BY_ARRIVAL, IN_ORDER, LATER, NOBODY, total_kernel
from .in_order import COUNTS, EMPTY, GROUP, GROUPS, LABELS
from .layout import pieces, power_of_two

MOST_ARRIVALS = 2048  # programs whose sum the last of them to arrive makes
# More of them, and not fewer than this, make their sum in order, see in_order.py; a launch of its own does it for the
# rest. ``math.inf`` leaves all of them to that launch.
in_order_from: float = 1 + MOST_ARRIVALS
in_order_rows: float = 1 << 14  # more of them were faster with launches of their own
# Rows whose labels are counted by the first programs of that launch, and all others read their counts. With 0 here and
# ``math.inf`` above, a launch before counts the labels and all sums are made in order: one launch less than with a sum
# of its own. Not timed yet (benchmarks/ways_gpu.py sums).
counted_rows: float = math.inf
_MOST_IN_ORDER = GROUP.value * GROUPS.value
_MOST_TURNS = 4  # in which a program counts its part of the labels
_BLOCK = 2048
_MOST_GROUPS = 64


class Workspace(NamedTuple):
    """Where the programs of a launch leave their shares, and the counter of those that have; 0 between launches."""

    shares: Tensor
    counter: Tensor


_workspaces: dict[tuple[int, int], Workspace] = {}
_denominators, _totals = Kept(), Kept()


def workspace(like: Tensor) -> Workspace:
    """The workspace of the current stream, whose launches come one after the other. A graph that is being captured gets
    one of its own: graphs that were captured on one stream may be replayed on several at once."""
    device = like.get_device()
    if is_captured(device):
        return _new_workspace(like)
    key = device, current_stream(device)
    kept = _workspaces.get(key)
    if kept is None:
        kept = _new_workspace(like)
        if type(kept.counter) is Tensor:  # not a fake one, which a mode of torch makes
            _workspaces[key] = kept
    return kept


def _new_workspace(like: Tensor) -> Workspace:
    # Made in inference mode, it could not be used outside.
    with torch.inference_mode(False):
        return Workspace(torch.empty(2 * MOST_ARRIVALS, dtype=torch.float32, device=like.device),
                         torch.zeros(1, dtype=torch.int32, device=like.device))


def ending(programs: int, rows: int, in_order: bool) -> int:
    """Who makes the sum over so many programs and rows: see ``finish.py``. ``in_order`` says that the kernel has the
    registers for that."""
    way = BY_ARRIVAL if 0 < programs <= MOST_ARRIVALS else LATER
    if in_order and in_order_from <= programs <= _MOST_IN_ORDER and rows <= in_order_rows:
        way = IN_ORDER
    return int(way.value)


_words: dict[tuple[int, int], Tensor] = {}


def words(like: Tensor, programs: int) -> Tensor:
    """The words of ``in_order.py`` for so many programs: of the current stream, or of the graph that is being captured,
    as a :func:`workspace` is."""
    device, count = like.get_device(), COUNTS.value + GROUPS.value + power_of_two(programs)
    if is_captured(device):
        return _new_words(like, count)
    key = device, current_stream(device)
    kept = _words.get(key)
    if kept is None or kept.shape[0] < count:
        kept = _new_words(like, count)
        if type(kept) is Tensor:  # not a fake one, which a mode of torch makes
            _words[key] = kept
    return kept


def _new_words(like: Tensor, count: int) -> Tensor:
    with torch.inference_mode(False):
        return torch.full((count,), EMPTY.value, dtype=torch.int32, device=like.device)


def n_counting(rows: int) -> int:
    """How many programs count the labels of so many rows before all others; 0 where it would take them too long."""
    parts = min(COUNTS.value, power_of_two(pieces(rows, LABELS.value)))
    return parts if rows <= counted_rows and rows <= _MOST_TURNS * parts * LABELS.value else 0


class Sum(NamedTuple):
    """Where the programs of a launch write a sum: their shares, and the sum itself where one of them makes it."""

    out: Tensor | None
    shares: Tensor
    counter: Tensor | None
    programs: int
    ending: int
    dtype: torch.dtype = torch.float32  # of the sum

    def total(self, divisor: Tensor | None, factor: float) -> Tensor:
        """The sum times ``factor`` over ``divisor``, by which the last program has multiplied it already."""
        if self.out is not None:
            return self.out
        return total(self.shares, self.programs, divisor, factor, dtype=self.dtype)


def sum_of(like: Tensor, programs: int, rows: int = 0, in_order: bool = False,
           dtype: torch.dtype = torch.float32) -> Sum:
    """Buffers for a sum of this type over so many programs, on the device of ``like``."""
    way = ending(programs, rows, in_order)
    if way == LATER.value:
        shares = torch.empty(max(1, programs), dtype=torch.float32, device=like.device)
        return Sum(None, shares, None, programs, way, dtype)
    out = torch.empty(size=(), dtype=dtype, device=like.device)
    return Sum(out, *room_for(way, like, programs), programs, way, dtype)


def room_for(way: int, like: Tensor, programs: int) -> tuple[Tensor, Tensor | None]:
    """Shares and counter of so many programs for a sum that one of them makes."""
    return (words(like, programs), None) if way == IN_ORDER.value else workspace(like)


def n_partial_weights(rows: int) -> int:
    """How many partial sums :func:`denominator` makes."""
    return min(256, power_of_two(pieces(rows, _denominator_block(rows))))


def _denominator_block(rows: int) -> int:
    return min(8192, max(16, power_of_two(rows)))


def denominator(target: Tensor, weight: Tensor | None, classes: int, ignore_index: int) -> Tensor:
    """The mean's denominator, the sum of the labels' weights, as a few partial sums."""
    prepared = denominator_for(target, weight, classes, ignore_index)
    partial_weights = torch.empty(prepared.programs, dtype=torch.float32, device=target.device)
    prepared(target.get_device(), target, weight, partial_weights)
    return partial_weights


def denominator_for(target: Tensor, weight: Tensor | None, classes: int, ignore_index: int) -> Prepared:
    """The launch of :func:`denominator`, remembered: it takes target, weight and the partial sums."""
    key = (target.get_device(), target.shape, target.dtype, classes, ignore_index,
           None if weight is None else weight.dtype)
    prepared: Prepared | None = _denominators.get(key)
    if prepared is None:
        rows = target.shape[0]
        prepared = _denominators.keep(key, Prepared(
            denominator_kernel, n_partial_weights(rows), (rows, classes, ignore_index),
            BLOCK=_denominator_block(rows), WEIGHTED=weight is not None, num_warps=8))
    return prepared


def total(shares: Tensor, n_shares: int, partial_weights: Tensor | None = None, factor: float = 1.0, *,
          count: int = NOBODY.value, state: Tensor | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """The sum of ``n_shares`` shares, times ``factor``, over the denominator: partial sums, or what the programs left
    behind their shares. ``state`` receives, as its last number, what the gradient is multiplied by."""
    scale_at = None if state is None else state.shape[0] - 1
    prepared = total_for(shares.get_device(), n_shares, 0 if partial_weights is None else partial_weights.numel(),
                         factor, count, scale_at, dtype)
    return launch_total(prepared, shares, partial_weights, state, dtype)


def total_for(device: int, n_shares: int, n_partial: int, factor: float, count: int, scale_at: int | None,
              dtype: torch.dtype) -> Prepared:
    """The launch of :func:`total`, remembered, for a sum of this type; :func:`launch_total` launches it."""
    key = device, n_shares, n_partial, factor, count, scale_at, dtype
    prepared: Prepared | None = _totals.get(key)
    if prepared is None:
        block = min(_BLOCK, max(16, power_of_two(n_shares)))
        programs = min(_MOST_GROUPS, max(1, pieces(n_shares, block)))
        prepared = _totals.keep(key, Prepared(
            total_kernel, programs, (n_shares, scale_at or 0, float(factor)), N_PARTIAL=n_partial, COUNT=count,
            KEEP=scale_at is not None, GROUPED=programs > 1, BLOCK=block, num_warps=4))
    return prepared


def launch_total(prepared: Prepared, shares: Tensor, partial_weights: Tensor | None, state: Tensor | None,
                 dtype: torch.dtype) -> Tensor:
    out = torch.empty(size=(), dtype=dtype, device=shares.device)
    groups, counter = workspace(shares) if prepared.programs > 1 else (None, None)
    prepared(shares.get_device(), shares, partial_weights, groups, counter, out, state)
    return out
