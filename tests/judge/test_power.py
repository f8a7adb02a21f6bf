"""How many seeds would decide, and how ours compares with the paper's: against scipy, and against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from encouraging.judge.beside_paper import beside_paper
from encouraging.judge.power import POWER, deviation_interval, power, seeds_for, seeds_to_decide
from encouraging.judge.stats import compare
from encouraging.recipes.claim import Claim

DIFFERENCES = [0.05, 0.11, 0.02, 0.14, 0.09]


@pytest.mark.parametrize("alpha", [0.05, 0.0125, 0.003])
@pytest.mark.parametrize("n", [3, 5, 8, 40, 1000])
@pytest.mark.parametrize("effect", [0.05, 0.3, 1.0, 3.0])
def test_power_is_that_of_the_noncentral_t(alpha, n, effect):
    exact = stats.nct.sf(stats.t.ppf(1 - alpha / 2, n - 1), n - 1, effect * math.sqrt(n))
    assert power(effect, 1.0, n, alpha) == pytest.approx(exact, abs=2e-4)


@given(st.floats(0.02, 50), st.floats(0.02, 50), st.sampled_from([0.05, 0.01]))
@settings(max_examples=60, deadline=None)
def test_the_number_of_seeds_is_the_smallest_with_enough_power(difference, std, alpha):
    n = seeds_for(difference, std, alpha)
    if n is None:
        assert power(difference, std, 10_000, alpha) < POWER
    else:
        assert power(difference, std, n, alpha) >= POWER
        assert n == 3 or power(difference, std, n - 1, alpha) < POWER


def test_the_interval_of_a_deviation_covers_it_in_19_of_20_cases():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((4000, 4)).std(axis=1, ddof=1)
    covered = [low < 1 < high for low, high in (deviation_interval(std, 4) for std in draws)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_overlapping_splits_may_never_decide_a_small_difference():
    assert seeds_for(0.5, 1.0, 0.05, overlap=0.125) is None
    assert seeds_for(0.5, 1.0, 0.05) == 34


def test_few_seeds_give_a_wide_range_and_many_a_narrow_one():
    few = compare(DIFFERENCES, [0.0] * 5)
    ranges = [seeds_to_decide(few, 0.03), seeds_to_decide(compare(DIFFERENCES * 5, [0.0] * 25), 0.03)]
    ratios = [found.most / found.fewest for found in ranges]
    assert ratios[0] > 10 > 4 > ratios[1] > 1
    assert seeds_to_decide(few, None) is None
    assert seeds_to_decide(compare([1.0, 1.0, 1.0], [0.0] * 3), 0.03) is None
    assert seeds_to_decide(compare([1.0, 1.2], [0.0] * 2), 0.03) is None


def test_the_seeds_that_would_decide_are_more_than_there_are():
    supports = compare([0.31, -0.22, 0.13, 0.41, -0.1], [0.0] * 5)
    assert supports.verdict == "undecided"
    by_sought = {sought: seeds_to_decide(supports, sought) for sought in (0.05, 0.45, 3.0)}
    assert by_sought[0.05].fewest > 6  # far from decided: both ends are those of the power
    assert by_sought[0.45].fewest == 6 < by_sought[0.45].most  # the lower end would be 5 or fewer
    assert by_sought[3.0] is None  # five seeds would have found it


def test_no_seeds_are_promised_where_enough_of_them_contradict_the_claim():
    contradicts = compare([-0.31, 0.22, -0.13, -0.41, 0.1], [0.0] * 5)
    assert contradicts.verdict == "undecided"
    assert seeds_to_decide(contradicts, 0.45) is None  # at the lower end five seeds would have found it
    assert seeds_to_decide(contradicts, 0.05).fewest > 6  # five seeds say nothing about so small a difference


def paper_claim(ours: float, theirs: float, spread: float | None = 0.05) -> Claim:
    more = {} if spread is None else {"paper_spread": {"el": spread, "ce": spread}, "paper_seeds": 5}
    return Claim(metric="accuracy", arm="el", beats="ce", paper={"el": ours, "ce": theirs}, **more)


def beside(claim: Claim, differences=DIFFERENCES):
    return beside_paper(compare(differences, [0.0] * len(differences)), claim.paper_difference, claim.paper_variances,
                        claim.paper_seeds)


def test_the_size_beside_the_papers_is_welchs_interval():
    """With one side of the paper without spread it is scipy's Welch test of our differences against their numbers."""
    theirs = np.array([0.30, 0.22, 0.26, 0.34])
    claim = Claim(metric="accuracy", arm="el", beats="ce", paper={"el": theirs.mean(), "ce": 0.0},
                  paper_spread={"el": theirs.std()}, paper_seeds=4)  # divisor n, as the paper has it
    found = beside(claim)
    low, high = stats.ttest_ind(DIFFERENCES, theirs, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(("ours", "word"), [(99.50, "consistent"), (99.90, "smaller"), (99.20, "larger")])
def test_a_difference_is_consistent_smaller_or_larger(ours, word):
    claim = paper_claim(ours, 99.42, 0.01)
    found = beside(claim)
    assert found.word == word
    assert found.mean == pytest.approx(np.mean(DIFFERENCES) - claim.paper_difference)


def test_the_papers_own_spread_makes_the_statement_weaker():
    alone, spread = beside(paper_claim(99.62, 99.42, None)), beside(paper_claim(99.62, 99.42, 0.2))
    assert (alone.word, spread.word) == ("smaller", "consistent")
    assert (alone.with_spread, spread.with_spread) == (False, True)


def test_without_the_papers_difference_or_our_interval_nothing_is_said():
    assert beside(Claim(metric="accuracy", arm="el", beats="ce")) is None
    assert beside(paper_claim(99.6, 99.4), [0.1, 0.2]) is None
    assert beside(paper_claim(99.6, 99.4), [0.1, 0.1, 0.1]) is None


def test_the_statement_holds_in_19_of_20_cases():
    """Both sides drawn around the same difference, their means known as the paper prints them."""
    rng, consistent = np.random.default_rng(1), 0
    for _ in range(1500):
        ours, el, ce = (rng.normal(mean, 0.05, 5) for mean in (0.1, 0.1, 0.0))
        claim = Claim(metric="accuracy", arm="el", beats="ce", paper={"el": el.mean(), "ce": ce.mean()},
                      paper_spread={"el": el.std(), "ce": ce.std()}, paper_seeds=5)
        consistent += beside(claim, ours).word == "consistent"
    assert consistent / 1500 == pytest.approx(0.95, abs=0.02)
