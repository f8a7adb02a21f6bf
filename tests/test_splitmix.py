"""Random bits of attacks and pictures are those of SplitMix64, and stay the same bits."""

from __future__ import annotations

import hashlib

import torch

from encouraging.attacks._noise import uniform
from encouraging.data.augment import uniforms
from encouraging.splitmix import GOLDEN, mix, shift_right, signed


def digest(numbers: torch.Tensor) -> str:
    return hashlib.sha256(numbers.contiguous().numpy().tobytes()).hexdigest()[:16]


def test_the_hash_is_that_of_the_reference() -> None:
    """Five numbers of the generator that Java's SplittableRandom and Vigna's splitmix64.c share, seed 1234567."""
    states = 1234567 + torch.arange(1, 6) * GOLDEN
    assert mix(states).tolist() == list(map(signed, (
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821)))


def test_a_shift_fills_with_zeros() -> None:
    assert shift_right(torch.tensor([-1, 2**62]), 60).tolist() == [15, 4]


def test_starts_of_attacks_and_crops_are_those_of_every_version() -> None:
    index = torch.arange(50) * 7919
    assert digest(uniform((50, 9), 5, 2, index)) == "fcfbb101bea52ca0"
    assert digest(uniforms(index, 9, (5, 2, 7))) == "969fea8f8d3fd588"
