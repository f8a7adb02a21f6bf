"""How the work is cut into tiles: one small function, and a way to try other cuts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch

# A multiprocessor of the Hopper generation has 256 KiB of registers and 227 KiB of shared memory. A row of 32768
# classes takes 128 KiB of registers in float32, and stays there between its sums and its gradient. A row of 128256
# classes takes 250 KiB even in bfloat16, so it cannot stay on one multiprocessor, and Triton does not reduce across the
# multiprocessors of a cluster: longer rows are read twice, the second time from the level-2 cache as far as it holds.
LONGEST_WHOLE_ROW = 32768


@dataclass(frozen=True)
class Plan:
    """One way to cut the work.

    ``streamed``: rows are read in blocks of ``block`` classes, twice; else whole, ``rows`` at a time.
    ``per_processor``: programs of a persistent grid on each multiprocessor; 0 for a program per tile.
    ``stages``: loads in flight ahead of the arithmetic, through shared memory (1 for none).
    ``reverse``: the second pass of a streamed row runs from its end.
    ``skip``: rows without a label are not read; the logits of the others then wait for the labels.
    """

    rows: int
    block: int
    warps: int
    streamed: bool = False
    per_processor: int = 0
    stages: int = 1
    reverse: bool = True
    skip: bool = True


_override: Plan | None = None


def plan(rows: int, classes: int, dtype: torch.dtype, smooth: bool = False) -> Plan:
    """The cut for these sizes, or the one that :func:`use_plan` asks for."""
    return _override or _plan(classes, smooth)


@lru_cache(maxsize=1024)
def _plan(classes: int, smooth: bool) -> Plan:
    block = max(16, 1 << (classes - 1).bit_length())
    # Smoothing keeps two numbers of every class at hand, for which the registers are too few from 16384 classes on.
    if block > LONGEST_WHOLE_ROW or (smooth and block >= LONGEST_WHOLE_ROW // 2):
        return Plan(rows=1, block=4096 if smooth else 8192, warps=8, streamed=True, per_processor=2)
    if block >= 2048:
        return Plan(rows=1, block=block, warps=min(32, block // 512), skip=False)
    return Plan(rows=max(1, 2048 // block), block=block, warps=4)


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
