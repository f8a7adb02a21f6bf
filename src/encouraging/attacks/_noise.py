"""Random numbers that depend on a seed and the index of an example alone.

A generator's next numbers depend on how many were drawn before, and so on the batch size and on which examples were
left out. Here every number is a hash (SplitMix64) of seed, stream, example and position: an example gets the same start
in any batch, on any device. All of it is arithmetic on tensors, so it can be recorded in a CUDA graph; a seed that
is a tensor may change between replays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def uniform(shape: Sequence[int], seed: int | Tensor, stream: int, index: Tensor) -> Tensor:
    """Float32 numbers in (0, 1] of this shape, whose first dimension is that of ``index``.

    >>> whole = uniform((3, 2), 0, 0, torch.tensor([4, 5, 6]))
    >>> torch.equal(uniform((1, 2), 0, 0, torch.tensor([6])), whole[2:])
    True
    """
    size = math.prod(shape[1:])
    start = seed if isinstance(seed, Tensor) else torch.full((), seed, dtype=torch.int64, device=index.device)
    # Nested, because hashes of seed and index that are merely combined meet where seed and index are swapped.
    key = _mix(_mix(_mix(start + _signed(GOLDEN)) + _signed(GOLDEN * (stream + 1))) + index.to(torch.int64))
    position = torch.arange(1, size + 1, device=index.device) * _signed(GOLDEN)
    bits = _shift(_mix(key[:, None] + position), 40)
    return ((bits.to(torch.float32) + 0.5) * 2.0**-24).reshape(tuple(shape))


def normal(shape: Sequence[int], seed: int | Tensor, stream: int, index: Tensor) -> Tensor:
    """Standard normal float32 numbers (Box and Muller); uses ``stream`` and the one after it."""
    radius = (-2 * uniform(shape, seed, stream, index).log()).sqrt()
    return radius * (2 * math.pi * uniform(shape, seed, stream + 1, index)).cos()


def _mix(bits: Tensor) -> Tensor:
    for shift, multiplier in zip((30, 27), MULTIPLIERS, strict=True):
        bits = (bits ^ _shift(bits, shift)) * _signed(multiplier)
    return bits ^ _shift(bits, 31)


def _shift(bits: Tensor, by: int) -> Tensor:
    """To the right, filled with zeros: torch's own shift repeats the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def _signed(number: int) -> int:
    """The int64 of the same 64 bits."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number
