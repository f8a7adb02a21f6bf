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

from ..splitmix import GOLDEN, mix, shift_right, signed


def uniform(shape: Sequence[int], seed: int | Tensor, stream: int, index: Tensor) -> Tensor:
    """Float32 numbers in (0, 1] of this shape, whose first dimension is that of ``index``.

    >>> whole = uniform((3, 2), 0, 0, torch.tensor([4, 5, 6]))
    >>> torch.equal(uniform((1, 2), 0, 0, torch.tensor([6])), whole[2:])
    True
    """
    size = math.prod(shape[1:])
    start = seed if isinstance(seed, Tensor) else torch.full((), seed, dtype=torch.int64, device=index.device)
    # Nested, because hashes of seed and index that are merely combined meet where seed and index are swapped.
    key = mix(mix(mix(start + GOLDEN) + signed(GOLDEN * (stream + 1))) + index.to(torch.int64))
    position = torch.arange(1, size + 1, device=index.device) * GOLDEN
    bits = shift_right(mix(key[:, None] + position), 40)
    return ((bits.to(torch.float32) + 0.5) * 2.0**-24).reshape(tuple(shape))


def normal(shape: Sequence[int], seed: int | Tensor, stream: int, index: Tensor) -> Tensor:
    """Standard normal float32 numbers (Box and Muller); uses ``stream`` and the one after it."""
    radius = (-2 * uniform(shape, seed, stream, index).log()).sqrt()
    return radius * (2 * math.pi * uniform(shape, seed, stream + 1, index)).cos()
