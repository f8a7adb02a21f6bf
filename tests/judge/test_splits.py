"""Splits of one dataset: the interval on other samples like it is that of Nadeau and Bengio."""

from __future__ import annotations

import math

import numpy as np
import pytest

from encouraging.judge.claims import claim_rows
from encouraging.judge.metric_book import MetricBook
from encouraging.judge.splits import on_other_samples
from encouraging.judge.stats import compare
from encouraging.recipes import read_recipe


def test_it_is_the_comparison_with_overlap():
    draw = np.random.default_rng(0)
    ours, theirs = draw.normal(72.7, 4, 50), draw.normal(72.3, 4, 50)
    plain, wide = compare(ours, theirs), compare(ours, theirs, overlap=0.126)
    other = on_other_samples(plain, 0.126)
    assert (other.low, other.high) == pytest.approx((wide.low, wide.high))
    assert other.low < plain.low < plain.high < other.high


@pytest.mark.parametrize("n", [2, 10, 50, 200])
def test_more_splits_never_bring_it_below_its_least_width(n):
    draw = np.random.default_rng(n)
    comparison = compare(draw.normal(0, 1, n), np.zeros(n))
    other = on_other_samples(comparison, 0.125)
    half = (other.high - other.low) / 2
    assert other.least < half
    assert other.least == pytest.approx(1.96 * comparison.std * math.sqrt(0.125), rel=1e-3)
    assert other.can_decide(1.01 * other.least)
    assert not other.can_decide(-0.99 * other.least)
    if n == 200:
        assert half == pytest.approx(other.least, rel=0.05)


def test_without_a_plain_interval_there_is_none():
    assert on_other_samples(compare([1.0, 1.0, 1.0], [0.0, 0.0, 0.0]), 0.1) is None
    assert on_other_samples(compare([1.0], [0.0]), 0.1) is None


def test_the_plain_interval_decides():
    """A difference that is sure on this dataset, and not beyond it, is reproduced."""
    recipe = read_recipe("proteins")
    draw = np.random.default_rng(1)
    theirs = draw.normal(72.3, 4, 50)
    ours = theirs + draw.normal(1.0, 2.0, 50)
    finals = {arm: {seed: {"best_accuracy": float(value)} for seed, value in enumerate(values)}
              for arm, values in (("ce", theirs), ("el_late", ours), ("el", theirs))}
    row = claim_rows(recipe, finals, MetricBook(recipe.needs().metrics))[0]
    assert row.verdict == "reproduced"
    other = on_other_samples(row.comparison, recipe.overlap)
    assert other.low < 0 < other.high
    assert not other.can_decide(0.44)
