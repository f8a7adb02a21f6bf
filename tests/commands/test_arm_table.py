"""The tables at the end of a run keep every number whole, however many metrics there are and however narrow the
terminal is."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from encouraging.commands.arm_table import ArmLine, arm_tables
from encouraging.commands.run_table import print_table
from encouraging.engine.records import read_records
from encouraging.judge.claims import finals_of
from encouraging.recipes import Claim, read_recipe

RECORDS = Path(__file__).parents[2] / "results"
NUMBER = re.compile(r"-?\d+\.\d+ ± \d+\.\d+")
INTERVAL = re.compile(r"\([+-]?[\d.]+, [+-]?[\d.]+\)")
names = st.lists(st.text("ab_.1", min_size=1, max_size=30), min_size=1, max_size=25, unique=True)


def written(show, width):
    console = Console(file=io.StringIO(), width=width)
    show(console)
    return console.file.getvalue()


@given(metrics=names, arms=st.lists(st.text("ab_", min_size=1, max_size=20), min_size=1, max_size=12, unique=True),
       width=st.integers(60, 200), digits=st.integers(1, 5))
def test_every_cell_is_whole_and_no_line_is_too_long(metrics, arms, width, digits):
    lines = [ArmLine(arm, "5", [f"{row + column / 100:.{digits}f} ± 0.{row:0{digits}d}\n[dim]paper {row}[/]"
                                for column in range(len(metrics))]) for row, arm in enumerate(arms)]
    text = written(lambda console: console.print(*arm_tables(console, "title", metrics, lines), sep="\n"), width)
    assert max(map(len, text.splitlines())) <= width
    assert sorted(NUMBER.findall(text)) == sorted(cell.split("\n")[0] for line in lines for cell in line.cells)


@pytest.mark.parametrize("width", [50, 80, 120, 300])
@pytest.mark.parametrize("name", ["mnist-attack", "mnist-ood", "mnist", "cifar100-learning-rate-quick"])
def test_recipes_with_many_metrics_are_readable_in_every_terminal(name, width):
    recipe, finals = read_recipe(name), finals_of(name, read_records(RECORDS / name))
    wide, text = (written(lambda console: print_table(console, recipe, finals), columns) for columns in (1000, width))
    assert max(len(line) for line in text.splitlines() if line[:1] in "┏┃┡│└") <= width  # others the terminal wraps
    assert sorted(NUMBER.findall(text)) == sorted(NUMBER.findall(wide))
    assert "…" not in text
    if width >= 80:
        assert sorted(INTERVAL.findall(text)) == sorted(INTERVAL.findall(wide))


@pytest.mark.parametrize(("width", "below"), [(80, True), (150, False)])
def test_the_interval_is_below_its_difference_where_claims_would_be_squeezed(width, below):
    recipe, finals = read_recipe("mnist"), finals_of("mnist", read_records(RECORDS / "mnist"))
    text = written(lambda console: print_table(console, recipe, finals), width)
    assert ("(interval)" in text) == below
    assert ("el beats ce: best_accuracy" in text) != below


def test_a_difference_beside_an_interval_off_zero_is_not_shown_as_zero():
    claim = Claim(metric="accuracy", arm="el_05", beats="ce")
    recipe = read_recipe("digits").model_copy(update={"claims": (claim,)})
    finals = {"ce": {seed: {"accuracy": 90.0 + seed} for seed in range(4)},
              "el_05": {seed: {"accuracy": 90.0004 + seed + seed * 1e-5} for seed in range(4)}}
    text = written(lambda console: print_table(console, recipe, finals), 120)
    assert "+0.0004 │ (+0.0004, +0.0004)" in text
