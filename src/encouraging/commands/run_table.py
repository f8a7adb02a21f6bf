"""The table at the end of ``encouraging run``: arms, claims, verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..judge.claims import ClaimRow, Finals, arm_rows, claim_rows, metrics_of
from ..judge.metric_book import MetricBook
from ..recipes import Recipe
from ..report.numbers import PLAIN, interval, plus_minus, show, signed
from ..report.sections.claims import SKEWED
from ..report.sections.splits import split_lines

COLOURS = {"reproduced": "green", "contradicted": "red", "undecided": "yellow", "not measured": "dim"}


def print_table(console: Console, recipe: Recipe, finals: Finals) -> None:
    """Mean and deviation of every arm, then every claim's paired difference, interval and verdict."""
    book = MetricBook(recipe.needs().metrics)
    console.print(_arms(recipe, finals, book))
    if recipe.claims:
        rows = claim_rows(recipe, finals, book)
        console.print(_claims(rows))
        for row in rows:
            if row.comparison.skewed:
                console.print(f"{_claim(row)}: {SKEWED}", markup=False, highlight=False, style="yellow")
        for line in split_lines(rows, recipe.overlap):
            console.print(line, markup=False, highlight=False)


def _arms(recipe: Recipe, finals: Finals, book: MetricBook) -> Table:
    table = Table(title=recipe.name + (f" ({recipe.paper})" if recipe.paper else ""), title_justify="left")
    table.add_column("arm")
    table.add_column("n", justify="right")
    for path in metrics_of(recipe, book):
        table.add_column(path, justify="right")
    for row in arm_rows(recipe, finals, book):
        cells = [plus_minus(reached.mean, reached.std, book[path].digits, PLAIN)
                 + (f"\n[dim]paper {reached.paper:g}[/]" if reached.paper is not None else "")
                 for path, reached in row.numbers.items()]
        table.add_row(escape(row.arm), str(max(reached.n for reached in row.numbers.values())), *cells)
    return table


def _claims(rows: Sequence[ClaimRow]) -> Table:
    table = Table(title="claims: 95% interval of the paired differences, Holm-adjusted; + supports the claim",
                  title_justify="left")
    for head in ("claim", "difference", "interval", "permutation p", "n", "verdict"):
        table.add_column(head, justify="left" if head in ("claim", "verdict") else "right")
    for row in rows:
        comparison, digits = row.comparison, row.metric.digits
        table.add_row(escape(_claim(row)), signed(comparison.mean, digits, PLAIN),
                      interval(comparison.low, comparison.high, digits),
                      show(comparison.p_permutation, 3, style=PLAIN), str(comparison.n),
                      f"[{COLOURS[row.verdict]}]{row.verdict}[/]")
    return table


def _claim(row: ClaimRow) -> str:
    direction = "" if row.claim.better == "higher" else " (lower is better)"
    return f"{row.claim.arm} beats {row.claim.beats}: {row.claim.metric}{direction}"
