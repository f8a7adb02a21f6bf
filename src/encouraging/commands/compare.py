"""``encouraging compare``: verdicts on the numbers of any script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..engine.outputs import check_output
from ..judge.claims import number_at
from ..judge.stats import describe
from ..report.comparison import Comparisons, compare
from ..report.numbers import PLAIN, plus_minus
from .long_names import LongNames
from .run_table import print_claims


def compare_file(path: Path, metrics: Sequence[str], out: Path | None, *, console: Console | None = None,
                 **how: Any) -> list[Path]:
    """Print the claims about the numbers of a file and write their page; the files that were written."""
    if out is not None:
        check_output(out, [path])
    found = compare(path, metrics, **how)
    console = console or Console()
    console.print(_arms(found))
    print_claims(console, found.rows)
    return [] if out is None else [found.write(out)]


def _arms(found: Comparisons) -> Table:
    """Mean and standard deviation of every arm over its seeds."""
    table = Table(title=escape(found.title), title_justify="left")
    table.add_column("arm", overflow="fold")
    table.add_column("n", justify="right")
    metrics = list(found.book.metrics.values())
    for metric in metrics:
        table.add_column(LongNames(metric.path), justify="right", overflow="fold")
    for arm, seeds in found.numbers.items():
        values = [[number for final in seeds.values() if (number := number_at(final, metric.path)) is not None]
                  for metric in metrics]
        cells = [plus_minus(*describe(reached), metric.digits, PLAIN) if reached else "-"
                 for reached, metric in zip(values, metrics, strict=True)]
        table.add_row(LongNames(arm), str(max(map(len, values))), *cells)
    return table
