"""How the work is cut into tiles: one small function, and a way to try other cuts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch

# The cuts below are those that were fastest on an H200 (docs/performance.md). A row that stays in registers between its
# sums and its gradient is read once; a longer one twice, the second time from the level-2 cache as far as it holds.


@dataclass(frozen=True)
class Plan:
    """One way to cut the work.

    ``streamed``: rows are read in blocks of ``block`` classes, twice; else whole, ``rows`` at a time.
    ``per_processor``: programs of a persistent grid on each multiprocessor; 0 for a program per tile.
    ``stages``: loads in flight ahead of the arithmetic, through shared memory (1 for none).
    ``reverse``: the second pass of a streamed row runs from its end.
    ``skip``: rows without a label are not read; the logits of the others then wait for the labels.
    ``registers``: the most that a thread may have (0 for what the compiler likes), so that more programs fit.
    """

    rows: int
    block: int
    warps: int
    streamed: bool = False
    per_processor: int = 0
    stages: int = 1
    reverse: bool = True
    skip: bool = True
    registers: int = 0


MOST_PLANES = 1024  # classes that lie apart, a plane each, are read as they lie up to here

_override: Plan | None = None


def plan(rows: int, classes: int, dtype: torch.dtype, smooth: bool = False, planes: bool = False) -> Plan:
    """The cut for these sizes, or the one that :func:`use_plan` asks for."""
    return _override or _plan(classes, smooth, planes)


@lru_cache(maxsize=1024)
def _plan(classes: int, smooth: bool, planes: bool) -> Plan:
    block = max(16, 1 << (classes - 1).bit_length())
    # Where neighbouring rows are neighbours in memory, a warp takes a line of 32.
    if planes and classes <= MOST_PLANES:
        return Plan(rows=32, block=block, warps=max(1, block // 64))
    # Smoothing needs more registers an element: its rows stay on chip up to 8192 classes, the plain ones up to 16384.
    if block > (8192 if smooth else 16384):
        if classes > 65536:
            return Plan(1, 8192, 16, streamed=True, per_processor=2, registers=64 if smooth else 0)
        return Plan(1, 4096 if smooth else 8192, 8, streamed=True, per_processor=4, registers=64 if smooth else 0)
    if block >= 2048:
        return Plan(1, block, warps=8 if block > 8192 else 4, registers=128 if smooth else 0)
    if block == 1024:
        return Plan(1, block, warps=1 if smooth else 2, skip=smooth, registers=64 if smooth else 0)
    return Plan(rows=32 if block == 16 else 1024 // block, block=block, warps=1, skip=False)


def streamed(cut: Plan) -> Plan:
    """The same rows in blocks."""
    return cut if cut.streamed else Plan(1, min(cut.block, 2048), min(cut.warps, 4), streamed=True, per_processor=8)


def later_plan(rows: int, classes: int) -> tuple[int, int]:
    """Rows and classes of a tile for the gradient that is made later: about 4096 elements, no sums."""
    block = min(4096, max(16, 1 << (classes - 1).bit_length()))
    return 4096 // block, block


@contextmanager
def use_plan(other: Plan | None) -> Iterator[None]:
    """Cut the work this way inside the block, whatever the sizes; for measurements and tests."""
    global _override
    before, _override = _override, other
    try:
        yield
    finally:
        _override = before


@lru_cache(maxsize=64)
def processors(device: torch.device) -> int:
    """Multiprocessors of the device; the interpreter, which runs one program after the other, is given a few."""
    if device.type != "cuda":
        return 3
    return torch.cuda.get_device_properties(device).multi_processor_count
