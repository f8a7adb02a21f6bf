"""The page of results: made from records alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from encouraging.engine.records import collect
from encouraging.recipes import Recipe
from encouraging.report.markdown_table import plain_text
from encouraging.report.results import results_page
from forked import run_python
from synthetic_runs import record, write_mnist_runs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def runs(tmp_path):
    return write_mnist_runs(tmp_path / "runs")


def test_the_page_puts_ours_beside_the_papers(runs):
    page = results_page(runs)
    for words in ("## mnist", "| el | 5 | 99.57 ± 0.02 (paper 99.56) |", "99.42 -> 99.56", "**reproduced**", "a card"):
        assert words in page, words
    assert results_page(runs) == page
    assert f"The records are in `{runs.name}/`" in page


def test_the_page_of_ones_own_records_is_not_about_the_paper(tmp_path):
    recipe = Recipe.model_validate({"name": "mine", "task": "image", "data": "digits", "model": "digits_mlp",
                                    "seeds": 2, "train": {"epochs": 1, "lr": 0.1, "batch_size": 8},
                                    "arms": {"ce": {"curve": "cross_entropy"}, "el": {"curve": "encouraging"}}})
    claim = {"metric": "accuracy", "arm": "el", "beats": "ce"}
    for claims in ([], [claim]):
        tree = recipe.about_runs("ce")["recipe"] | {"claims": claims}
        for arm in recipe.arms:
            for seed in recipe.seeds:
                one = record("mine", arm, seed, config=recipe.config(arm, seed))
                path = tmp_path / "own" / arm / f"seed{seed}"
                path.mkdir(parents=True, exist_ok=True)
                config = {"asked": one.config, "environment": {}, "recipe": tree}
                for name, content in (("config", config), ("final", one.final), ("timing", one.timing)):
                    (path / f"{name}.json").write_text(json.dumps({"schema": 1, **content}))
                (path / "metrics.jsonl").write_text("")
        page = results_page(tmp_path / "own")
        assert "The records are in `own/`" in page
        assert ("*holds*" in page) == bool(claims)
        for words in ("paper", "verdicts.md", "recipes of this package", "\n\n\n"):
            assert words not in page, words


def test_runs_with_other_settings_than_the_recipes_are_named(runs):
    assert "differ from the recipe" not in results_page(runs)
    path = runs / "mnist/el/seed0/config.json"
    config = json.loads(path.read_text())
    config["asked"]["train"][0]["precision"] = "fp32"
    path.write_text(json.dumps(config))
    page = results_page(runs)
    assert "These runs differ from the recipe in train.precision = fp32 (recipe: bf16): they do not test" in page
    assert "claims of the paper" not in page
    assert "**reproduced**" not in page
    others = {"epochs": 3, "lr": 0.5, "batch_size": 7, "momentum": 0.0}
    config["asked"]["train"][0] |= others
    path.write_text(json.dumps(config))
    page = results_page(runs)
    for key, value in others.items():  # all of them: nothing is known about a run whose settings are cut off
        assert re.search(rf"train\.{key} = {value} \(recipe: \S+\)", page), key


def test_what_a_run_costs_alone_stands_beside_what_it_costs_among_others(runs, tmp_path):
    def changed(path, **values):
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    for number, path in enumerate(runs.rglob("timing.json")):
        waited = 1 if number else 50  # a single run had to wait
        changed(path, device="a card", seconds=20.0 * waited, epochs=100, at_once=4)
    assert "4 runs were trained at once: each took longer than one alone." in results_page(runs)
    for path in runs.rglob("timing.json"):
        changed(path, at_once=1)
    alone = runs / "bench" / "alone.json"
    script = ROOT / "benchmarks" / "alone.py"
    alone.parent.mkdir()
    run_python(script, collected(runs, tmp_path), "-o", alone).check_returncode()
    found = json.loads(alone.read_text())["mnist"]
    assert {run["seconds"] / run["epochs"] for run in found} == {0.2, 10.0}
    alone.write_text(json.dumps({"mnist": [{**run, "seconds": run["seconds"] / 2} for run in found]}))
    assert "One run at a time." in results_page(runs)
    for path in runs.rglob("timing.json"):
        changed(path, at_once=4)
    page = results_page(runs)
    assert "4 runs were trained at once: each took 0.2 s per epoch (median), and one alone on the machine " \
           "0.1 s." in page
    refused = run_python(script, collected(runs, tmp_path / "more"), "-o", alone)
    assert refused.returncode == 1
    assert "4 runs were trained at once" in refused.stderr
    alone.write_text(json.dumps({"mnist": [{**run, "device": "another card"} for run in found]}))
    assert "each took longer than one alone." in results_page(runs)


def collected(runs, folder):
    collect(runs, folder / "records")
    return folder / "records"


def test_text_of_unknown_origin_is_shown_as_it_is(runs):
    for path in runs.rglob("timing.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {
            "device": "# a | card\n\n## <script>alert(1)</script> [x](y)", "torch": "2.11|`+*cu*`"}))
    path = runs / "mnist/el/seed0/config.json"
    config = json.loads(path.read_text())
    config["asked"]["train"][0]["precision"] = "<b>|*x*"
    path.write_text(json.dumps(config))
    page = results_page(runs)
    assert "<script>" not in page
    assert "<b>" not in page
    assert re.findall(r"^## (.*)", page, re.MULTILINE) == ["Scoreboard", "mnist"]
    assert "\\# a \\| card ## &lt;script&gt;alert(1)&lt;/script&gt; \\[x\\](y); torch 2.11\\|\\`+\\*cu\\*\\`;" in page
    assert "&lt;b&gt;\\|\\*x\\*" in page


def test_ordinary_names_are_not_escaped():
    for name in ("NVIDIA H200", "AMD EPYC (2 cores)", "torch 2.11.0+cu130", "there train.batch_size = 64, here 32"):
        assert plain_text(name) == name
