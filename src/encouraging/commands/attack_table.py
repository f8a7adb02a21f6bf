"""The table at the end of ``encouraging attack``: the accuracy that is left, and whether it can be believed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..engine.records import Record
from ..judge.metric_words import size_words
from ..recipes import Recipe
from ..report.numbers import PLAIN, show
from ..report.sections.attacks import flattering, image_counts, ordered

WARNINGS = 3  # that are printed in full, worst first


def print_attacks(console: Console, recipe: Recipe, records: Sequence[Record]) -> None:
    """The mean accuracy over the seeds of every arm by attack and epsilon, one table per grid of epsilons."""
    tables = [(record.arm, name, entry) for record in records
              for name, entry in (record.attacks or {}).get("attacks", {}).items()]
    grids = dict.fromkeys(tuple(entry["accuracy"]) for _, _, entry in tables)
    for grid in grids:
        here = [(arm, name, entry) for arm, name, entry in tables if tuple(entry["accuracy"]) == grid]
        images = image_counts(entry for _, _, entry in here)
        rows = [(name, arm, [entry for one, other, entry in here if one == arm and other == name])
                for name in ordered(dict.fromkeys(name for _, name, _ in here))
                for arm in dict.fromkeys(arm for arm, other, _ in here if other == name)]
        seeds = _range([len(own) for _, _, own in rows])
        # Narrow, so that eighty columns have room for the paper's seven epsilons: a number cut off is no number.
        table = Table(title=f"{recipe.name}: accuracy in percent by epsilon on {images} test images, mean over {seeds} "
                            f"{'seed' if seeds == '1' else 'seeds'}", title_justify="left", box=SIMPLE_HEAD,
                      collapse_padding=True, pad_edge=False)
        for head in ("attack", "arm", *map(size_words, grid)):
            table.add_column(head, justify="left" if head in ("attack", "arm") else "right", no_wrap=True)
        for name, arm, own in rows:
            means = [statistics.fmean(entry["accuracy"][eps] for entry in own) for eps in grid]
            table.add_row(name, arm, *(show(mean, 1, style=PLAIN) for mean in means))
        console.print(table)
    found = flattering(records)
    for one in found[:WARNINGS]:
        console.print(one.words, style="yellow", markup=False, highlight=False)
    if len(found) > WARNINGS:
        console.print(f"and {len(found) - WARNINGS} more, which the report lists", style="yellow", highlight=False)


def _range(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
