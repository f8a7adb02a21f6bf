"""The page of results: our measurements beside the paper's, made from the records alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path

from ..engine.records import Record, read_records
from ..engine.run_dir import difference
from ..errors import RunError
from ..recipes import Recipe, names, read_recipe
from .claims import arm_rows, claim_rows, finals_of, metrics_of
from .table import digits, interval, number, signed, spread

HEAD = """# Results

Measured with the recipes of this package; every number is the mean over seeds, with the standard deviation. The verdict
is that of the 95% t interval of the paired differences, Holm-adjusted within a recipe: *reproduced* when it lies wholly
on the claimed side of 0, *contradicted* when wholly on the other, else *undecided*: a verdict on the direction, not on
the size. The exact permutation p stands beside it; with n seeds it cannot fall below 2 / 2^n, which is 0.25 for three
and 0.06 for five. Differences are counted towards the claim: a positive one speaks for it, also where lower is better.
The records are in `results/`; `encouraging report results -o report.html` draws them. This page is written by
`encouraging results`; do not edit it.
"""


def results_page(folder: str | Path) -> str:
    """The page as Markdown."""
    records = read_records(folder)
    known = [name for name in names() if any(record.place[0] == name for record in records)]
    return "\n".join([HEAD, *(_section(read_recipe(name), records) for name in known)])


def _section(recipe: Recipe, records: list[Record]) -> str:
    finals = finals_of(recipe.name, records)
    mine = [record for record in records if record.place[0] == recipe.name]
    metrics = metrics_of(recipe)
    lines = [f"## {recipe.name}", "", f"{recipe.about} {f'Paper: {recipe.paper}.' if recipe.paper else ''}".strip(), ""]
    if recipe.departs:
        lines += [f"Departs from the paper: {recipe.departs}", ""]
    lines += _row(["arm", "n", *(f"`{name}`" for name in metrics), "train accuracy", "excess risk", "seconds a run"])
    lines.append("|" + " --- |" * (len(metrics) + 5))
    for row in arm_rows(recipe, finals):
        runs = [record for record in mine if record.place[1] == row.arm]
        if not runs:
            continue
        cells = [spread(mean, std, digits(name)) + (f" (paper {paper:g})" if paper is not None else "")
                 for name, (mean, std, _, paper) in row.numbers.items()]
        lines += _row([row.arm, str(len(runs)), *cells,
                       _mean(r.final.get("train_accuracy") for r in runs),
                       _mean(r.final.get("excess_risk") for r in runs),
                       _mean((r.timing.get("seconds") for r in runs), 0)])
    lines += ["", *_row(["claim", "paper", "difference", "interval", "permutation p", "n", "verdict"]),
              "|" + " --- |" * 7]
    for claim_row in claim_rows(recipe, finals):
        claim, found = claim_row.claim, claim_row.found
        theirs = f"{claim.paper[claim.beats]:g} -> {claim.paper[claim.arm]:g}" if len(claim.paper) > 1 else ""
        places, lower = digits(claim.metric), ", lower is better" if claim.better == "lower" else ""
        lines += _row([f"{claim.arm} beats {claim.beats} on `{claim.metric}`{lower}", theirs,
                       signed(found.mean, places), interval(found.low, found.high, places),
                       number(found.p_permutation, 3), str(found.n), f"**{claim_row.verdict}**"])
    return "\n".join([*lines, "", _cost(mine), *_departures(recipe, mine), ""])


def _cost(records: list[Record]) -> str:
    """What the paper's table of training costs has."""
    try:
        devices = sorted({str(record.timing["device"]) for record in records})
        first = records[0].timing
        memory = max(record.timing["peak_memory_mib"] for record in records)
        versions = sorted({f"torch {record.timing['torch']}" for record in records})
    except KeyError as error:
        raise RunError(f"{records[0].place[0]}: the timing of a run has no {error}.") from error
    return (f"{', '.join(devices)}; {', '.join(versions)}; {first['epochs']} epochs of "
            f"{first['samples'] / first['epochs']:.0f} samples; {memory:.0f} MiB at most. Runs that shared the card "
            "took longer than one alone.")


def _departures(recipe: Recipe, records: list[Record]) -> list[str]:
    """Where runs were made with other settings than the recipe's, the page says so."""
    found = {difference(recipe.config(arm, seed), record.asked) for record in records
             for _, arm, seed in [record.place] if arm in recipe.arms and recipe.config(arm, seed) != record.asked}
    return [f"Departures from the recipe (there) in these runs (here): {words}." for words in sorted(found)]


def _mean(values: Iterable[float | None], digits: int = 2) -> str:
    there = [value for value in values if value is not None]
    return f"{statistics.fmean(there):.{digits}f}" if there else ""


def _row(cells: list[str]) -> list[str]:
    return ["| " + " | ".join(cells) + " |"]
