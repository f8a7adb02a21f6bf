"""Verdicts: intervals against scipy, permutations against a count by hand, Holm against its definition."""

from __future__ import annotations

import math
import runpy
import tracemalloc
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from encouraging.errors import ArgumentError
from encouraging.judge.stats import _usual_skewness, compare, describe, looks_skewed, paired_differences, permutation_p
from judged_pairs import judge

values = st.lists(st.floats(-10, 10).map(lambda x: round(x, 2)), min_size=3, max_size=8)


@given(values)
@settings(max_examples=50, deadline=None)
def test_the_interval_is_scipys(differences):
    assume(np.std(differences) > 1e-6)  # without a spread there is no interval
    found = compare(differences, [0.0] * len(differences))
    low, high = scipy_stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def counted(differences):
    """The permutation p by its definition, in exact arithmetic on the decimals that a person reads."""
    exact = [Fraction(str(d)) for d in differences]
    sums = [abs(sum(s * d for s, d in zip(signs, exact, strict=True))) for signs in product((-1, 1), repeat=len(exact))]
    return sum(total >= abs(sum(exact)) for total in sums) / len(sums)


@given(st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=7))
@settings(max_examples=50, deadline=None)
def test_the_permutation_p_is_the_share_of_sign_patterns_at_least_as_extreme(differences):
    assert permutation_p(differences) == counted(differences)


@given(st.lists(st.integers(-500, 500).map(lambda x: x / 100), min_size=1, max_size=10))
@example([0.1, 0.2, -0.3])  # their sum is 0, but not in floating point
@example([0.01, 0.07, -0.05, 0.11, -0.02, 0.03, -0.09, 0.04, -0.06, -0.04])
@settings(max_examples=100, deadline=None)
def test_the_permutation_p_counts_equal_sums_of_differences_that_are_not_integers(differences):
    assert permutation_p(differences) == counted(differences)


@given(st.lists(st.tuples(st.integers(9900, 9999), st.integers(9900, 9999)), min_size=2, max_size=9))
@settings(max_examples=60, deadline=None)
def test_the_permutation_p_of_accuracies_is_that_of_their_exact_differences(pairs):
    ours, theirs = ([hundredths / 100 for hundredths in side] for side in zip(*pairs, strict=True))
    assert compare(ours, theirs).p_permutation == counted([a - b for a, b in pairs])


@given(values)
@settings(max_examples=50, deadline=None)
def test_swapping_the_arms_mirrors_the_verdict(ours):
    theirs = [0.0] * len(ours)
    mirror = {"holds": "fails", "fails": "holds", "undecided": "undecided"}
    there, back = compare(ours, theirs), compare(theirs, ours)
    assert back.verdict == mirror[there.verdict]
    assert compare(ours, theirs, better="lower").verdict == back.verdict


def test_fewer_than_three_seeds_are_undecided_however_clear():
    assert compare([5.0, 5.1], [1.0, 1.0]).verdict == "undecided"
    assert compare([5.0, 5.1, 5.2], [1.0, 1.0, 1.0]).verdict == "holds"
    assert compare([5.0], [1.0]).verdict == "undecided"
    assert compare([], []).verdict == "undecided"
    assert compare([1.0, math.nan, 2.0], [0.0, 0.0, 0.0]).verdict == "undecided"


def test_overlapping_splits_widen_the_interval_as_nadeau_and_bengio_say():
    ours, theirs = [1.0, 1.2, 0.9, 1.1], [0.0] * 4
    plain, wide = compare(ours, theirs), compare(ours, theirs, overlap=0.125)
    assert (wide.high - wide.low) / (plain.high - plain.low) == pytest.approx(math.sqrt((1 / 4 + 0.125) / (1 / 4)))
    assert wide.p_t > plain.p_t


@pytest.mark.parametrize(("differences", "verdict"), [
    ([0.01, -0.02, 0.03, -0.01], "no difference"),
    ([0.01, 0.02, 0.03, 0.02], "holds"),      # small, and yet on the claimed side
    ([-0.01, -0.02, -0.03, -0.02], "fails"),
    ([0.31, -0.22, 0.13, -0.41], "undecided"),
])
def test_an_interval_within_half_of_the_sought_difference_shows_that_there_is_none(differences, verdict):
    zeros = [0.0] * len(differences)
    assert compare(differences, zeros, sought=0.14).verdict == verdict
    assert compare(differences, zeros).verdict != "no difference"


def test_no_difference_ends_exactly_at_half_of_the_sought_one():
    differences, zeros = [0.01, -0.02, 0.03, -0.01], [0.0] * 4
    widest = max(map(abs, (compare(differences, zeros).low, compare(differences, zeros).high)))
    assert compare(differences, zeros, sought=2 * widest * 1.0001).verdict == "no difference"
    assert compare(differences, zeros, sought=2 * widest * 0.9999).verdict == "undecided"


def test_holm_judges_the_smallest_p_most_strictly_and_stops_at_the_first_undecided():
    zeros = [0.0] * 5
    clear, fair, weak = [5.0, 5.1, 4.9, 5.0, 5.05], [1.0, 1.4, 0.4, 1.2, 0.6], [0.5, 1.5, -0.4, 1.2, 0.7]
    alone = [compare(x, zeros).verdict for x in (clear, fair, weak)]
    assert alone == ["holds", "holds", "undecided"]
    found = judge([(x, zeros, "higher") for x in (weak, clear, fair)])
    assert [f.verdict for f in found] == ["undecided", "holds", "holds"]
    assert [round(f.level, 4) for f in found] == [0.95, round(1 - 0.05 / 3, 4), 0.975]
    borderline = [0.3, 1.6, 0.5, 1.9, 0.9]  # decided alone, not beside two others
    assert compare(borderline, zeros).verdict == "holds"
    assert {f.verdict for f in judge([(borderline, zeros, "higher")] * 3)} == {"undecided"}


def test_claims_without_enough_seeds_do_not_make_the_others_harder():
    zeros = [0.0] * 5
    found = judge([([1.0, 1.4, 0.4, 1.2, 0.6], zeros, "higher"), ([1.0], [0.0], "higher")])
    assert found[0].level == 0.95
    assert found[1].verdict == "undecided"


def test_many_pairs_use_fixed_draws_close_to_the_exact_p():
    rng = np.random.default_rng(1)
    differences = rng.normal(0.3, 1, 24)
    assert permutation_p(differences) == permutation_p(differences)
    assert permutation_p(differences) == pytest.approx(scipy_stats.ttest_1samp(differences, 0).pvalue, abs=0.02)


@pytest.mark.parametrize("n", [21, 50, 100])
def test_signs_drawn_in_blocks_are_those_drawn_at_once(n):
    differences = np.random.default_rng(n).normal(0.2, 1, n)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(100_000, n))
    at_least = abs(signs @ differences) >= abs(differences.sum()) * (1 - 1e-9)
    assert permutation_p(differences) == (1 + at_least.sum()) / 100_001


def test_many_pairs_take_little_memory():
    differences = np.random.default_rng(1).normal(0.02, 1, 4001)
    tracemalloc.start()
    try:
        found = compare(differences, np.zeros(4001))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
    assert found.p_permutation == pytest.approx(found.p_t, abs=0.01)


def test_the_usual_skewness_of_many_numbers_is_that_of_draws():
    for n in (101, 400):
        draws = abs(scipy_stats.skew(np.random.default_rng(7).normal(size=(20_000, n)), axis=1))
        assert _usual_skewness(n) == pytest.approx(np.quantile(draws, 0.9), rel=0.03)


def test_mean_and_deviation():
    assert describe([1.0, 3.0]) == (2.0, pytest.approx(math.sqrt(2)))
    assert math.isnan(describe([1.0])[1])
    for values in ([1.0, math.inf], [1e308, -1e308, 1e308]):  # and numpy prints no warning, which would fail this test
        assert not math.isfinite(describe(values)[1])


def test_differences_without_spread_decide_nothing_and_do_not_stand_in_the_way_of_others():
    ours, theirs = [97.49, 97.49, 97.82], [97.65, 97.65, 97.98]  # one example each: the interval would have no width
    alone = compare(ours, theirs)
    assert alone.verdict == "undecided"
    assert math.isnan(alone.low)
    clear = ([1.0, 1.1, 0.9], [0.0, 0.0, 0.0], "higher")
    assert [found.verdict for found in judge([(ours, theirs, "higher"), clear])] == ["undecided", "holds"]


@pytest.mark.parametrize("differences", [[2.0, 2.2, 1.9, 2.1], [0.3, -0.2, 0.1, 0.4], [-1.0, -1.3, -0.8, -1.1]])
def test_the_verdict_does_not_depend_on_the_unit_or_on_a_constant(differences):
    theirs = np.array([1.0, 2.0, 1.5, 1.2])
    ours = theirs + differences
    expected = compare(ours, theirs)
    for unit in (1e-20, 1e-10, 1e-3, 1e10):
        found = compare(ours * unit, theirs * unit)
        assert found.verdict == expected.verdict
        assert (found.low, found.high) == pytest.approx((expected.low * unit, expected.high * unit), rel=1e-9)
    for constant in (1e3, 1e8, -1e8):
        assert compare(ours + constant, theirs + constant).verdict == expected.verdict


@pytest.mark.parametrize("unit", [1e-10, 1.0, 1e10])
@pytest.mark.parametrize("constant", [0.0, 100.0, 1e6, 1e8, 1e10])
def test_equal_differences_are_undecided_in_every_unit_and_beside_every_constant(unit, constant):
    theirs = [unit * (constant + x) for x in (0.1, 0.7, 1.3, 2.9)]
    for step in (0.1, -0.3, 0.0):
        found = compare([unit * (constant + x + step) for x in (0.1, 0.7, 1.3, 2.9)], theirs)
        assert found.verdict == "undecided"
        assert math.isnan(found.low)


def test_a_claim_without_an_interval_still_counts_among_the_many():
    sure, zero, other = [0.2, 0.8, 0.5, 0.3, 0.1], [0.0] * 5, [0.3, -0.2, 0.1, -0.4, 0.2]
    for second in (other, [math.nan, *other[1:]], [0.5] * 5):
        first, last = judge([(sure, zero, "higher"), (second, zero, "higher")])
        assert first.level == pytest.approx(0.975)
        assert first.verdict == last.verdict == "undecided"


@given(st.lists(st.lists(st.floats(-1, 3).map(lambda x: round(x, 2)), min_size=5, max_size=5), min_size=1, max_size=6))
@example([[0.3, 1.6, 0.5, 1.9, 0.9]] * 3)  # decided at 95%, but not at the level at which the procedure stops
@settings(max_examples=60, deadline=None)
def test_an_undecided_claim_never_has_an_interval_that_excludes_0(claims):
    zeros = [0.0] * 5
    judged = judge([(differences, zeros, "higher") for differences in claims])
    for found in judged:
        assert (found.verdict == "undecided") == (not (found.low > 0 or found.high < 0))
    undecided = [found.level for found in judged if found.verdict == "undecided" and not math.isnan(found.p_t)]
    assert len(set(undecided)) <= 1  # the level at which the procedure stopped


def test_skewed_differences_are_decided_wrongly_as_often_as_the_documentation_says():
    repository = Path(__file__).parents[2]
    script = runpy.run_path(str(repository / "benchmarks" / "skewed_differences.py"))
    draw = script["DRAWS"]["exponential"](np.random.default_rng(1), (300, 3, 5))
    by_judge = [any(found.verdict != "undecided" for found in judge([(claim, [0.0] * 5, "higher") for claim in family]))
                for family in draw.tolist()]
    assert script["wrong_families"](draw).tolist() == by_judge
    row = next(line for line in (repository / "docs" / "report.md").read_text().splitlines()
               if line.startswith("| exponential | 5 |"))
    stated = [float(cell.strip(" %")) for cell in row.split("|")[3:-1]]
    for claims, percent in enumerate(stated, 1):
        many = script["DRAWS"]["exponential"](np.random.default_rng(2), (40_000, claims, 5))
        assert 100 * script["wrong_families"](many).mean() == pytest.approx(percent, abs=1.0)


def test_skewed_differences_are_noticed_as_often_as_the_documentation_says():
    random = np.random.default_rng(3)
    for draw, seeds, share in ((random.normal, 5, 0.10), (random.exponential, 5, 0.24), (random.exponential, 20, 0.80)):
        noticed = np.mean([looks_skewed(row) for row in draw(size=(3000, seeds))])
        assert noticed == pytest.approx(share, abs=0.03)
    assert not looks_skewed([0.0, 0.0, 9.0])  # three say nothing
    assert compare([0.1, 0.2, 0.1, 0.15, 3.0], [0.0] * 5).skewed
    assert not compare([1.0, 1.2, 0.9, 1.1, 1.05], [0.0] * 5).skewed


def test_an_infinite_number_is_not_taken_for_rounding():
    differences = paired_differences([2.0, 2.2, math.inf, 2.1], [1.0, 1.0, 1.0, 1.0])
    assert differences.tolist() == [1.0, 1.2000000000000002, math.inf, 1.1]


@pytest.mark.parametrize(("theirs", "better"), [([1.0], "higher"), ([1.0, 2.0], "lower"), ([1.0, 2.0, 3.0], "Higher"),
                                                ([1.0, 2.0, 3.0], "")])
def test_what_is_not_paired_or_has_no_direction_is_refused(theirs, better):
    with pytest.raises(ArgumentError, match="expected pairs, as many of one as of the other, and 'higher' or 'lower'"):
        compare([1.0, 2.0, 3.5], theirs, better=better)  # numpy would repeat the one, and another word meant lower


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_number_that_is_none_has_no_permutation_p(wrong):
    assert math.isnan(permutation_p([wrong, 1.0, 2.0]))
    assert math.isnan(permutation_p([wrong] + [1.0] * 30))


def test_equal_differences_are_not_skewed():
    assert not looks_skewed([2.0] * 5)
