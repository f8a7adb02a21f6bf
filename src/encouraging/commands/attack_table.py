"""The table at the end of ``encouraging attack``: the accuracy that is left, and whether it can be believed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ..engine.records import Record
from ..recipes import Recipe
from ..report.numbers import PLAIN, show
from ..report.sections.attacks import flattering, ordered

WARNINGS = 3  # that are printed in full, worst first


def print_attacks(console: Console, recipe: Recipe, records: Sequence[Record]) -> None:
    """The mean accuracy over the seeds of every arm by attack and epsilon, one table per grid of epsilons."""
    tables = [(record.arm, name, entry) for record in records
              for name, entry in (record.attacks or {}).get("attacks", {}).items()]
    grids = dict.fromkeys(tuple(entry["accuracy"]) for _, _, entry in tables)
    for grid in grids:
        here = [(arm, name, entry) for arm, name, entry in tables if tuple(entry["accuracy"]) == grid]
        images = _range([count for _, _, entry in here
                         for count in entry.get("examples_at", {"all": entry["examples"]}).values()])
        table = Table(title=f"{recipe.name}: accuracy in percent by epsilon on {images} test images, mean over the "
                            "seeds", title_justify="left")
        for head in ("attack", "arm", "seeds", *grid):
            table.add_column(head, justify="left" if head in ("attack", "arm") else "right",
                             no_wrap=head in ("attack", "arm"))
        for name in ordered(dict.fromkeys(name for _, name, _ in here)):
            for arm in dict.fromkeys(arm for arm, other, _ in here if other == name):
                own = [entry for one, other, entry in here if one == arm and other == name]
                means = [statistics.fmean(entry["accuracy"][eps] for entry in own) for eps in grid]
                table.add_row(name, arm, str(len(own)), *(show(mean, 1, style=PLAIN) for mean in means))
        console.print(table)
    found = flattering(records)
    for one in found[:WARNINGS]:
        console.print(one.words, style="yellow", markup=False, highlight=False)
    if len(found) > WARNINGS:
        console.print(f"and {len(found) - WARNINGS} more, which the report lists", style="yellow", highlight=False)


def _range(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
