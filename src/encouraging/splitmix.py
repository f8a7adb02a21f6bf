"""SplitMix64 on tensors: random bits without a state, the same on every device and in every batch.

The hash is Vigna's, on int64, because torch has no arithmetic on uint64; products wrap around alike.
"""

from __future__ import annotations

from torch import Tensor


def signed(number: int) -> int:
    """The int64 of the same 64 bits."""
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >> 63 else number


GOLDEN = signed(0x9E3779B97F4A7C15)  # between the states of a stream
_MULTIPLIERS = (signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB))


def mix(bits: Tensor) -> Tensor:
    """The hash of every int64: the output of SplitMix64 in this state.

    >>> import torch
    >>> mix(torch.tensor([GOLDEN])).item() == signed(0xE220A8397B1DCDAF)  # the first number of the seed 0
    True
    """
    for by, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        bits = (bits ^ shift_right(bits, by)) * multiplier
    return bits ^ shift_right(bits, 31)


def shift_right(bits: Tensor, by: int) -> Tensor:
    """A shift that fills with zeros: torch's own repeats the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)
