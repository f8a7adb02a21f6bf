"""The page of results: our measurements beside the paper's, made from the records alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..engine.records import Record
from ..engine.run_dir import difference
from ..errors import RunError
from ..judge.claims import ClaimRow, arm_rows, claim_rows, finals_of, metrics_of
from ..judge.metric_book import book_of
from ..recipes import Recipe, kept_recipes, names, read_recipe, read_runs
from .markdown_board import board_of_records, cells, plain_text, table, updated, whole_board
from .numbers import PLAIN, interval, listed, plus_minus, show, signed
from .sections.claims import SKEWED

HEAD = """# Results

Measured with the recipes of this package; every number is the mean over seeds, with the standard deviation. The verdict
is that of the 95% t interval of the paired differences, Holm-adjusted within a recipe: *reproduced* when it lies wholly
on the claimed side of 0, *contradicted* when wholly on the other, else *undecided*: a verdict on the direction, not on
the size. The exact permutation p is given beside it; with n seeds it cannot fall below 2 / 2^n, which is 0.25 for three
and 0.06 for five. Differences are counted towards the claim: a positive one supports it, also where lower is better.
The records are in `results/`; `encouraging report results -o report.html` draws them. This page is written by
`encouraging results`; do not edit it.
"""


def results_page(folder: str | Path) -> str:
    """The page as Markdown: the scoreboard, then one section per recipe that has records below this folder; first those
    of the package, then the reader's own as their runs have kept them."""
    records = read_runs(folder)
    measured = [name for name in names() if any(record.recipe == name for record in records)]
    own = [recipe for name, recipe in kept_recipes(records).items() if name not in measured]
    board = board_of_records(records)
    return "\n".join([HEAD, *(["## Scoreboard", "", *whole_board(board)] if board else []),
                      *(_section(read_recipe(name), records) for name in measured),
                      *(_section(recipe, records, shipped=False) for recipe in own)])


def updated_page(text: str, folder: str | Path, source: str) -> str:
    """A Markdown page whose parts between markers are written anew from the records below a folder."""
    board = board_of_records(read_runs(folder))
    if board is None:
        raise RunError(f"{folder}: expected records of recipes with claims.")
    return updated(text, board, source)


def _section(recipe: Recipe, records: list[Record], shipped: bool = True) -> str:
    finals = finals_of(recipe.name, records)
    mine = [record for record in records if record.recipe == recipe.name]
    book = book_of(mine)
    paths = metrics_of(recipe, book)
    extra = {words: path for words, path in (("train accuracy", "train_accuracy"), ("excess risk", "excess_risk"))
             if any(path in record.final for record in mine)}
    lines = [f"## {recipe.name}", "", f"{recipe.about} {f'Paper: {recipe.paper}.' if recipe.paper else ''}".strip(), ""]
    if recipe.departs:
        lines += [f"Departs from the paper: {recipe.departs}", ""]
    lines += table(["arm", "n", *(f"`{path}`" for path in paths), *extra, "seconds per run"])
    for row in arm_rows(recipe, finals, book):
        runs = [record for record in mine if record.arm == row.arm]
        if not runs:
            continue
        numbers = [plus_minus(reached.mean, reached.std, book[path].digits, PLAIN)
                 + (f" (paper {reached.paper:g})" if reached.paper is not None else "")
                 for path, reached in row.numbers.items()]
        lines.append(cells([row.arm, str(len(runs)), *numbers,
                           *(_mean(r.final.get(path) for r in runs) for path in extra.values()),
                           _mean((r.timing.get("seconds") for r in runs), 0)]))
    if recipe.claims:
        lines += ["", *table(["claim", "paper", "difference", "interval", "permutation p", "n", "verdict"])]
    rows = claim_rows(recipe, finals, book)
    for claim_row in rows:
        claim, comparison = claim_row.claim, claim_row.comparison
        theirs = f"{claim.paper[claim.beats]:g} -> {claim.paper[claim.arm]:g}" if len(claim.paper) > 1 else ""
        digits, lower = claim_row.metric.digits, ", lower is better" if claim.better == "lower" else ""
        lines.append(cells([f"{claim.arm} beats {claim.beats} on `{claim.metric}`{lower}", theirs,
                           signed(comparison.mean, digits, PLAIN), interval(comparison.low, comparison.high, digits),
                           show(comparison.p_permutation, 3, style=PLAIN), str(comparison.n),
                           f"**{claim_row.verdict}**"]))
    return "\n".join([*lines, "", *_skewed(rows), _cost(mine), *(_departures(recipe, mine) if shipped else []), ""])


def _skewed(rows: Sequence[ClaimRow]) -> list[str]:
    """A warning about claims whose differences look skewed."""
    claims = [f"{row.claim.arm} against {row.claim.beats} on `{row.claim.metric}`" for row in rows
              if row.comparison.skewed]
    if not claims:
        return []
    return [f"Warning for {listed(claims)}: {SKEWED} ([how often](report.md#skewed-differences)).", ""]


def _cost(records: list[Record]) -> str:
    """What the paper's table of training costs has."""
    try:
        devices = sorted({str(record.timing["device"]) for record in records})
        first = records[0].timing
        memory = max(record.timing["peak_memory_mib"] for record in records)
        versions = sorted({f"torch {record.timing['torch']}" for record in records})
    except KeyError as error:
        raise RunError(f"{records[0].recipe}: the timing of a run has no {error}.") from error
    return (f"{plain_text(', '.join(devices))}; {plain_text(', '.join(versions))}; {first['epochs']} epochs of "
            f"{first['samples'] / first['epochs']:.0f} samples; {memory:.0f} MiB at most. Runs that shared the card "
            "took longer than one alone.")


def _departures(recipe: Recipe, records: list[Record]) -> list[str]:
    """Where runs were made with other settings than the recipe's, the page says so."""
    departures = {difference(settings, record.config) for record in records if record.arm in recipe.arms
                  if (settings := recipe.config(record.arm, record.seed)) != record.config}
    return [f"Departures from the recipe (there) in these runs (here): {plain_text(words)}."
            for words in sorted(departures)]


def _mean(values: Iterable[float | None], digits: int = 2) -> str:
    numbers = [value for value in values if value is not None]
    return show(statistics.fmean(numbers), digits, style=PLAIN) if numbers else ""
