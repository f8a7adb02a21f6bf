"""Claims judged together: Holm's levels, looks that are paid for, verdicts that divergence takes away."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encouraging.judge.family import Case, holm, judge_cases
from encouraging.judge.stats import ALPHA, compare, t_interval
from judged_pairs import judge

CLEAR, FAIR = np.array([5.0, 5.1, 4.9, 5.0, 5.05]), np.array([1.0, 1.4, 0.4, 1.2, 0.6])
WEAK, WEAKER = np.array([0.5, 1.5, -0.4, 1.2, 0.7]), np.array([0.5, 1.6, -0.9, 1.2, 0.6])
SMALL = np.array([0.01, -0.02, 0.03, -0.01, 0.0])


def test_later_claims_keep_the_level_at_which_holm_stopped():  # issue 12, point 9
    """WEAKER alone is undecided at 95%; WEAK stops the procedure at a level of 97.5%."""
    clear, weak, weaker = judge_cases([Case([CLEAR]), Case([WEAK]), Case([WEAKER])])
    assert [found.verdict for found in (clear, weak, weaker)] == ["holds", "undecided", "undecided"]
    assert clear.level == pytest.approx(1 - ALPHA / 3)
    assert weak.level == weaker.level == pytest.approx(1 - ALPHA / 2)


@given(st.lists(st.lists(st.integers(-40, 80).map(lambda x: x / 10), min_size=5, max_size=5), min_size=1, max_size=5))
@settings(max_examples=100, deadline=None)
def test_an_interval_excludes_0_exactly_where_a_claim_is_decided(families):
    """What a reader sees is what was decided: no interval beside *undecided* lies on one side of 0."""
    for found in judge([(values, [0.0] * 5, "higher") for values in families]):
        if not np.isnan(found.low):
            assert (found.low > 0 or found.high < 0) == (found.verdict in ("holds", "fails"))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holms_decisions_are_those_of_its_definition(p):
    m = len(p)
    order = sorted(range(m), key=lambda i: p[i])
    stop = next((rank for rank, i in enumerate(order) if p[i] >= ALPHA / (m - rank)), m)
    assert {i for i, step in enumerate(holm(p)) if step.decided} == set(order[:stop])


def test_one_planned_look_is_judged_as_none():
    for differences in (CLEAR, FAIR, WEAK, SMALL):
        plain, (looked,) = compare(differences, np.zeros(5), sought=0.2), judge_cases(
            [Case([differences], 1, sought=0.2)])
        for name in ("verdict", "low", "high", "p_t", "p_permutation"):
            assert getattr(looked, name) == getattr(plain, name)


def test_a_look_costs_as_much_as_all_that_were_planned():
    p = t_interval(FAIR).p
    for planned in (1, 2, 4, 8):
        (found,) = judge_cases([Case([FAIR], planned)])
        assert found.level == pytest.approx(1 - ALPHA / planned)
        assert (found.verdict == "holds") == (p * planned < ALPHA)
    assert {judge_cases([Case([FAIR], planned)])[0].verdict for planned in (1, 8)} == {"holds", "undecided"}


def test_what_a_look_decided_stays_decided_and_shows_the_look_that_did():
    later = np.concatenate([CLEAR, [-9.0, 8.0, -7.0]])
    first, second = judge_cases([Case([CLEAR], 4)])[0], judge_cases([Case([CLEAR, later], 4)])[0]
    assert compare(later, np.zeros(8)).verdict == "undecided"
    assert second.verdict == first.verdict == "holds"
    assert (second.look, second.looks, second.n) == (1, 4, 5)


def test_an_undecided_claim_shows_its_last_look_at_the_level_of_all():
    (found,) = judge_cases([Case([WEAK, np.concatenate([WEAK, WEAKER])], 4)])
    assert (found.verdict, found.look, found.n) == ("undecided", 2, 10)
    assert found.level == pytest.approx(1 - ALPHA / 4)


def test_any_look_may_show_that_there_is_no_difference():
    noisy = np.concatenate([SMALL, [3.0, -3.0, 3.0]])
    (found,) = judge_cases([Case([SMALL, noisy], 2, sought=1.0)])
    assert (found.verdict, found.look) == ("no difference", 1)


def test_seeds_that_wait_for_their_look_decide_nothing_and_do_not_count_among_the_claims():
    waiting, other = judge_cases([Case([], 4, so_far=CLEAR), Case([FAIR])])
    assert (waiting.verdict, waiting.look, waiting.n) == ("undecided", 0, 5)
    assert other.level == 1 - ALPHA


@pytest.mark.parametrize(("values", "withheld", "verdict"), [
    (CLEAR, {"holds", "no difference"}, "undecided"),
    (CLEAR, {"fails", "no difference"}, "holds"),
    (-CLEAR, {"holds", "no difference"}, "fails"),
    (-CLEAR, {"fails", "no difference"}, "undecided"),
    (SMALL, {"holds", "no difference"}, "undecided"),
    (SMALL, set(), "no difference"),
])
def test_a_divergence_takes_verdicts_away_and_gives_none(values, withheld, verdict):  # issue 12, point 15
    (found,) = judge_cases([Case([values], sought=1.0, withheld=frozenset(withheld))])
    assert found.verdict == verdict


def test_a_withheld_claim_does_not_make_the_others_easier():
    for withheld in (frozenset(), frozenset({"holds"})):
        clear, fair = judge_cases([Case([CLEAR], withheld=withheld), Case([FAIR])])
        assert clear.verdict == ("undecided" if withheld else "holds")
        assert fair.level == pytest.approx(1 - ALPHA / (2 if withheld else 1))
