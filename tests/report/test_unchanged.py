"""Tables and words of the committed records are those of version 0.1.0, but for a committed list of changed words.

One kind of number changed on purpose and is left out: the intervals of undecided claims, which now have the level at
which Holm's procedure stopped. Warnings about skewed differences are new.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from markupsafe import Markup

from encouraging.engine.records import read_records
from encouraging.report.drawing import panels
from encouraging.report.page import build_report
from encouraging.report.results import results_page
from encouraging.report.sections.claims import VERDICTS
from page_text import PageText, markdown_cells

REPOSITORY = Path(__file__).parents[2]
RECORDS = REPOSITORY / "results"
BEFORE = REPOSITORY / "tests" / "version_0_1_0"
PAGES = json.loads((BEFORE / "pages.json").read_text())
CHANGES = tomllib.loads((BEFORE / "changed_words.toml").read_text())


def without_undecided_intervals(words: list[str]) -> list[str]:
    """The words of a report less those intervals (a fact and its value, and a part of the figure's description)."""
    kept: list[str] = []
    verdict = ""
    skip = False
    for text in words:
        if text in VERDICTS:
            verdict = text
        if skip:
            skip = False
        elif (text.startswith("interval at ") and verdict == "undecided") or text == "warning":
            skip = True
        else:
            kept.append(re.sub(r"(: undecided\. .*?), interval .*?, (?=\d+ seeds)", r"\1, ", text))
    return kept


def without_undecided_interval(row: list[str]) -> list[str]:
    return [*row[:3], *row[4:]] if row[-1] == "**undecided**" else row


def changed(text: str, page: str) -> str:
    for old, new in CHANGES[page].items():
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def report() -> PageText:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(panels, "inline", lambda panel: Markup())  # figures take most of the time, and are not compared
        return PageText(build_report(read_records(RECORDS)))


def test_the_cells_of_the_report_are_those_of_the_version_before(report: PageText) -> None:
    assert len(report.cells) > 80
    assert report.cells == [[changed(cell, "report") for cell in row] for row in PAGES["report"]["cells"]]


def test_the_words_of_the_report_differ_only_where_the_list_says_so(report: PageText) -> None:
    before = [changed(words, "report") for words in PAGES["report"]["words"]]
    assert without_undecided_intervals(report.words) == without_undecided_intervals(before)


def test_the_page_of_results_is_that_of_the_version_before() -> None:
    page = results_page(RECORDS)
    before = [[changed(cell, "results") for cell in row] for row in PAGES["results"]["cells"]]
    assert list(map(without_undecided_interval, markdown_cells(page))) == list(map(without_undecided_interval, before))
    words = [line for line in page.splitlines() if line and line[0] != "|" and not line.startswith("Warning for ")]
    assert words == [changed(line, "results") for line in PAGES["results"]["words"]]


def test_the_committed_page_of_results_is_made_from_the_committed_records() -> None:
    assert (REPOSITORY / "docs" / "results.md").read_text() == results_page(RECORDS)


def test_no_number_is_among_the_changed_words() -> None:
    for page in ("report", "results"):
        for old, new in CHANGES[page].items():
            assert sorted(filter(str.isdigit, old)) == sorted(filter(str.isdigit, new)), old


def test_every_change_of_the_list_is_one_of_the_old_pages() -> None:
    for page in ("report", "results"):
        text = "\n".join([*PAGES[page]["words"], *(cell for row in PAGES[page]["cells"] for cell in row)])
        assert [old for old in CHANGES[page] if old not in text] == []
