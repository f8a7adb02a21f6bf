"""The table at the end of ``encouraging run``: arms, claims, verdicts."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from ..judge.claims import Finals, arm_rows, claim_rows, metrics_of
from ..judge.metric_book import MetricBook
from ..recipes import Recipe
from ..report.numbers import PLAIN, interval, plus_minus, show, signed

COLOURS = {"reproduced": "green", "contradicted": "red", "undecided": "yellow", "not measured": "dim"}


def print_table(console: Console, recipe: Recipe, finals: Finals) -> None:
    """Mean and deviation of every arm, then every claim's paired difference, interval and verdict."""
    book = MetricBook(recipe.needs().metrics)
    console.print(_arms(recipe, finals, book))
    if recipe.claims:
        console.print(_claims(recipe, finals, book))


def print_claims(console: Console, recipe: Recipe, finals: Finals) -> None:
    """Every claim's paired difference, interval and verdict."""
    console.print(_claims(recipe, finals, MetricBook(recipe.needs().metrics)))


def _arms(recipe: Recipe, finals: Finals, book: MetricBook) -> Table:
    table = Table(title=recipe.name + (f" ({recipe.paper})" if recipe.paper else ""), title_justify="left")
    table.add_column("arm")
    table.add_column("n", justify="right")
    rows = arm_rows(recipe, finals, book)
    # What no run has been measured on yet (attacks come after training) has no column, but its claims have their rows.
    paths = [path for path in metrics_of(recipe, book) if any(row.numbers[path].n for row in rows)]
    for path in paths:
        table.add_column(path, justify="right")
    for row in rows:
        cells = [plus_minus(reached.mean, reached.std, book[path].digits, PLAIN)
                 + (f"\n[dim]paper {reached.paper:g}[/]" if reached.paper is not None else "")
                 for path in paths for reached in [row.numbers[path]]]
        table.add_row(row.arm, str(max(reached.n for reached in row.numbers.values())), *cells)
    return table


def _claims(recipe: Recipe, finals: Finals, book: MetricBook) -> Table:
    table = Table(title="claims: 95% interval of the paired differences, Holm-adjusted; + supports the claim",
                  title_justify="left")
    for head in ("claim", "difference", "interval", "permutation p", "n", "verdict"):
        table.add_column(head, justify="left" if head in ("claim", "verdict") else "right")
    for row in claim_rows(recipe, finals, book):
        claim, comparison = row.claim, row.comparison
        direction = "" if claim.better == "higher" else " (lower is better)"
        digits = row.metric.digits
        table.add_row(f"{claim.arm} beats {claim.beats}: {claim.metric}{direction}",
                      signed(comparison.mean, digits, PLAIN), interval(comparison.low, comparison.high, digits),
                      show(comparison.p_permutation, 3, style=PLAIN), str(comparison.n),
                      f"[{COLOURS[row.verdict]}]{row.verdict}[/]")
    return table
