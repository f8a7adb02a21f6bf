"""Tables and words of the committed records are those of version 0.1.0, but for a committed list of changed words.

Four things came since. The page begins with a scoreboard, and paragraphs of numbers became tables: their numbers are
looked for. Facts beside a verdict are left out here. The level of claims after which Holm's procedure had
stopped is another: both rules are computed from the records, and each page is held to its own. And most of the recipes
have other settings, so that these runs belong to recipes of another name: here they have the old one again.
"""

from __future__ import annotations

import json
import re
import statistics
import tomllib
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from markupsafe import Markup

from encouraging.engine.records import Record
from encouraging.judge.claims import ClaimRow, claim_rows, finals_of
from encouraging.judge.metric_book import book_of
from encouraging.judge.stats import Comparison, measured
from encouraging.recipes import Recipe, departures, names, read_recipe, read_runs
from encouraging.report import results
from encouraging.report.drawing import panels
from encouraging.report.numbers import between, interval
from encouraging.report.page import build_report
from encouraging.report.results import results_page
from encouraging.report.sections import reproduction
from encouraging.report.sections.costs import duration
from page_text import PageText, markdown_cells

REPOSITORY = Path(__file__).parents[2]
RECORDS = REPOSITORY / "results"
BEFORE = REPOSITORY / "tests" / "version_0_1_0"
PAGES = json.loads((BEFORE / "pages.json").read_text())
CHANGES = tomllib.loads((BEFORE / "changed_words.toml").read_text())


def changed(text: str, page: str) -> str:
    for old, new in {**CHANGES[page], **CHANGES["decimals"]}.items():
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def report() -> PageText:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "inline", lambda panel: Markup())  # figures take most of the time, and are not compared
        patch.setattr(reproduction, "read_recipe", lambda name, overrides=(): recipes_then()[name])
        patch.setattr(departures, "names", list)  # today's recipes are not those of these runs
        return PageText(build_report(records_then(), recipes_then()))


@cache
def records_then() -> list[Record]:
    """The records of version 0.1.0, under the names that their recipes had."""
    former = {name: read_recipe(name).formerly for name in names()}
    return [replace(record, config={**record.config, "recipe": former[record.recipe] or record.recipe})
            for record in read_runs(RECORDS) if former[record.recipe] or record.recipe == "mnist-large-margin"
            if record.timing["encouraging"] == "0.1.0"]


@cache
def recipes_then() -> dict[str, Recipe]:
    """The recipes of version 0.1.0, as far as a page shows them: made from those that have their settings now."""
    found = {}
    for recipe in map(read_recipe, names()):
        if recipe.formerly or recipe.name == "mnist-large-margin":
            departs = recipe.departs[recipe.departs.index("Convolutions") :]
            for words in (", with TF32 in the convolutions of evaluations", " (not TF32)"):
                departs = departs.replace(words, "")
            paper = recipe.paper.removesuffix(", with another start of the output layer")
            name = recipe.formerly or recipe.name
            found[name] = recipe.model_copy(update={"name": name, "departs": departs, "paper": paper,
                                                    "stands_in": False})
    return {name: found[name] for name in sorted(found)}


@cache
def later_levels() -> list[tuple[ClaimRow, Comparison]]:
    """Every claim as it is judged now, and as it was judged then: at the level of its own rank."""
    claims = []
    for recipe in recipes_then().values():
        mine = [record for record in records_then() if record.recipe == recipe.name]
        rows = claim_rows(recipe, finals_of(recipe.name, mine), book_of(mine))
        order = sorted(range(len(rows)), key=lambda i: rows[i].comparison.p_t)
        claims += [(row, measured(np.array(row.comparison.differences), 1 - 0.05 / (len(rows) - order.index(i))))
                   for i, row in enumerate(rows)]
    return claims


def without_added(words: list[str]) -> list[str]:
    """The page without the facts, names and values, that version 0.1.0 did not have."""
    kept, pairs = [], iter(words)
    for text in pairs:
        if text in CHANGES["added"]["facts"]:
            next(pairs)
        else:
            kept.append(text)
    return kept


def at_later_levels(words: list[str]) -> list[str]:
    """The old page with the intervals of today; it has the old ones exactly where the old rule has them."""
    claims, moved = iter(later_levels()), list(words)
    for place, text in enumerate(words):
        if text.startswith("interval at "):
            row, then = next(claims)
            digits = row.metric.digits
            old, new = (between(side.low, side.high, digits) for side in (then, row.comparison))
            assert (text, words[place + 1]) == (f"interval at {100 * then.level:.4g}%", old)
            moved[place : place + 2] = [f"interval at {100 * row.comparison.level:.4g}%", new]
        elif "Mean paired difference" in text:  # of the figure, after the facts
            moved[place] = text.replace(f"interval {old}", f"interval {new}")
    assert next(claims, None) is None
    return moved


def test_the_cells_of_the_report_are_those_of_the_version_before(report: PageText) -> None:
    """All rows in their order; the scoreboard is new, and the costs stand beside the paper's."""
    old = [[CHANGES["scores"].get(cell) or changed(cell, "report") for cell in row] for row in PAGES["report"]["cells"]]
    costs = old.index(["recipe", "runs", "time per run", "memory", "machine"])
    assert costs > 70
    new = iter(report.cells)
    assert [row for row in old[:costs] if row not in new] == []  # an iterator goes on from the row that was found
    for name, runs, seeds, seconds, _, *rest in old[costs + 1 :]:
        row = next(row for row in report.cells if row[0] == name and seeds in row)
        took = [run.timing["seconds"] for run in records_then() if run.recipe == name]
        assert float(seconds.removesuffix(" s")) == pytest.approx(statistics.fmean(took), abs=0.51)  # now the median
        assert {runs, *rest, duration(statistics.median(took))} <= set(row)


def test_the_words_of_the_report_differ_only_where_the_list_says_so(report: PageText) -> None:
    """Paragraphs of numbers became tables: every number of theirs is still on the page."""
    old = at_later_levels([changed(words, "report") for words in PAGES["report"]["words"]])
    gone = [words for words in old if words.startswith(tuple(CHANGES["tables"]["paragraphs"]))]
    assert gone
    names = set(recipes_then())  # which stood once more in the contents
    new = Counter(without_added(report.words))
    missing = Counter(words for words in old if words not in gone and words not in names) - new
    assert missing == Counter()
    shown = set(re.findall(r"\d+\.\d+", " ".join([*report.words, *(cell for row in report.cells for cell in row)])))
    assert {number for words in gone for number in re.findall(r"\d+\.\d+", words)} <= shown


def test_the_page_of_results_is_that_of_the_version_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departures, "names", list)  # today's recipes are not those of these runs
    page = "\n".join([results.HEAD, *(results._section(recipe, records_then())
                                      for recipe in recipes_then().values())])
    claims = iter(later_levels())
    old = [[changed(cell, "results") for cell in row] for row in PAGES["results"]["cells"]]
    for row in old:
        if " beats " in row[0]:
            claim, then = next(claims)
            now, digits = claim.comparison, claim.metric.digits
            assert row[3] == interval(then.low, then.high, digits)
            row[3] = interval(now.low, now.high, digits)
    times = iter([[run.timing["seconds"] for run in records_then() if (run.recipe, run.arm) == (name, arm)]
                  for name, recipe in recipes_then().items() for arm in recipe.arms])
    for row in old:
        if " beats " not in row[0] and row[0] not in ("arm", "claim"):  # the mean then, the median now
            seconds = next(times)
            assert row[-1] == f"{statistics.fmean(seconds):.0f}"
            row[-1] = f"{statistics.median(seconds):.0f}"
    new = [row[:7] if " beats " in row[0] or row[0] == "claim" else row for row in markdown_cells(page)]
    assert new == old
    lines = "\n".join(line for line in page.splitlines()
                      if line and line[0] != "|" and not line.startswith("Warning for "))
    assert lines == changed("\n".join(PAGES["results"]["words"]), "results")


def test_the_committed_page_of_results_is_made_from_the_committed_records() -> None:
    assert (REPOSITORY / "docs" / "results.md").read_text() == results_page(RECORDS)


def test_no_number_is_among_the_changed_words() -> None:
    for page in ("report", "results"):
        for old, new in CHANGES[page].items():
            assert sorted(filter(str.isdigit, old)) == sorted(filter(str.isdigit, new)), old
    for old, new in CHANGES["decimals"].items():
        values, same = ([float(number) for number in re.findall(r"[\d.]+", text)] for text in (old, new))
        assert values == same, old


def test_every_change_of_the_list_is_one_of_the_old_pages() -> None:
    for page in ("report", "results"):
        text = "\n".join([*PAGES[page]["words"], *(cell for row in PAGES[page]["cells"] for cell in row)])
        assert [old for old in CHANGES[page] if old not in text] == []
