"""Records, claims and the page of results: made from files, wherever those came from."""

from __future__ import annotations

import json
import math
import re

import pytest
from rich.console import Console

from encouraging.engine.records import collect, read_records
from encouraging.errors import RunError
from encouraging.recipes import read_recipe
from encouraging.report.claims import arm_rows, claim_rows, finals_of, number
from encouraging.report.results import results_page
from encouraging.report.table import print_table

SCORES = {"ce": [99.40, 99.42, 99.45, 99.41, 99.44], "el": [99.55, 99.58, 99.57, 99.60, 99.56]}


@pytest.fixture
def runs(tmp_path):
    """Ten finished runs of the MNIST recipe, as a run leaves them."""
    recipe = read_recipe("mnist")
    for arm, scores in SCORES.items():
        for seed, score in enumerate(scores):
            folder = tmp_path / "runs" / "mnist" / arm / f"seed{seed}"
            folder.mkdir(parents=True)
            files = {"config": {"schema": 1, "fingerprint": "x", "asked": recipe.config(arm, seed), "environment": {}},
                     "final": {"schema": 1, "accuracy": score - 0.05, "best_accuracy": score, "train_accuracy": 100.0,
                               "excess_risk": 0.5},
                     "timing": {"schema": 1, "seconds": 30.0, "device": "a card", "torch": "2.11", "epochs": 100,
                                "samples": 6e6, "peak_memory_mib": 900.0}}
            for name, content in files.items():
                (folder / f"{name}.json").write_text(json.dumps(content))
    return tmp_path / "runs"


def test_a_record_holds_all_of_a_run_but_its_tensors(runs, tmp_path):
    written = collect(runs, tmp_path / "results")
    assert len(written) == 10
    assert (tmp_path / "results/mnist/el-seed3.json") in written
    assert read_records(tmp_path / "results") == read_records(runs)
    assert all(path.stat().st_size < 10_000 for path in written)


def test_the_claim_is_judged_over_the_seeds_that_both_arms_have(runs):
    recipe = read_recipe("mnist")
    finals = finals_of("mnist", read_records(runs))
    row = claim_rows(recipe, finals)[0]
    assert row.found.verdict == "reproduced"
    assert row.found.n == 5
    assert row.found.mean == pytest.approx(sum(a - b for a, b in zip(SCORES["el"], SCORES["ce"], strict=True)) / 5)
    del finals["ce"][0], finals["ce"][1], finals["el"][2]
    assert claim_rows(recipe, finals)[0].found.n == 2
    assert claim_rows(recipe, finals)[0].found.verdict == "undecided"


def test_an_arm_without_runs_is_a_gap_and_not_an_error(runs):
    recipe = read_recipe("mnist")
    finals = finals_of("mnist", read_records(runs))
    del finals["el"]
    rows = {row.arm: row.numbers["best_accuracy"] for row in arm_rows(recipe, finals)}
    assert rows["ce"][0] == pytest.approx(99.424)
    assert math.isnan(rows["el"][0])
    assert rows["el"][3] == 99.56
    console = Console(record=True, width=150)
    print_table(console, recipe, finals)
    assert "not measured" in console.export_text()


def test_the_page_puts_ours_beside_the_papers(runs):
    page = results_page(runs)
    for words in ("## mnist", "| el | 5 | 99.57 ± 0.02 (paper 99.56) |", "99.42 -> 99.56", "**reproduced**", "a card"):
        assert words in page, words
    assert results_page(runs) == page


def test_runs_with_other_settings_than_the_recipes_are_named(runs):
    assert "Departures" not in results_page(runs)
    path = runs / "mnist/el/seed0/config.json"
    config = json.loads(path.read_text())
    config["asked"]["train"][0]["precision"] = "fp32"
    path.write_text(json.dumps(config))
    assert "there train.precision = 'bf16', here 'fp32'" in results_page(runs)


def test_the_terminal_shows_the_interval_and_the_verdict(runs):
    console = Console(record=True, width=150)
    print_table(console, read_recipe("mnist"), finals_of("mnist", read_records(runs)))
    text = console.export_text()
    for words in ("el beats ce: best_accuracy", "reproduced", "+0.15", "99.42 ± 0.02"):
        assert words in text, words


def test_numbers_are_found_by_their_path():
    final = {"ood": {"min_energy": {"fpr95": 0.08}}, "attacks": {"fgsm": {"0.3": 21.7}}, "flag": True}
    assert number(final, "ood.min_energy.fpr95") == 0.08
    assert number(final, "attacks.fgsm.0.3") == 21.7
    assert number(final, "ood.min_energy") is None
    assert number(final, "flag") is None


def test_what_is_not_a_directory_of_runs_is_refused(tmp_path):
    with pytest.raises(RunError, match="expected a directory"):
        read_records(tmp_path / "none")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(RunError, match=r"broken.json: expected a JSON object"):
        read_records(tmp_path)


@pytest.mark.parametrize(("change", "words"), [
    ({"asked": "x"}, "asked is a str"),
    ({"asked": {"recipe": ["a"], "arm": "b", "seed": 0}}, "asked.recipe is"),
    ({"asked": {"recipe": "a", "arm": "b", "seed": "0"}}, "asked.seed is '0'"),
    ({"final": [1]}, "final is a list"),
    ({"epochs": "x"}, "epochs is a str"),
])
def test_a_damaged_record_is_named(tmp_path, change, words):
    whole = {"schema": 1, "asked": {"recipe": "a", "arm": "b", "seed": 0}, "environment": {}, "final": {}, "timing": {}}
    (tmp_path / "a.json").write_text(json.dumps(whole | change))
    with pytest.raises(RunError, match=re.escape(words)):
        read_records(tmp_path)


def test_two_different_runs_of_one_place_are_refused_and_equal_ones_are_one(tmp_path):
    whole = {"schema": 1, "asked": {"recipe": "a", "arm": "b", "seed": 0}, "environment": {}, "final": {}, "timing": {}}
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(whole))
    assert len(read_records(tmp_path)) == 1
    (tmp_path / "two.json").write_text(json.dumps(whole | {"final": {"accuracy": 1.0}}))
    with pytest.raises(RunError, match="another run of a, b, seed 0"):
        read_records(tmp_path)


def test_records_stay_inside_their_folder(tmp_path):
    (tmp_path / "in").mkdir()
    whole = {"schema": 1, "asked": {"recipe": "../../x", "arm": "b", "seed": 0}, "environment": {}, "final": {},
             "timing": {}}
    (tmp_path / "in" / "a.json").write_text(json.dumps(whole))
    with pytest.raises(RunError, match="outside of"):
        collect(tmp_path / "in", tmp_path / "out" / "deep")
    assert not (tmp_path / "x").exists()
