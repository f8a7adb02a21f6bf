"""How the work is divided among the programs: one small function, and a way to try other divisions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from .. import repeat
from .finish import BY_ARRIVAL
from .layout import ends_of, pieces

# The tilings below are those that were fastest on an H200 (docs/kernel-notes.md). A row that stays in registers between
# its sums and its gradient is read once; a longer one twice, the second time from the level-2 cache as far as it holds.


@dataclass(frozen=True)
class Tiling:
    """One way to divide the work.

    ``streamed``: rows are read in blocks of ``block`` classes, twice; else whole, ``rows`` at a time.
    ``per_processor``: programs on each multiprocessor for streamed rows, which take row after row.
    ``skip``: whole rows without a label are not read; the logits of the others then wait for the labels.
    ``registers``: the most that a thread may have (0 for what the compiler likes), so that more programs fit.
    ``segments``: parts at most into which a streamed row is split, one program each, see ``segments.py``; 1 for rows
    that one program walks over.
    ``repeat``: tiles of ``block`` classes side by side, of rows that are whole.
    """

    rows: int
    block: int
    warps: int
    streamed: bool = False
    per_processor: int = 1
    skip: bool = True
    registers: int = 0
    segments: int = 1
    repeat: int = 1


# Rows are split where they are fewer than the multiprocessors and have so many classes. These numbers follow from how
# many programs a GPU can hold; they were not measured.
split_from: float = 1 << 14  # math.inf leaves every row to one program
MOST_SEGMENTS = 256  # whose partials every program of the row adds up
_SEGMENT_BLOCK, _SEGMENT_WARPS, _SEGMENTS_PER_PROCESSOR = 2048, 4, 8

# Whether rows of float32 on chip with an odd class count are read in vectors with two ends, as those of 16 bits are.
# Element by element 67041 x 1001 took 0.233 ms where 65536 x 1000 took 0.149; benchmarks/ends_gpu.py compares the two.
FLOAT32_ENDS_ON_CHIP = True
MOST_PLANES = 1024  # up to so many classes that lie apart, one plane each, are read as they lie

# Whether streamed rows are divided among no more programs than fit on the GPU at once, and kernels that take many
# registers are held to fewer, so that more programs fit; not timed yet (benchmarks/ways_gpu.py fit).
fitted = True

_override: Tiling | None = None


def tiling_for(classes: int, smooth: bool = False, planes: bool = False, weighted: bool = False) -> Tiling:
    """The tiling for so many classes, or the one that :func:`use_tiling` asks for."""
    return _override or _tiling(classes, smooth, planes, smooth and weighted)


def tiling_override() -> Tiling | None:
    """What :func:`use_tiling` asks for."""
    return _override


def division_key() -> tuple[Tiling | None, float, bool, bool, bool, bool]:
    """What can be set here and changes launches: part of the key under which they are remembered."""
    return _override, split_from, narrow_blocks, narrow_soft, wide_for_few, fitted


@lru_cache(maxsize=1024)
def _tiling(classes: int, smooth: bool, planes: bool, many_numbers: bool = False) -> Tiling:
    block = max(2, 1 << (classes - 1).bit_length())
    # Smoothing with class weights keeps so many numbers of every element (``many_numbers``) that threads spill hundreds
    # of registers where they have 64 elements, or a row of 32: 16 elements at most there, and 8 of few classes.
    # Where neighbouring rows are neighbours in memory, a warp takes a line of 32.
    if planes and classes <= MOST_PLANES:
        return Tiling(rows=32, block=max(16, block), warps=min(16, max(1, block // (16 if many_numbers else 64))))
    if block <= 8:
        return Tiling(rows=128, block=block, warps=4, skip=False)
    # Smoothing needs more registers per element: its rows stay on chip up to 8192 classes, the plain ones up to 16384.
    if block > (8192 if smooth else 16384):
        if classes > 65536:
            return Tiling(1, 8192, 16, streamed=True, per_processor=2, registers=64 if smooth else 0)
        return Tiling(1, 4096 if smooth else 8192, 8, streamed=True, per_processor=4, registers=64 if smooth else 0)
    if block >= 2048:
        warps = 16 if many_numbers and block == 8192 else 8 if block > 8192 else 4
        return Tiling(1, block, warps, registers=128 if smooth else 0)
    if block == 1024:
        return Tiling(1, block, warps=1 if smooth else 2, skip=smooth, registers=64 if smooth else 0)
    warps = 4 if many_numbers and block in (32, 64) else 1
    return Tiling(rows=32 if block == 16 else 1024 // block, block=block, warps=warps, skip=False)


def soft_tiling_for(classes: int, cross_entropy: bool, lean: bool = False) -> Tiling:
    """The tiling for soft targets, of which a row has as many as logits. ``lean`` says that the kernel can do with few
    registers: a curve with a closed form, and no weights, smoothing or gradient on the targets."""
    return _override or _soft_tiling(classes, cross_entropy, lean)


@lru_cache(maxsize=1024)
def _soft_tiling(classes: int, cross_entropy: bool, lean: bool) -> Tiling:
    block = max(2, 1 << (classes - 1).bit_length())
    if block > 8192:
        few = cross_entropy and 16384 < classes <= 65536
        return Tiling(1, 4096, 8, streamed=True, per_processor=3 if few else 4)
    if block == 8192:
        # With at most 128 registers per thread two rows fit on a multiprocessor instead of one.
        return Tiling(1, block, 8, registers=128) if lean else Tiling(1, 2048, 4, streamed=True, per_processor=8)
    if block >= 1024:
        return Tiling(1, block, warps=(4 if cross_entropy else 2) * block // 1024)
    if block <= 8:
        return Tiling(rows=128, block=block, warps=4)
    if block == 16:
        return Tiling(32, block, warps=1, registers=64 if lean else 0) if cross_entropy else Tiling(64, block, warps=2)
    return Tiling(rows=512 // block, block=block, warps=1)


def as_streamed(tiling: Tiling) -> Tiling:
    """The same rows in blocks. A block is made of vectors of 16 bytes, so that it cannot be as short as two classes."""
    if tiling.streamed:
        return tiling
    return Tiling(1, max(16, min(tiling.block, 2048)), min(tiling.warps, 4), streamed=True, per_processor=8)


wide_for_few = True  # whether few rows in blocks take twice the warps each


def widened(tiling: Tiling, rows: int, device: torch.device) -> Tiling:
    """The tiling for so few streamed rows that all of them are on the multiprocessors at once with twice the warps, and
    take half as many blocks one after the other; or the same one for all others."""
    short = tiling.streamed and tiling.block == 2048 and _override is None
    if short and wide_for_few and rows <= 4 * processors(device):
        return replace(tiling, block=4096, warps=8, per_processor=4)
    return tiling


def split(tiling: Tiling, rows: int, classes: int, device: torch.device) -> Tiling:
    """The tiling for so few and long rows that they are split into segments, or the same one for all others."""
    if not tiling.streamed or _override is not None:
        return tiling
    n_processors = processors(device)
    if rows >= n_processors or classes < split_from:
        return tiling
    most = min(MOST_SEGMENTS, _SEGMENTS_PER_PROCESSOR * n_processors // max(1, rows))
    return replace(tiling, block=_SEGMENT_BLOCK, warps=_SEGMENT_WARPS, segments=most, registers=0)


def is_persistent(tiling: Tiling, ending: int | None) -> bool:
    """Whether a launch may be one of fewer programs: each walks over rows, and what they leave for a sum, if there is
    one, is added up by the last to arrive (``ending``, see ``finish.py``). Another launch would read as many shares as
    there should have been programs, and those that count labels first would take the place of others."""
    return fitted and tiling.streamed and tiling.segments == 1 and ending in (None, BY_ARRIVAL.value)


def held_to(registers: int) -> int | None:
    """The most registers that a thread may take, so that more programs fit; None for what the compiler likes."""
    return registers if fitted else None


def segments_of(tiling: Tiling, classes: int) -> tuple[int, int]:
    """How many segments a row is split into, and how many blocks each has."""
    blocks = pieces(pieces(classes, tiling.block), tiling.segments)
    return pieces(classes, blocks * tiling.block), blocks


def ends_for(tiling: Tiling, *tensors: Tensor | None) -> tuple[int, int]:
    """:func:`ends_of` the rows, where the tiling treats them apart: one row at a time. An even row of float32 on chip
    is read in vectors of 8 bytes as it lies."""
    if tiling.rows > 1:
        return 0, 0
    vector, phase = ends_of(*tensors)
    odd = any(tensor is not None and tensor.shape[1] % 2 for tensor in tensors)
    apart = tiling.streamed or vector > 4 or (odd and FLOAT32_ENDS_ON_CHIP)
    return (vector, phase) if apart else (0, 0)


def piece_of(tiling: Tiling, logits: Tensor, unit: int, class_stride: int) -> int:
    """Columns that are loaded at a time: the whole tile, or, where it has many rows, so few that a warp takes them all
    with a vector of at most 16 bytes per thread."""
    if tiling.rows == 1:
        return tiling.block
    if class_stride != 1:
        return tiling.warps
    vector = min(unit, 16 // logits.dtype.itemsize)
    return min(tiling.block, max(1, vector * 32 * tiling.warps // tiling.rows))


# Whether gradients that are made later take narrow blocks side by side, where that is less padding or fewer threads per
# row than one tile as wide as the next power of two.
narrow_blocks = True
narrow_soft = True  # the same for soft targets, with and without the gradient; not timed yet


def narrowed(tiling: Tiling, classes: int, vector: int) -> Tiling:
    """The tiling for rows whose loss alone is asked for, in tiles of 8 threads per row side by side; or the same one
    where that saves less than an eighth of the columns. Rows are read in vectors of so many elements."""
    block = 8 * vector
    n_blocks = pieces(classes, block)
    if (tiling.streamed or _override is not None or not narrow_blocks or not 16 < classes <= 512
            or 8 * n_blocks * block > 7 * tiling.block):
        return tiling
    return Tiling(16, block, warps=4, skip=False, repeat=n_blocks)


def soft_narrowed(tiling: Tiling, classes: int, vector: int, grad: bool) -> Tiling:
    """:func:`narrowed` for soft targets, with their gradient or without: so many threads take a row that each has up to
    16 or 24 of its classes, because a thread keeps up to four numbers of each. Up to 64 classes that takes more
    instructions than a whole tile, whose threads have several rows."""
    threads = 8
    while classes > (16 if grad else 24) * threads:
        threads *= 2
    block = threads * vector
    n_blocks = pieces(classes, block)
    if (tiling.streamed or _override is not None or not narrow_soft or not 64 < classes <= 512
            or 8 * n_blocks * block > 7 * tiling.block):
        return tiling
    return Tiling(128 // threads, block, warps=4, repeat=n_blocks)


def gradient_tile(classes: int, vector: int) -> tuple[int, int, int]:
    """Rows and classes of a tile for the gradient that is made later, which has no sums, and how many tiles a program
    takes side by side. Rows are read in vectors of so many elements; 0 where they lie apart.

    What a row has one of is loaded by every thread of the row, so that these are few: 16 or more, each with up to 32
    elements of it."""
    whole = max(2, 1 << (classes - 1).bit_length())
    if vector and narrow_blocks and 16 < classes <= 2048:
        threads = 16
        while classes > 32 * threads:
            threads *= 2
        block = threads * vector
        n_blocks = pieces(classes, block)
        if block < whole and (threads == 16 or n_blocks * block < whole):
            rows_of_thread = 1 << (max(1, 16 // (vector * n_blocks)).bit_length() - 1)
            return 128 // threads * rows_of_thread, block, n_blocks
    block = min(4096, whole)
    return min(512, 4096 // block), block, 1


@contextmanager
def use_tiling(tiling: Tiling | None) -> Iterator[None]:
    """Divide the work this way inside the block, whatever the sizes; for measurements and tests."""
    global _override
    before, _override = _override, tiling
    repeat.forget()
    try:
        yield
    finally:
        _override = before
        repeat.forget()


@lru_cache(maxsize=64)
def processors(device: torch.device) -> int:
    """Multiprocessors of the device; the interpreter, which runs one program after the other, is given a few."""
    if device.type != "cuda":
        return 3
    return torch.cuda.get_device_properties(device).multi_processor_count
