"""The table at the end of ``encouraging run``: arms, claims, verdicts."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from ..recipes import Recipe
from .arms import enough, metric
from .claims import Finals, arm_rows, claim_rows, metrics_of

COLOURS = {"reproduced": "green", "contradicted": "red", "undecided": "yellow", "not measured": "dim"}


def print_table(console: Console, recipe: Recipe, finals: Finals) -> None:
    """Mean and deviation of every arm, then every claim's paired difference, interval and verdict."""
    title = f"{recipe.name}" + (f" ({recipe.paper})" if recipe.paper else "")
    arms = Table(title=title, title_justify="left")
    arms.add_column("arm")
    arms.add_column("n", justify="right")
    for name in metrics_of(recipe):
        arms.add_column(name, justify="right")
    for row in arm_rows(recipe, finals):
        cells = [spread(mean, std, digits(name)) + (f"\n[dim]paper {paper:g}[/]" if paper is not None else "")
                 for name, (mean, std, _, paper) in row.numbers.items()]
        arms.add_row(row.arm, str(max(n for _, _, n, _ in row.numbers.values())), *cells)
    console.print(arms)
    if not recipe.claims:
        return
    claims = Table(title="claims: 95% interval of the paired differences, Holm-adjusted; + speaks for the claim",
                   title_justify="left")
    for head in ("claim", "difference", "interval", "permutation p", "n", "verdict"):
        claims.add_column(head, justify="left" if head in ("claim", "verdict") else "right")
    for claim_row in claim_rows(recipe, finals):
        claim, found = claim_row.claim, claim_row.found
        direction = "" if claim.better == "higher" else " (lower is better)"
        places = digits(claim.metric)
        claims.add_row(f"{claim.arm} beats {claim.beats}: {claim.metric}{direction}", signed(found.mean, places),
                       interval(found.low, found.high, places), number(found.p_permutation, 3), str(found.n),
                       f"[{COLOURS[claim_row.verdict]}]{claim_row.verdict}[/]")
    console.print(claims)


def number(value: float, digits: int = 2) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def digits(name: str) -> int:
    """How many decimals a metric needs: calibration errors are small numbers, accuracies are percents."""
    return metric(name).digits


def signed(value: float, digits: int = 2) -> str:
    return "-" if math.isnan(value) else f"{value:+.{digits}f}"


def spread(mean: float, std: float, digits: int = 2) -> str:
    return number(mean, digits) + ("" if math.isnan(std) else f" ± {std:.{digits}f}")


def interval(low: float, high: float, digits: int = 2) -> str:
    digits = enough((low, high), digits)
    return "-" if math.isnan(low) else f"({low:+.{digits}f}, {high:+.{digits}f})"
