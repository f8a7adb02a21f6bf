"""Runs that differ from their recipe do not test its claims."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from encouraging.commands.run import run_recipe
from encouraging.engine import RunDir
from encouraging.engine.records import Record
from encouraging.judge.claims import claim_rows, finals_of
from encouraging.judge.metric_book import MetricBook
from encouraging.recipes import Recipe, departures_of, kept_recipes, names, read_recipe
from encouraging.report.page import build_report
from encouraging.report.scoreboard import score_rows
from page_text import PageText
from synthetic_runs import record, shipped


def page_text(html: str) -> str:
    text = PageText(html)
    return " ".join([*text.words, *(cell for row in text.cells for cell in row)])


def runs(*overrides: str, name: str = "mnist", seeds: int = 5) -> list[Record]:
    recipe = read_recipe(name, overrides)
    return [record(name, arm, seed, 3.0 * (1 + place), config=recipe.config(arm, seed))
            for place, arm in enumerate(recipe.arms) for seed in range(seeds)]


@pytest.mark.parametrize("override", ["train.epochs=1", "train.max_steps=60", "train.lr=0.5", "data=fashion_mnist",
                                      "model=attack_cnn", "arms.el.log_end=0.5", "train.precision=fp32",
                                      "options.normalise=false"])
def test_whatever_can_change_a_result_is_a_departure(override: str) -> None:
    found = departures_of("mnist", runs(override))
    key = override.partition("=")[0].removeprefix("arms.el.")
    assert any(name.endswith(key) for name, _, _ in found.settings)
    assert all(map(found.covers, read_recipe("mnist").claims))


@pytest.mark.parametrize("override", ["seeds=7", "threads=2", "train.checkpoint_seconds=7", "looks=[3,5]"])
def test_what_changes_no_result_is_none(override: str) -> None:
    assert departures_of("mnist", runs(override)).sentences == []


@pytest.mark.parametrize("name", names())
def test_runs_of_a_recipe_do_not_differ_from_it(name: str) -> None:
    recipe = read_recipe(name)
    made = [Record(recipe.config(arm, 0), {}, {}, {}) for arm in recipe.arms]
    assert departures_of(name, made).sentences == []


def test_the_sentence_names_both_values() -> None:
    (words,) = departures_of("mnist", runs("train.epochs=1", "train.max_steps=60")).sentences
    assert words == ("These runs differ from the recipe in train.epochs = 1 (recipe: 100) and train.max_steps = 60 "
                     "(recipe: not set): they do not test the paper's claims.")
    one = departures_of("mnist-mse", runs("train.epochs=1", name="mnist-mse")).sentences
    assert one[0].endswith("(recipe: 100): they do not test the paper's claims.")


def test_such_runs_are_judged_as_a_stand_in() -> None:
    whole, short = score_rows(read_recipe("mnist"), runs()), score_rows(read_recipe("mnist"), runs("train.epochs=1"))
    words = {"reproduced": "holds", "contradicted": "fails"}
    assert any(row.papers for row in whole)
    assert not any(row.papers for row in short)
    assert {row.verdict.word for row in whole} & words.keys()
    for before, after in zip(whole, short, strict=True):
        assert after.verdict.word == words.get(before.verdict.word, before.verdict.word)
        assert after.row.beside is None
        assert after.row.comparison == before.row.comparison


def test_the_page_begins_with_it() -> None:
    text = page_text(build_report(runs("train.epochs=1")))
    assert text.index("These runs differ from the recipe in train.epochs") < text.index("Scoreboard")
    assert text.count("These runs differ") == 1  # not again in the scoreboard below it
    assert "Other settings than those of mnist" in text
    several = page_text(build_report([*runs("train.epochs=1"), *runs(name="mnist-mse")]))
    assert "Other settings than those of mnist: These runs differ from the recipe in train.epochs" in several
    assert "of the paper is" not in text
    assert "reproduced" not in text.partition("What the verdicts mean")[0]
    assert "Beside the paper" not in text
    assert "These runs differ" not in page_text(build_report(runs()))


def test_the_arms_of_a_sweep_have_nothing_to_differ_from() -> None:
    swept = [replace(one, config={**one.config, "arm": "el_0.3"}) for one in runs("arms.el.log_end=0.3")
             if one.arm == "el"]
    assert departures_of("mnist", [*runs(), *swept]).sentences == []


OWN = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 3
train = { epochs = 4, lr = 0.1, batch_size = 256 }
[arms.ce]
curve = "cross_entropy"
[arms.el]
curve = "encouraging"
log_end = 0.75
[[claims]]
metric = "accuracy"
arm = "el"
beats = "ce"
"""


def own_runs(path: Path, *overrides: str, arms: Sequence[str] = ("ce", "el")) -> list[Record]:
    recipe = read_recipe(path, overrides)
    return [replace(record(recipe.name, arm, seed, config=recipe.config(arm, seed)), **kept(recipe, arm))
            for arm in arms for seed in range(3)]


def kept(recipe: Recipe, arm: str) -> dict[str, Any]:
    """As it comes back from the file."""
    return {"recipe_tree": json.loads(json.dumps(recipe.about_runs(arm)["recipe"]))}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return path


def test_runs_of_my_own_file_with_overrides_differ_from_the_file(own: Path) -> None:
    records = own_runs(own, "train.epochs=1", "arms.el.log_end=0.5", "seeds=3")
    own.unlink()  # the runs have noted all that is said later
    found = departures_of("own", records)
    assert found.sentences == ["These runs differ from the recipe in train.epochs = 1 (recipe: 4) and "
                               "objectives.log_end = 0.5 (recipe: 0.75): they do not test the recipe's claim."]
    text = page_text(build_report(records, kept_recipes(records)))
    assert text.count("These runs differ") == 1  # at the top
    assert "in runs that differ from their recipe" in text
    assert "encouraging run own.toml --set train.epochs=1 --set arms.el.log_end=0.5 --seeds 3" in text


def test_only_the_arms_that_an_override_changed_differ(own: Path) -> None:
    overrides = "arms.el.log_end=0.5", "arms.mine={curve = 'focal'}"
    assert departures_of("own", own_runs(own, *overrides, arms=["ce", "mine"])).sentences == []
    assert departures_of("own", own_runs(own, *overrides)).settings == (("objectives.log_end", 0.5, 0.75),)


def test_a_recipe_of_the_package_under_another_name_still_differs_from_it() -> None:
    recipe = read_recipe("mnist", ["name=mine", "train.epochs=1"])
    records = [replace(record("mine", arm, seed, config=recipe.config(arm, seed)), **kept(recipe, arm))
               for arm in recipe.arms for seed in range(3)]
    (words,) = departures_of("mine", records).sentences
    assert words.endswith("train.epochs = 1 (recipe: 100): they do not test the paper's claims.")
    assert not any(row.papers for row in score_rows(kept_recipes(records)["mine"], records))
    assert "encouraging run mnist --set name=mine --set train.epochs=1" in page_text(
        build_report(records, kept_recipes(records)))


def test_where_nothing_is_claimed_it_is_said_once_and_not_first(own: Path) -> None:
    own.write_text(OWN.partition("[[claims]]")[0])
    records = own_runs(own, "train.epochs=1")
    page = PageText(build_report(records, kept_recipes(records)))
    assert [words.startswith("These runs differ") for words in page.words].count(True) == 1
    assert page.words.index("own") < next(i for i, words in enumerate(page.words) if words.startswith("These runs"))
    assert "These runs differ" not in build_report(records, kept_recipes(records)).partition("<nav")[0]


def test_the_terminal_says_first_that_my_own_file_was_changed(own: Path, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), record=True, width=200)
    for overrides in (["train.epochs=1"], []):
        out = tmp_path / str(len(overrides))
        code = run_recipe(str(own), overrides=overrides, seeds="1", device="cpu", threads=1, jobs=1, out=out,
                          console=console)
        assert code == 0
        words = console.export_text()
        assert ("differ from the recipe in train.epochs = 1 (recipe: 4)" in words) == bool(overrides)
        kept_tree = RunDir(out / "own" / "ce" / "seed0").read_config()["recipe"]
        assert ("overrides" in kept_tree) == bool(overrides)


def test_a_file_that_is_no_recipe_without_the_overrides_has_nothing_to_differ_from(own: Path) -> None:
    own.write_text(OWN.replace("seeds = 3\n", ""))
    assert read_recipe(own, ["seeds=3", "train.epochs=1"]).overrides is None


@pytest.mark.parametrize("overrides", [(), ("train.epochs=4",), ("seeds=7", "threads=2", "claims=[]")])
def test_runs_of_my_own_file_as_it_is_do_not_differ(own: Path, overrides: tuple[str, ...]) -> None:
    assert departures_of("own", own_runs(own, *overrides)).sentences == []
    assert read_recipe(own, overrides).overrides is None


def attacked(name: str, examples: int, whole: int | None = 10000) -> list[Record]:
    entry: dict[str, Any] = {"examples": examples, "method": "fgsm", "accuracy": {"0.1": 80.0}}
    attacks = {"seed": 0, "attacks": {"fgsm": entry, "autoattack": entry}, "verdicts": []}
    return [replace(one, attacks=attacks | ({} if whole is None else {"test_images": whole}))
            for one in shipped(name, 3)]


@pytest.mark.parametrize(("name", "examples", "whole", "short"), [
    ("mnist-attack", 100, 10000, True), ("mnist-attack", 10000, 10000, False), ("mnist-attack", 100, None, False),
    ("mnist-autoattack", 1000, 10000, False), ("mnist-autoattack", 100, 10000, True)])
def test_fewer_images_than_the_claims_are_about(name: str, examples: int, whole: int | None, short: bool) -> None:
    recipe, records = read_recipe(name), attacked(name, examples, whole)
    found = departures_of(name, records)
    rows = claim_rows(recipe, finals_of(name, records), MetricBook(recipe.needs().metrics), departures=found)
    for row in rows:
        under = row.claim.metric in ("attacks.fgsm.0.1", "attacks.autoattack.0.1")
        assert row.papers == (row.claim.is_papers and not (short and under))
    assert len(found.sentences) == short
    if short:
        assert "on the first 100 test images" in found.sentences[0]
