"""Runs that differ from their recipe do not test its claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from encouraging.engine.records import Record
from encouraging.judge.claims import claim_rows, finals_of
from encouraging.judge.metric_book import MetricBook
from encouraging.recipes import departures_of, names, read_recipe
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
    assert text.count("These runs differ") >= 3  # at the top, in the scoreboard and in the recipe's section
    assert "of the paper is" not in text
    assert "reproduced" not in text.partition("What the verdicts mean")[0]
    assert "Beside the paper" not in text
    assert "These runs differ" not in page_text(build_report(runs()))


def test_the_arms_of_a_sweep_have_nothing_to_differ_from() -> None:
    swept = [replace(one, config={**one.config, "arm": "el_0.3"}) for one in runs("arms.el.log_end=0.3")
             if one.arm == "el"]
    assert departures_of("mnist", [*runs(), *swept]).sentences == []


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
