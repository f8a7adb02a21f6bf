"""Names in tables of the terminal break where a reader expects it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Column, Table

from encouraging.commands.long_names import LongNames, broken

NAME = "attacks.fgsm_scale_free.0.1"


@pytest.mark.parametrize("width", range(6, 40))
def test_lines_end_at_dots_underscores_and_spaces_and_nothing_is_lost(width):
    words = f"drw_late_aggressive beats ce: {NAME} (lower is better)"
    lines = broken(words, width)
    assert "".join(lines).replace(" ", "") == words.replace(" ", "")
    place = 0
    for line in lines[:-1]:
        place = words.index(line, place) + len(line)
        assert line[-1] in "._" or words[place] == " "
        assert not line.endswith("0.")
    if width >= 11:  # the longest piece
        assert max(map(len, lines)) <= width


def test_a_name_that_fits_a_line_stays_whole():
    assert broken("el beats ce: best_accuracy", 20) == ["el beats ce:", "best_accuracy"]


@pytest.mark.parametrize(("width", "lines"), [(80, [NAME]), (24, ["attacks.fgsm_scale_", "free.0.1"])])
def test_the_column_of_a_table_is_as_wide_as_there_is_room(width, lines):
    table = Table(Column(LongNames(NAME)), box=None)
    table.add_row("1")
    written = io.StringIO()
    Console(file=written, width=width).print(table)
    assert [line.strip() for line in written.getvalue().splitlines()][:-1] == lines


def test_brackets_of_a_name_are_no_markup():
    table = Table(Column(LongNames("[red]x")), box=None)
    written = io.StringIO()
    Console(file=written, width=40).print(table)
    assert "[red]x" in written.getvalue()
