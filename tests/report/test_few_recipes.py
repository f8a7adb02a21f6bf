"""Pages about some recipes, of the paper or of one's own: they are about these and nothing else."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console

import synthetic_runs as synthetic
from encouraging.commands import report
from encouraging.engine import Metric
from encouraging.report.arms import groups_of
from encouraging.report.drawing.panels import within
from encouraging.report.page import build_report, write_report
from encouraging.report.sections import arms, costs, translations
from encouraging.report.sections.reproduction import needed_data
from page_text import PageText

RECORDS = Path(__file__).parents[2] / "results"


def said(records: list) -> str:
    text = PageText(build_report(records))
    return " ".join([*text.words, *(cell for row in text.cells for cell in row)])


def test_a_page_about_one_recipe_counts_and_lists_what_belongs_to_it(tmp_path):
    report.report_on([RECORDS / "bccd-retinanet"], tmp_path / "page.html")
    text = PageText((tmp_path / "page.html").read_text())
    words = " ".join(text.words)
    assert "All 3 claims are undecided. 1 claim is not measured yet." in words
    assert "other recipes for experiments of the paper are not on this page" in words
    recipes = [row for row in text.cells if "–" in row and "RTX 2080 Ti" in " ".join(row)]
    assert recipes == []  # of the paper's costs


@pytest.mark.parametrize(("folder", "whole"), [("", True), ("bccd-retinanet", False), ("mnist", False)])
def test_a_page_about_many_recipes_of_the_paper_is_about_the_paper(folder, whole, tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(report, "write_report", lambda records, out, **how: asked.update(how) or [out])
    report.report_on([RECORDS / folder], tmp_path / "page.html")
    assert asked["whole_paper"] is whole


def test_recipes_of_ones_own_are_not_compared_with_the_papers():
    assert "on this page" not in said(synthetic.shipped("digits", 3))


def test_a_cpu_is_not_called_a_gpu():
    table, = costs.section(groups_of(synthetic.shipped("digits", 1), {})).tables
    assert "device" in table.head
    assert "GPU" not in table.head


def test_without_claims_nothing_is_said_about_verdicts():
    found = {"translation": {"counts": [[9, 9, 4, 3, 2, 1]], "signature": "nrefs:1"}}
    (group,) = groups_of([replace(synthetic.record("mine", "ce", 0), diagnosis=found)], {})
    arm, = group.arms
    assert "verdicts" not in translations.section([arm]).lead[0]
    assert "The verdicts above" in translations.section([arm], [("el", "ce")]).lead[0]


def test_an_axis_of_percent_does_not_reach_below_0():
    (group,) = groups_of([synthetic.record("mine", "ce", seed) for seed in range(2)], {})
    axes = Figure().add_subplot()
    percent = Metric("ap", "AP", "%", low=0, high=100)
    arms._dots([(group.arms[0], [0.0, 0.0])], 60, percent)(axes)
    low, high = axes.get_xlim()
    assert min(tick for tick in axes.get_xticks() if low <= tick <= high) == 0
    assert within((-3.0, 7.0), 0, 100) == (-0.4, 7.0)
    assert within((90.0, 110.0), 0, 100) == (90.0, 100.8)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_shows_what_is_being_done_and_a_file_nothing(terminal, tmp_path, monkeypatch):
    def slow(records, out, say, **how):
        say("drawing [one] (1 of 2)")
        time.sleep(0.3)  # the line is drawn by a thread of its own
        return [out]

    monkeypatch.setattr(report, "write_report", slow)
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=80)
    report.report_on([RECORDS / "bccd-retinanet"], tmp_path / "page.html", console=console)
    assert ("drawing [one] (1 of 2)" in text.getvalue()) == terminal
    assert bool(text.getvalue()) == terminal


def test_a_report_that_takes_long_says_so_on_the_error_stream(tmp_path, monkeypatch, capsys):
    def drawing(records, out, say, **how):
        for number in range(3):
            say(f"drawing [{number}] ({number} of 3)")
        return [out]

    monkeypatch.setattr(report, "write_report", drawing)
    monkeypatch.setattr(report, "PRINT_EVERY", 0.0)
    report.report_on([RECORDS / "bccd-retinanet"], tmp_path / "page.html")
    said = capsys.readouterr()
    assert said.out == ""
    drawn = [f"drawing [{number}] ({number} of 3)" for number in range(3)]
    assert said.err.splitlines() == ["reading the runs", *drawn]


def test_every_recipe_is_named_before_its_figures_are_drawn(tmp_path):
    words: list[str] = []
    records = [*synthetic.shipped("digits", 2), *synthetic.shipped("mnist", 2)]
    write_report(records, tmp_path / "page.html", say=words.append)
    assert words == ["drawing digits (1 of 2)", "drawing mnist (2 of 2)"]
    words.clear()
    write_report(synthetic.shipped("mnist", 2), tmp_path / "page.html", say=words.append, figures=tmp_path / "figures")
    assert words == ["drawing mnist (1 of 1)", "writing the figures of mnist"]


def test_what_all_commands_need_is_said_once():
    one, two, three, none = (synthetic.shipped(name) for name in ("mnist", "mnist-attack", "multi30k-de-en", "digits"))
    assert needed_data(groups_of(one, {})) == [
        "Runs need the dataset mnist: add `--download`, or `--data` with the folder that has it, to `encouraging run`."]
    assert needed_data(groups_of([*one, *two, *three, *none], {})) == [
        "Runs need the datasets mnist and multi30k-de-en: add `--download`, or `--data` with the folder that has them, "
        "to `encouraging run`."]
    assert needed_data(groups_of(none, {})) == []
    assert said(one).count("Runs need the dataset") == 1
