"""Sweeps: copies of an arm that differ in the swept keys and in nothing else, under names that folders can have."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from encouraging.engine import Metric
from encouraging.errors import RecipeError
from encouraging.recipes import Recipe, read_recipe
from encouraging.recipes.schema import NAME
from encouraging.recipes.sweep import arm_labels, narrowed, parse_sweep, references, sweep_recipe


@pytest.fixture(scope="module")
def digits():
    return read_recipe("digits")


@example(ends=[1.0, 0.9999999999999999])
@given(ends=st.lists(st.floats(0, 1), min_size=1, max_size=5, unique=True))
def test_a_copy_differs_in_its_value_alone(ends):
    recipe = read_recipe("digits")
    swept, arms = sweep_recipe(recipe, [f"log_end={','.join(map(str, ends))}"], ["el_1"])
    copies = [arm for arm in arms if swept.arms[arm].swept]
    assert [swept.arms[arm].swept.values["log_end"] for arm in copies] == ends
    for name, end in zip(copies, ends, strict=True):
        assert re.fullmatch(NAME, name)
        before, after = recipe.config("el_1", 3), swept.config(name, 3)
        assert after["objectives"][0].pop("log_end") == end
        before["objectives"][0].pop("log_end")
        assert {**after, "arm": "el_1"} == before


def test_names_say_what_was_swept(digits):
    assert sweep_recipe(digits, ["log_end=0,0.25,1"], ["el_1"])[1] == [
        "ce", "el_1.log_end-0", "el_1.log_end-0.25", "el_1.log_end-1"]
    assert sweep_recipe(digits, ["log_end=0.5", "train.lr=1e-3,0.1"], ["el_1"])[1][1:] == [
        "el_1.log_end-0.5.lr-0.001", "el_1.log_end-0.5.lr-0.1"]


def test_the_rest_of_the_recipe_stays_as_it_was(digits):
    swept, _ = sweep_recipe(digits, ["log_end=0,1"])
    assert swept.claims == digits.claims
    for arm in digits.arms:
        assert swept.config(arm, 0) == digits.config(arm, 0)  # so that runs of the baseline are shared


def test_a_recipe_that_was_kept_by_a_run_still_has_its_sweep(digits):
    swept, arms = sweep_recipe(digits, ["log_end=0,1"])
    kept = Recipe(**swept.about_runs(arms[-1])["recipe"])
    assert kept.arms[arms[-1]].swept == swept.arms[arms[-1]].swept


def test_a_key_that_no_arm_has_is_swept_for_all(digits):
    swept, arms = sweep_recipe(digits, ["train.lr=0.05,0.1"])
    assert len(arms) == 2 * len(digits.arms)
    assert {swept.stages_of(arm)[0].train.lr for arm in arms} == {0.05, 0.1}


def test_the_baseline_is_what_the_claims_compare_with(digits):
    assert references(digits, ["el_1"]) == ["ce"]
    assert references(read_recipe("mnist-mse"), ["mse_sigmoid_bonus"]) == ["mse_sigmoid"]
    silent = digits.model_copy(update={"claims": ()})
    assert references(silent, ["el_1"]) == ["ce"]
    assert references(silent, ["ce"]) == []
    assert references(digits, ["ce", "el_1"]) == []
    assert references(silent, list(digits.arms)) == []


def test_arms_whose_weights_are_needed_come_along():
    recipe = read_recipe("cifar10-lt")
    started = next(name for name, arm in recipe.arms.items() if arm.after)
    _, arms = sweep_recipe(recipe, ["label_smoothing=0,0.1"], [started])
    assert recipe.arms[started].after in arms


def beaten(recipe, texts, arms=()):
    """The claims of a sweep as pairs of arms."""
    claims = narrowed(*sweep_recipe(recipe, texts, arms), Metric("accuracy", "accuracy")).claims
    assert not any(claim.is_papers for claim in claims)
    return [(claim.arm, claim.beats) for claim in claims]


def test_a_sweep_claims_that_every_value_beats_the_baseline(digits):
    swept, arms = sweep_recipe(digits, ["log_end=0,1"])
    assert list(narrowed(swept, arms, Metric("accuracy", "accuracy")).arms) == arms
    assert beaten(digits, ["log_end=0,1"]) == [("el_05.log_end-0", "ce"), ("el_05.log_end-1", "ce")]
    assert beaten(digits, ["train.lr=0.1,1"], ["ce"]) == []


def test_where_the_baseline_is_swept_too_equal_values_are_compared(digits):
    assert beaten(digits, ["train.lr=0.1,1"], ["ce", "el_1"]) == [
        ("el_1.lr-0.1", "ce.lr-0.1"), ("el_1.lr-1", "ce.lr-1")]


@pytest.mark.parametrize(("recipe", "bases"), [
    ("bccd-retinanet", ["focal", "halted"]), ("cifar10-learning-rate", ["el_075_2x", "el_0"]),
    ("mnist-mse", ["mse_softmax_bonus"])])
def test_every_baseline_of_a_sweep_is_trained(recipe, bases):
    """An arm with claims hid the baseline of one without; squared errors have cross-entropy's default curve."""
    swept, chosen = sweep_recipe(read_recipe(recipe), ["train.lr=0.1,0.2"], arms=bases)
    claims = narrowed(swept, chosen, Metric("accuracy", "accuracy")).claims
    assert len(claims) >= 2
    assert {claim.beats for claim in claims} <= set(chosen)


def test_a_claim_of_a_sweep_knows_that_lower_is_better(digits):
    claims = narrowed(*sweep_recipe(digits, ["log_end=0"]), Metric("ece", "calibration error", better="lower")).claims
    assert [(claim.metric, claim.better) for claim in claims] == [("ece", "lower")]


def test_copies_are_called_by_their_values(digits):
    def labels(*texts, arms=()):
        swept, names = sweep_recipe(digits, texts, arms)
        return list(arm_labels({name: swept.arms[name].swept for name in names if swept.arms[name].swept}).values())
    assert labels("log_end=0,0.75") == ["log_end = 0", "log_end = 0.75"]
    assert labels("log_end=0.5", "train.lr=0.1") == ["log_end = 0.5, lr = 0.1"]
    assert labels("train.lr=1", arms=["ce", "el_1"]) == ["ce, lr = 1", "el_1, lr = 1"]
    assert len(set(labels("log_end=0.9999999999999999,1"))) == 2


def test_commas_in_brackets_belong_to_a_value(digits):
    assert parse_sweep("train.milestones=[5,8],[9]").values == ("[5,8]", "[9]")
    swept, arms = sweep_recipe(digits, ["train.milestones=[5,8],[9]"], ["ce"])
    assert [swept.stages_of(arm)[0].train.milestones for arm in arms if swept.arms[arm].swept] == [(5, 8), (9,)]
    assert len(set(arms)) == len(arms)


@pytest.mark.parametrize(("texts", "arms", "words"), [
    (["log_end"], (), "expected KEY=VALUE,VALUE"),
    (["log_end=0,,1"], (), "expected KEY=VALUE,VALUE"),
    (["a b=1"], (), "expected KEY=VALUE,VALUE"),
    (["log_end=0,1", "log_end=0.5"], (), "one key or two different ones"),
    (["log_end=0", "train.lr=1", "train.momentum=0"], (), "one key or two different ones"),
    (["log_end=0,2"], (), r"log_end=2\): expected 0 <= log_end <= 1"),
    (["lr=0.1,1"], (), "Did you mean 'train.lr'\\?"),
    (["log_en=0,1"], (), "Did you mean 'log_end'\\?"),
    (["log_end=0,1"], ("el1",), "Did you mean 'el_1'\\?"),
    (["train.lr=fast"], (), "valid number"),
])
def test_what_cannot_be_swept_is_answered_in_words(digits, texts, arms, words):
    with pytest.raises(RecipeError, match=words):
        sweep_recipe(digits, texts, arms)
