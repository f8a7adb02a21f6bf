"""Claims: between two arms, between two metrics of one arm, against a constant; and what the paper says of each."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from encouraging.engine.run_dir import fingerprint
from encouraging.errors import RecipeError
from encouraging.judge.claims import arm_rows, claim_rows
from encouraging.judge.metric_book import MetricBook
from encouraging.recipes import Claim, Recipe, read_recipe

RECIPE = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 5
train = { epochs = 3, lr = 0.1 }
[arms.ce]
curve = "cross_entropy"
[arms.el]
curve = "encouraging"
log_end = 0.5
[[claims]]
metric = "ood.energy.fpr95"
beats_metric = "ood.max.fpr95"
better = "lower"
arm = "el"
paper = { "ood.energy.fpr95" = 8.69, "ood.max.fpr95" = 10.5 }
[[claims]]
metric = "ratio"
arm = "el"
over = 5
from_paper = true
[[claims]]
metric = "ratio"
arm = "ce"
under = 1.7
[[claims]]
metric = "accuracy"
arm = "el"
beats = "ce"
paper = { ce = 90.0, el = 91.0 }
"""
ENERGY, HIGHEST, RATIO = [5.0, 6.1, 5.4, 5.9, 6.4], [9.0, 9.6, 9.1, 10.2, 10.0], [5.9, 6.4, 5.5, 6.1, 6.0]
FINALS = {
    "el": {seed: {"ood": {"energy": {"fpr95": ENERGY[seed]}, "max": {"fpr95": HIGHEST[seed]}}, "ratio": RATIO[seed],
                  "accuracy": 90.5 + RATIO[seed]} for seed in range(5)},
    "ce": {seed: {"ratio": RATIO[seed] / 5, "accuracy": 90.0} for seed in range(5)},
}
BOOK = MetricBook([])


@pytest.fixture
def recipe(tmp_path) -> Recipe:
    (tmp_path / "mine.toml").write_text(RECIPE)
    return read_recipe(tmp_path / "mine.toml")


def test_every_form_of_a_claim_is_judged_on_its_own_pairs(recipe):
    metrics, over, under, arms = claim_rows(recipe, FINALS, BOOK)
    assert (metrics.pairs.ours, metrics.pairs.theirs) == (ENERGY, HIGHEST)
    assert metrics.comparison.differences == tuple(b - a for a, b in zip(ENERGY, HIGHEST, strict=True))
    assert (over.pairs.ours, over.pairs.theirs) == (RATIO, [5.0] * 5)
    assert over.comparison.mean == pytest.approx(sum(RATIO) / 5 - 5)
    assert under.comparison.mean == pytest.approx(1.7 - sum(RATIO) / 25)
    assert arms.pairs.seeds == [0, 1, 2, 3, 4]
    assert {row.comparison.verdict for row in (metrics, over, under, arms)} == {"holds"}


def test_only_what_the_paper_claims_in_that_setting_is_reproduced(recipe):
    assert [row.verdict for row in claim_rows(recipe, FINALS, BOOK)] == ["reproduced", "reproduced", "holds",
                                                                        "reproduced"]
    stand_in = recipe.model_copy(update={"stands_in": True})
    assert {row.verdict for row in claim_rows(stand_in, FINALS, BOOK)} == {"holds"}
    worse = {arm: {seed: {**final, "ratio": -final["ratio"]} for seed, final in runs.items()}
             for arm, runs in FINALS.items()}
    assert [row.verdict for row in claim_rows(recipe, worse, BOOK)][1:3] == ["contradicted", "holds"]
    assert claim_rows(stand_in, worse, BOOK)[1].verdict == "fails"


def test_the_paper_s_difference_has_the_claimed_side_as_positive(recipe):
    metrics, over, under, arms = recipe.claims
    assert metrics.paper_difference == pytest.approx(10.5 - 8.69)
    assert arms.paper_difference == 1.0
    assert (over.paper_difference, under.paper_difference) == (None, None)
    constant = Claim(metric="ratio", arm="el", under=5, paper={"el": 4.0})
    assert constant.paper_difference == 1.0
    assert constant.paper_numbers == (4.0, 5)


def test_tables_show_both_metrics_of_a_claim_and_the_paper_s_number_of_each(recipe):
    rows = {row.arm: row.numbers for row in arm_rows(recipe, FINALS, BOOK)}
    assert rows["el"]["ood.max.fpr95"].paper == 10.5
    assert rows["el"]["ood.energy.fpr95"].paper == 8.69
    assert rows["ce"]["ood.max.fpr95"].paper is None
    assert rows["ce"]["accuracy"].paper == 90.0
    assert rows["el"]["ratio"].n == 5


def test_claims_can_be_kept_and_read_again(recipe):
    kept = json.loads(json.dumps(recipe.about_runs("el")["recipe"]))
    assert Recipe(**kept).claims == recipe.claims
    old = Recipe(**{**kept, "claims": [{"metric": "accuracy", "arm": "el", "beats": "ce", "better": "higher",
                                        "paper": {"ce": 99.42, "el": 99.56}}]})
    assert old.claims[0].paper_difference == pytest.approx(0.14)


def test_words_about_claims_do_not_make_another_run(recipe):
    plain = fingerprint(recipe.config("el", 0))
    for change in ({"claims": ()}, {"looks": (3, 5)}, {"stands_in": True}, {"seeds": (0, 7)}):
        assert fingerprint(recipe.model_copy(update=change).config("el", 0)) == plain


@pytest.mark.parametrize(("change", "words"), [
    ({}, "has no other side"),
    ({"beats": "ce", "over": 3}, "has beats and over"),
    ({"beats_metric": "accuracy"}, "with itself"),
    ({"beats": "el"}, "with itself"),
    ({"over": 3, "better": "lower"}, "leave better out"),
    ({"over": float("nan")}, "finite"),
    ({"beats": "ce", "paper": {"ce": 1, "el": 2}, "paper_spread": {"ce": 1}}, "give both or none"),
    ({"beats": "ce", "paper_spread": {"ce": 1}, "paper_seeds": 5}, r"paper_spread\.ce = 1"),
    ({"beats": "ce", "paper": {"ce": 1}, "paper_spread": {"ce": -1}, "paper_seeds": 5}, r"paper_spread\.ce = -1"),
    ({"beats": "ce", "paper": {"ce": 1}, "paper_spread": {"ce": 1}, "paper_seeds": 1}, "greater than or equal to 2"),
    ({"beats_metric": "auroc", "paper": {"el": 1}}, r"paper\.el; there are accuracy, auroc"),
    ({"beats": "ce", "expected": -1}, "greater than 0"),
])
def test_a_claim_that_makes_no_sense_is_refused_in_words(change, words):
    with pytest.raises(ValidationError, match=words):
        Claim(metric="accuracy", arm="el", **change)


def test_a_recipe_names_the_claim_that_is_wrong(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE.replace("over = 5", "ovr = 5"))
    with pytest.raises(RecipeError, match=r"claims\.1\.ovr: unknown key\. Did you mean 'over'\?"):
        read_recipe(path)
    path.write_text(RECIPE.replace('arm = "ce"\nunder', 'arm = "xe"\nunder'))
    with pytest.raises(RecipeError, match="names the arm 'xe'"):
        read_recipe(path)
    path.write_text(RECIPE.replace("seeds = 5", "seeds = 5\nlooks = [8, 4]"))
    with pytest.raises(RecipeError, match="expected increasing numbers of seeds"):
        read_recipe(path)


def test_the_papers_spreads_of_the_mnist_recipes_belong_to_its_five_runs():
    for name in ("mnist", "mnist-mse", "mnist-label-smoothing", "mnist-large-margin"):
        for claim in read_recipe(name).claims:
            if claim.metric == "best_accuracy":
                assert claim.paper_seeds == 5
                assert set(claim.paper_spread) == set(claim.paper)
