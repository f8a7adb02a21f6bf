"""Planned looks: written once, spent by seeds that exist, and the same for everyone who judges the runs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encouraging.engine.records import collect, read_records
from encouraging.errors import RunError
from encouraging.judge.claims import claim_rows, finals_of, judge_claims
from encouraging.judge.looks import LOOKS, LookPlan, keep_plan, plan_looks, plan_of, read_plan
from encouraging.judge.metric_book import MetricBook
from encouraging.recipes import Claim, read_recipe
from encouraging.report.page import build_report
from synthetic_runs import write_mnist_runs

BOOK = MetricBook([])
CLAIM = Claim(metric="accuracy", arm="el", beats="ce")


def numbers(n: int, gain: float = 1.0, start: int = 0) -> dict[str, dict[int, dict[str, float]]]:
    """Runs with a clear gain."""
    return {"ce": {seed: {"accuracy": 90 + (seed % 3) / 10} for seed in range(start, start + n)},
            "el": {seed: {"accuracy": 90 + gain + (seed % 5) / 10} for seed in range(start, start + n)}}


@given(st.sets(st.integers(0, 60), max_size=50), st.lists(st.integers(0, 60), unique=True, max_size=6))
def test_seeds_that_exist_are_the_first_look_and_no_seed_is_lost(existing, wanted):
    plan = plan_looks(sorted(existing), wanted)
    assert list(plan.looks) == sorted(set(plan.looks))
    assert len(plan.seeds) == len(set(plan.seeds)) == plan.looks[-1]
    assert plan.seeds[: len(existing)] == tuple(sorted(existing))
    if len(existing) >= 3:
        assert plan.looks[0] == len(existing)
    else:
        assert plan.looks == LOOKS
    assert set(plan.looks) <= {len(existing), *LOOKS}


def test_a_plan_is_written_once(tmp_path):
    first = keep_plan(tmp_path / "mnist", plan_looks([]))
    assert keep_plan(tmp_path / "mnist", plan_looks([0, 1, 2, 3, 4])) == first == read_plan(tmp_path / "mnist")
    assert [path.name for path in (tmp_path / "mnist").iterdir()] == ["looks.json"]


@pytest.mark.parametrize("tree", [{}, {"looks": [], "seeds": []}, {"looks": [8, 4], "seeds": []},
                                  {"looks": [1, 4], "seeds": [0]}, {"looks": ["a"], "seeds": [0]}, {"looks": 4}])
def test_a_damaged_plan_is_refused_in_words(tmp_path, tree):
    (tmp_path / "looks.json").write_text(json.dumps(tree))
    with pytest.raises(RunError, match=r"looks\.json: expected looks"):
        read_plan(tmp_path)


def test_a_look_is_taken_when_all_of_its_runs_have_ended():
    plan = LookPlan((4, 8), tuple(range(8)))
    finals = numbers(8)
    for ended, look, n in ((3, 0, 3), (4, 1, 4), (7, 1, 4), (8, 2, 8)):
        part = {"ce": finals["ce"], "el": {seed: finals["el"][seed] for seed in range(ended)}}
        comparison = judge_claims([CLAIM], part, BOOK, plan=plan)[0].comparison
        assert (comparison.look, comparison.n) == (look, n), ended
        assert (comparison.verdict == "undecided") == (look == 0)


def test_seeds_beyond_the_plan_change_nothing():
    plan = LookPlan((4,), (0, 1, 2, 3))
    few, many = (judge_claims([CLAIM], numbers(n), BOOK, plan=plan)[0] for n in (4, 9))
    assert few == many


def test_a_report_judges_by_the_looks_of_the_folder_and_so_does_a_record_of_it(tmp_path):
    runs = write_mnist_runs(tmp_path / "runs")
    recipe = read_recipe("mnist")
    plain = claim_rows(recipe, finals_of("mnist", read_records(runs)), BOOK)[0].comparison
    keep_plan(runs / "mnist", plan_looks(range(5)))
    collect(runs, tmp_path / "records")
    for folder in (runs, tmp_path / "records"):
        records = read_records(folder)
        assert plan_of(recipe, records).looks == (5, 8, 16, 32)
        looked = claim_rows(recipe, finals_of("mnist", records), BOOK, plan_of(recipe, records))[0].comparison
        assert (looked.look, looked.looks) == (1, 4)
        assert looked.level == pytest.approx(1 - (1 - plain.level) / 4)
        assert "planned before the first seed, at 5, 8, 16, 32 seeds" in " ".join(build_report(records).split())


def test_runs_of_several_plans_pay_for_all_looks():
    recipe = read_recipe("mnist", ["looks=[4,8]", "seeds=8"])
    assert plan_of(recipe) == LookPlan((4, 8), tuple(range(8)))

    class Run:
        recipe, looks = "mnist", {"looks": [5, 8, 16], "seeds": list(range(16))}

    assert plan_of(recipe, [Run()]) == LookPlan((4, 5, 8, 16), tuple(range(16)))
