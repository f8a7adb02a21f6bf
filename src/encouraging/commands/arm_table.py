"""The table of arms in the terminal, in a shape in which every number stays on one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from .long_names import LongNames

NAME_WIDTH = 20  # columns that long names get at least, beside columns of numbers
_UNBOUNDED = 10_000


class ArmLine(NamedTuple):
    """An arm: its name, its number of seeds, and one cell per metric as rich's markup."""

    name: str
    n: str
    cells: Sequence[str]


def arm_tables(console: Console, title: str, metrics: Sequence[str], arms: Sequence[ArmLine]) -> list[Table]:
    """A row per arm; where the metrics do not fit side by side, a row per metric; where the arms do not fit either,
    several tables with as many metrics as fit."""
    for table in (_by_arm(title, metrics, arms), _by_metric(title, metrics, arms)):
        if _settled(console, table):
            return [table]
    tables, first = [], 0
    while first < len(metrics):
        last = first + 1
        table = _part(title, metrics, arms, first, last)
        while last < len(metrics) and _settled(console, wider := _part(title, metrics, arms, first, last + 1)):
            table, last = wider, last + 1
        tables.append(table)
        first = last
    return tables


def fits(console: Console, table: Table) -> bool:
    """Whether the terminal is wide enough for all that must not be broken."""
    return _measured(console, table).minimum <= console.width


def keep_lines(table: Table, columns: Iterable[int]) -> None:
    """No line of these columns' cells is to be broken. A table that is too wide all the same cuts them off."""
    for number in columns:
        column = table.columns[number]
        lines = [line for cell in column.cells if isinstance(cell, str)
                 for line in Text.from_markup(cell).plain.split("\n")]
        column.no_wrap, column.min_width = True, max(map(cell_len, lines), default=0)


def _settled(console: Console, table: Table) -> bool:
    """Whether the table fits; then its numbers stay whole, and where there is little room its heads are broken."""
    keep_lines(table, range(1, len(table.columns)))
    if not fits(console, table):
        return False
    if _measured(console, table).maximum > console.width:
        for column in table.columns[1:]:
            column.max_width = max(column.min_width or 0, _measured(console, column.header).minimum)
    return True


def _measured(console: Console, shown: RenderableType) -> Measurement:
    return console.measure(shown, options=console.options.update(max_width=_UNBOUNDED))


def _by_arm(title: str, metrics: Sequence[str], arms: Sequence[ArmLine]) -> Table:
    table = Table(title=escape(title) if title else None, title_justify="left")
    table.add_column("arm", overflow="fold")
    table.add_column("n", justify="right", overflow="fold")
    for path in metrics:
        table.add_column(LongNames(path), justify="right", overflow="fold")
    for arm in arms:
        table.add_row(LongNames(arm.name), arm.n, *arm.cells)
    return table


def _by_metric(title: str, metrics: Sequence[str], arms: Sequence[ArmLine]) -> Table:
    table = Table(title=escape(title), title_justify="left")
    table.add_column("", overflow="fold")
    for arm in arms:
        table.add_column(LongNames(arm.name), justify="right", overflow="fold")
    table.add_row("n", *(arm.n for arm in arms))
    for number, path in enumerate(metrics):
        table.add_row(LongNames(path, NAME_WIDTH), *(arm.cells[number] for arm in arms))
    return table


def _part(title: str, metrics: Sequence[str], arms: Sequence[ArmLine], first: int, last: int) -> Table:
    cut = [arm._replace(cells=arm.cells[first:last]) for arm in arms]
    return _by_arm(title if first == 0 else "", metrics[first:last], cut)
