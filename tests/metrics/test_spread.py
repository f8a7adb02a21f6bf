"""Distributions in a few hundred numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encouraging.curves import normal
from encouraging.errors import ShapeError
from encouraging.metrics import LEVELS, gradient_mass, mean_pulls, mean_spread, reliability, shares, spread, teaching
from encouraging.metrics._spread import median
from strategies import SEEDS, generator


def values(seed: int, n: int, lumps: bool) -> torch.Tensor:
    drawn = 3 * torch.randn(n, generator=generator(seed), dtype=torch.float64)
    return drawn.round() if lumps else drawn


@pytest.mark.parametrize("metric", [
    spread, mean_pulls, teaching, lambda gap: gradient_mass(gap, normal()),
    lambda gap: reliability(0 * gap + 0.7, gap > 0).ece,
], ids=["spread", "mean_pulls", "teaching", "gradient_mass", "reliability"])
def test_one_number_per_example_may_be_an_array(metric: Callable[[torch.Tensor | np.ndarray], object]) -> None:
    gap = torch.randn(20)
    assert metric(gap.numpy()) == metric(gap)


@given(seed=SEEDS, n=st.sampled_from([1, 2, 3, 50, 3000]), lumps=st.booleans())
def test_quantiles_are_numpys(seed: int, n: int, lumps: bool) -> None:
    drawn = values(seed, n, lumps)
    found = spread(drawn)
    np.testing.assert_allclose(found["quantiles"], np.quantile(drawn.numpy(), LEVELS), rtol=1e-5, atol=1e-12)
    assert found["mean"] == pytest.approx(float(drawn.mean()))
    assert found["std"] == pytest.approx(float(drawn.std(correction=0)), abs=1e-12)
    assert median(found) == pytest.approx(float(np.median(drawn.numpy())), rel=1e-5, abs=1e-12)


@given(seed=SEEDS, n=st.sampled_from([1, 2, 50, 3000]), lumps=st.booleans(), bins=st.integers(1, 30))
def test_between_the_ends_of_a_distribution_nothing_is_lost(seed: int, n: int, lumps: bool, bins: int) -> None:
    quantiles = spread(values(seed, n, lumps))["quantiles"]
    assert isinstance(quantiles, list)
    edges = np.linspace(quantiles[0], quantiles[-1] + (quantiles[0] == quantiles[-1]), bins + 1)
    found = shares(quantiles, edges)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()


@given(seed=SEEDS, lumps=st.booleans())
def test_shares_are_a_count_of_the_values(seed: int, lumps: bool) -> None:
    drawn = values(seed, 4000, lumps)
    edges = np.array([-7.5, -2.5, -0.5, 0.5, 1.5, 6.5])
    counted = np.histogram(drawn.numpy(), edges)[0] / 4000
    quantiles = spread(drawn)["quantiles"]
    assert isinstance(quantiles, list)
    # Two hundred levels say where a share ends to half a percent.
    np.testing.assert_allclose(shares(quantiles, edges), counted, atol=0.006)


@pytest.mark.parametrize("value", [0.0, 5.0, -1e5, 1e-9])
def test_a_constant_lies_in_one_bin(value: float) -> None:
    quantiles = spread(torch.full((20,), value, dtype=torch.float64))["quantiles"]
    assert isinstance(quantiles, list)
    size = max(abs(value), 1.0)
    assert shares(quantiles, [value - size, value - size / 2, value + size]).tolist() == pytest.approx([0, 1])
    assert shares(quantiles, [value - size, value, value + size]).tolist() == pytest.approx([1, 0])  # (low, high]
    assert shares(quantiles, [value, value + size]).tolist() == pytest.approx([1])


def test_a_lump_counts_whole() -> None:
    quantiles = spread(torch.cat([torch.zeros(500), torch.linspace(1, 2, 500)]))["quantiles"]
    assert isinstance(quantiles, list)
    assert shares(quantiles, [-1, -0.1, 0.5, 1.5, 2]).tolist() == pytest.approx([0, 0.5, 0.25, 0.25], abs=0.01)


def test_infinite_values_are_counted_apart() -> None:
    found = spread(torch.tensor([1.0, 2.0, torch.inf]))
    assert (found["mean"], found["infinite"], found["quantiles"][-1]) == (1.5, 1, 2.0)  # type: ignore[index]
    assert "infinite" not in spread(torch.tensor([1.0]))


def test_nothing_has_no_spread() -> None:
    for empty in (spread(torch.empty(0)), spread(torch.tensor([-torch.inf]))):
        assert math.isnan(median(empty))
        assert shares([], [0, 1, 2]).tolist() == [0, 0]
        assert mean_spread([empty]) == []
    assert mean_spread([]) == []


@given(seed=SEEDS, shift=st.sampled_from([-3.0, 0.0, 10.0]))
def test_the_mean_of_distributions_that_only_moved_moves_half_way(seed: int, shift: float) -> None:
    drawn = values(seed, 100, lumps=False)
    both = mean_spread([spread(drawn), spread(drawn + shift), spread(torch.empty(0))])
    np.testing.assert_allclose(both, spread(drawn + shift / 2)["quantiles"], rtol=1e-4, atol=1e-4)


def test_arrays_are_taken_and_a_table_is_refused() -> None:
    drawn = values(0, 50, lumps=False)
    assert spread(drawn.numpy()) == spread(drawn)
    with pytest.raises(ShapeError, match=r"Use values\.flatten\(\)"):  # sorting each row is no sorting of all
        spread(drawn.view(10, 5))
