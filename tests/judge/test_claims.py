"""Claims: judged over the seeds that both arms have."""

from __future__ import annotations

import math

import pytest

from encouraging.engine.records import read_records
from encouraging.judge.claims import arm_rows, claim_rows, finals_of, number_at, paired
from encouraging.judge.metric_book import MetricBook
from encouraging.recipes import read_recipe
from synthetic_runs import SCORES, write_mnist_runs


@pytest.fixture
def runs(tmp_path):
    return write_mnist_runs(tmp_path / "runs")

BOOK = MetricBook(read_recipe("mnist").needs().metrics)


def test_the_claim_is_judged_over_the_seeds_that_both_arms_have(runs):
    recipe = read_recipe("mnist")
    finals = finals_of("mnist", read_records(runs))
    row = claim_rows(recipe, finals, BOOK)[0]
    assert row.verdict == "reproduced"
    assert row.comparison.n == 5
    assert row.comparison.mean == pytest.approx(sum(a - b for a, b in zip(SCORES["el"], SCORES["ce"], strict=True)) / 5)
    del finals["ce"][0], finals["ce"][1], finals["el"][2]
    assert claim_rows(recipe, finals, BOOK)[0].comparison.n == 2
    assert claim_rows(recipe, finals, BOOK)[0].comparison.verdict == "undecided"


def test_an_arm_without_runs_is_a_gap_and_not_an_error(runs):
    recipe = read_recipe("mnist")
    finals = finals_of("mnist", read_records(runs))
    del finals["el"]
    rows = {row.arm: row.numbers["best_accuracy"] for row in arm_rows(recipe, finals, BOOK)}
    assert rows["ce"][0] == pytest.approx(99.424)
    assert math.isnan(rows["el"][0])
    assert rows["el"][3] == 99.56
    assert {row.verdict for row in claim_rows(recipe, finals, BOOK)} == {"not measured"}


def test_numbers_are_found_by_their_path():
    final = {"ood": {"min_energy": {"fpr95": 0.08}}, "attacks": {"fgsm": {"0.3": 21.7}}, "flag": True}
    assert number_at(final, "ood.min_energy.fpr95") == 0.08
    assert number_at(final, "attacks.fgsm.0.3") == 21.7
    assert number_at(final, "ood.min_energy") is None
    assert number_at(final, "flag") is None


def test_pairs_leave_out_a_seed_whose_number_is_missing_in_either_arm(runs):
    recipe = read_recipe("mnist")
    finals = finals_of("mnist", read_records(runs))
    del finals["ce"][0]["best_accuracy"], finals["el"][3]
    claim = next(claim for claim in recipe.claims if claim.metric == "best_accuracy")
    pairs = paired(claim, finals)
    assert pairs.seeds == [1, 2, 4]
    assert pairs.ours == [SCORES["el"][seed] for seed in pairs.seeds]
    assert pairs.theirs == [SCORES["ce"][seed] for seed in pairs.seeds]
    row = next(row for row in claim_rows(recipe, finals, BOOK) if row.claim is claim)
    assert row.comparison.differences == tuple(a - b for a, b in zip(pairs.ours, pairs.theirs, strict=True))
