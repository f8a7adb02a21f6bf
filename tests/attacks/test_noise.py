"""Random starts: they follow from seed and index alone, and fill the ball evenly."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from encouraging.attacks._ball import L2_BALL, LINF
from encouraging.attacks._noise import normal, uniform
from strategies import SEEDS


@given(seed=SEEDS, restart=st.integers(0, 5), numbers=st.lists(st.integers(0, 2**40), min_size=1, max_size=6))
def test_random_starts_follow_from_seed_and_index_alone(seed: int, restart: int, numbers: list[int]) -> None:
    index, center = torch.tensor(numbers), torch.full((len(numbers), 2, 3), 0.5)
    for ball in (LINF, L2_BALL):
        whole = ball.start(center, 0.3, seed, restart, index)
        for place in range(len(numbers)):
            alone = ball.start(center[:1], 0.3, torch.tensor(seed), restart, index[place, None])
            assert torch.equal(alone[0], whole[place])


def test_other_seeds_restarts_and_examples_start_elsewhere() -> None:
    center = torch.full((50, 4), 0.5)
    for ball in (LINF, L2_BALL):
        starts = torch.cat([ball.start(center, 0.3, seed, restart, torch.arange(50))
                            for seed in range(4) for restart in range(4)])
        assert len(starts.unique(dim=0)) == len(starts)


def test_noise_is_uniform_and_normal() -> None:
    """Moments of 400000 numbers, and of neighbours along every axis, within five standard errors."""
    shape, index = (2000, 200), torch.arange(2000)
    for seed in (0, 1, 2**62):
        flat = uniform(shape, seed, 0, index).double()
        bell = normal(shape, seed, 1, index).double()
        error = 5 / flat.numel() ** 0.5
        assert flat.min() > 0
        assert flat.max() <= 1
        assert abs(flat.mean() - 0.5) < error * (1 / 12) ** 0.5
        assert abs(flat.var() - 1 / 12) < error * (1 / 180) ** 0.5
        assert abs(bell.mean()) < error
        assert abs(bell.var() - 1) < error * 2**0.5
        for values in (12**0.5 * (flat - 0.5), bell):
            assert abs((values[1:] * values[:-1]).mean()) < 1.01 * error
            assert abs((values[:, 1:] * values[:, :-1]).mean()) < 1.01 * error
        assert torch.histc(flat, 16, 0, 1).sub(25000).abs().max() < 5 * 25000**0.5


def test_starts_fill_the_ball_evenly() -> None:
    """In d dimensions a share of r**d of the points lies within r times the radius."""
    center = torch.zeros(20000, 3)
    length = L2_BALL.start(center, 2.0, 0, 0, torch.arange(20000)).norm(dim=1)
    for share in (0.25, 0.5, 0.9):
        assert abs((length <= 2 * share ** (1 / 3)).double().mean() - share) < 5 * (share * (1 - share) / 20000) ** 0.5
    moves = LINF.start(center, 2.0, 0, 0, torch.arange(20000))
    assert abs(moves.abs().mean() - 1) < 0.02
