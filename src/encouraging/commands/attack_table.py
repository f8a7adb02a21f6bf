"""The table at the end of ``encouraging attack``: the accuracy that is left, and whether it can be believed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..engine.records import Record
from ..judge.attack_names import size_words
from ..recipes import Recipe
from ..report.numbers import PLAIN, range_words, show
from ..report.sections.attack_rows import AttackRow, attack_rows, in_order, measured_words
from ..report.sections.attacks import flattering

WARNINGS = 3  # that are printed in full, worst first


def print_attacks(console: Console, recipe: Recipe, records: Sequence[Record]) -> None:
    """Warnings first; then the mean accuracy over the seeds of every arm by attack and epsilon, one table per grid of
    epsilons and number of test images."""
    print_warnings(console, records)
    arms = dict.fromkeys(record.arm for record in records)
    rows = in_order(row for arm in arms
                    for row in attack_rows(arm, (({"attacks": _accuracies(record)}, record.attacks)
                                                 for record in records if record.arm == arm)))
    for grid, images in dict.fromkeys((tuple(row.points), row.images) for row in rows):
        members = [row for row in rows if (tuple(row.points), row.images) == (grid, images)]
        console.print(f"{recipe.name}: accuracy in percent by epsilon {measured_words(members)}", markup=False,
                      highlight=False)
        console.print(_table(grid, members))


def print_warnings(console: Console, records: Sequence[Record]) -> None:
    """Which attacks make a model look more robust than it is, worst first."""
    flatteries = flattering(records)
    for flattery in flatteries[:WARNINGS]:
        console.print(flattery.words, style="yellow", markup=False, highlight=False)
    if len(flatteries) > WARNINGS:
        console.print(f"and {len(flatteries) - WARNINGS} more, which the report lists", style="yellow", highlight=False)


def _accuracies(record: Record) -> dict[str, Any]:
    return {name: entry["accuracy"] for name, entry in (record.attacks or {}).get("attacks", {}).items()}


def _table(grid: Sequence[float], rows: Sequence[AttackRow]) -> Table:
    # Narrow, so that eighty columns have room for the paper's seven epsilons: a number cut off is no number.
    table = Table(box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    differ = len({count for row in rows for count in row.counts}) > 1
    for head in ("attack", "arm", *(["n"] * differ), *map(size_words, grid)):
        table.add_column(head, justify="left" if head in ("attack", "arm") else "right", no_wrap=True)
    for row in rows:
        means = [statistics.fmean(row.points[eps]) for eps in grid]
        table.add_row(row.attack, row.arm, *([range_words(row.counts)] * differ),
                      *(show(mean, 1, style=PLAIN) for mean in means))
    return table
