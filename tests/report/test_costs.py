"""Costs: ours from the records, beside the paper's where data and model are the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import synthetic_runs as synthetic
from encouraging.recipes import read_runs
from encouraging.report.arms import groups_of
from encouraging.report.sections.costs import duration, paper_costs, section


def table_of(records, whole_paper=False):
    made, = section(groups_of(records, {}), whole_paper).tables
    return made


def test_ours_stands_beside_the_paper_s():
    table = table_of(synthetic.shipped("mnist", 3))
    row, = table.rows
    words = [cell.main for cell in row]
    assert words == ["mnist", "6", "a card", "900 MiB", "13.0 s", "6", "1 RTX 2080 Ti", "3 GB", "0.3 h", "100"]
    assert row[0].small == "MNIST, CNN"
    assert row[4].small == "78.0 s in all"
    assert row[5].small == "of 100 samples"
    assert [group for group, _ in table.groups] == ["", "ours", "the paper’s Table 6"]
    assert sum(width for _, width in table.groups) == len(table.head) == len(row)


@pytest.mark.parametrize(("task", "timing", "word"), [
    ("image", {}, "samples"), ("translation", {}, "tokens"), ("language", {}, "tokens"),
    ("mine:Task", {"counted": "clips"}, "clips"), ("language", {"counted": "windows"}, "windows")])
def test_samples_are_called_what_the_task_counts(task, timing, word):
    record = synthetic.shipped("mnist", 1)[0]
    record = replace(record, config={**record.config, "task": task}, timing={**record.timing, **timing})
    assert table_of([record]).rows[0][5].small == f"of 100 {word}"


def test_a_network_that_the_paper_did_not_use_has_nothing_beside_it():
    table = table_of([*synthetic.shipped("digits", 1), *synthetic.shipped("mnist", 1)])
    digits = next(row for row in table.rows if row[0].main == "digits")
    assert [cell.main for cell in digits[-4:]] == ["–"] * 4
    alone = table_of(synthetic.shipped("digits", 1))
    assert not alone.groups
    assert len(alone.head) == len(alone.rows[0]) == 6


def test_the_whole_table_of_the_paper_is_there_when_it_is_asked_for():
    table = table_of(synthetic.shipped("mnist", 1), whole_paper=True)
    assert len(table.rows) == len(paper_costs()) == 13
    assert {len(row) for row in table.rows} == {len(table.head)}
    coco = next(row for row in table.rows if row[0].main.startswith("COCO"))
    assert [cell.main for cell in coco[-4:]] == ["4 RTX 2080 Ti", "9 GB", "7 h", "90K updates"]


def test_runs_without_timing_leave_dashes():
    runs = [replace(record, timing={}) for record in synthetic.shipped("mnist", 1)]
    row, = table_of(runs).rows
    assert [cell.main for cell in row[2:6]] == ["–"] * 4


def test_seeds_that_are_far_apart_are_not_counted_through():
    seeds = dict(enumerate((1, 42, 2**62)))
    runs = [replace(record, config={**record.config, "seed": seeds[record.seed]})
            for record in synthetic.shipped("mnist", 3)]
    row, = table_of(runs).rows
    assert row[1].small == f"seeds 1, 42 and {2**62}"


@pytest.mark.parametrize(("seconds", "words"), [(0.04, "0.0 s"), (119.9, "119.9 s"), (120, "2.0 min"),
                                                (7199, "120.0 min"), (7200, "2.0 h")])
def test_a_duration_is_in_the_unit_that_suits_it(seconds, words):
    assert duration(seconds) == words


def test_the_committed_records_have_costs():
    records = read_runs(Path(__file__).parents[2] / "results")
    table = table_of(records, whole_paper=True)
    mnist = next(row for row in table.rows if row[0].main == "mnist")
    assert "H200" in mnist[2].main
    assert "–" not in [cell.main for cell in mnist]
