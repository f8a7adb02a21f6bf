"""The table at the end of a run."""

from __future__ import annotations

import pytest
from rich.console import Console

from encouraging.commands.run_table import print_table
from encouraging.engine.records import read_records
from encouraging.judge.claims import finals_of
from encouraging.recipes import read_recipe
from synthetic_runs import write_mnist_runs


@pytest.fixture
def runs(tmp_path):
    return write_mnist_runs(tmp_path / "runs")


def test_the_terminal_shows_the_interval_and_the_verdict(runs):
    console = Console(record=True, width=150)
    print_table(console, read_recipe("mnist"), finals_of("mnist", read_records(runs)))
    text = console.export_text()
    for words in ("el beats ce: best_accuracy", "reproduced", "+0.15", "99.42 ± 0.02"):
        assert words in text, words


def test_an_arm_without_runs_is_not_measured(runs):
    finals = finals_of("mnist", read_records(runs))
    del finals["el"]
    console = Console(record=True, width=150)
    print_table(console, read_recipe("mnist"), finals)
    assert "not measured" in console.export_text()
