"""The page of results: our measurements beside the paper's, made from the records alone."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..engine.files import read_json
from ..engine.records import Record
from ..errors import RunError
from ..judge.claims import ClaimRow, arm_rows, claim_rows, finals_of, metrics_of, number_at, own_heading
from ..judge.looks import plan_of
from ..judge.metric_book import book_of
from ..judge.metric_words import counted_words
from ..judge.scale_free import Gain, gains_under_attack
from ..recipes import Recipe, departures_of, kept_recipes, names, read_recipe, read_runs
from .board import Scoreboard
from .markdown_board import board_of_records, whole_board
from .markdown_figure import with_figures
from .markdown_forms import with_scoreboards
from .markdown_table import cells, plain_text, table
from .numbers import PLAIN, alike, interval, listed, p_value, plus_minus, range_words, show, signed
from .sections.attack_rows import attack_rows, image_words
from .sections.claim_words import SKEWED, needed_words
from .sections.gains import COLUMNS, caption_of, gain_rows, gain_words
from .sections.splits import split_lines

# HEAD is for claims of the paper, OWN_HEAD and OWN_VERDICTS for others.
_HOW = """\
- The intervals are t intervals over seeds, Holm-adjusted within a recipe. Differences are counted towards the claim: a
  positive one supports it, also where lower is better.
- *Permutation p* is exact. With n seeds it cannot fall below 2 / 2^n, which is 0.25 for three and 0.06 for five.
"""
_WRITTEN = """\
- The records are in `results/`; `encouraging report results -o report.html` draws them. This page is written by
  `encouraging results`; do not edit it.
"""
HEAD = f"""# Results

What the recipes of this package measured, beside what the paper reports. Every number is the mean over seeds, with the
standard deviation. The verdict is that of the 95% interval of the paired differences:

- *reproduced*: it lies wholly on the claimed side of 0. *contradicted*: wholly on the other side.
- *holds* and *fails*: the same where the paper claims nothing in that setting, in tables of their own.
- *no difference*: it lies closer to zero than half of the paper's difference. *undecided*: everything else.

How to read the rest:

- A verdict is about the direction and not the size. The columns beside it say whether the size of the difference is
  consistent with the paper's, and how many seeds would decide an undecided claim: see [verdicts](verdicts.md).
{_HOW}{_WRITTEN}"""
OWN_HEAD = """# Results

Every number is the mean over seeds, with the standard deviation.

"""
OWN_VERDICTS = f"""\
- The verdict is that of the 95% interval of the paired differences: a claim *holds* when it lies wholly on the claimed
  side of 0, *fails* when wholly on the other, and is *undecided* otherwise.
{_HOW}"""
LINKS = (": see [verdicts](verdicts.md)", " ([how often](report.md#skewed-differences))")  # to pages of this package

ALONE = "bench/alone.json"  # times of trainings that had the machine for themselves: benchmarks/alone.py
EXTRA = {"train accuracy": "train_accuracy", "excess risk": "excess_risk", "bonus began, %": "bonus.began",
         "bonus at the chosen epoch, %": "bonus.used"}
BY_FREQUENCY = {"many": "shots.many", "medium": "shots.medium", "few": "shots.few", "calibration error": "ece"}


@dataclass(frozen=True)
class Results:
    """What all pages are made of: the records below a folder, and the scoreboard of their claims."""

    folder: str | Path
    records: list[Record]
    board: Scoreboard | None


def read_results(folder: str | Path) -> Results:
    """Every run below this folder, also those that diverged, and their scoreboard."""
    records = read_runs(folder, failed=True)
    if not records:
        raise RunError(f"{folder}: no finished run and no record is below it; the page would be empty.")
    return Results(folder, records, board_of_records(records))


def results_page(folder: str | Path) -> str:
    """The page as Markdown: the scoreboard, then one section per recipe that has records below this folder; first those
    of the package, then the reader's own as their runs have kept them."""
    return page_of(read_results(folder))


def page_of(results: Results, links: bool = True) -> str:
    """:func:`results_page` of records that were read before. ``links`` to other pages of the documentation only work
    where these are in the same folder."""
    folder, records, board = results.folder, results.records, results.board
    measured = [name for name in names() if any(record.recipe == name for record in records)]
    own_recipes = [recipe for name, recipe in kept_recipes(records).items() if name not in measured]
    recipes = [*(read_recipe(name) for name in measured), *own_recipes]
    alone = read_json(path) if (path := Path(folder) / ALONE).is_file() else {}
    name = Path(folder).name or str(folder)
    head = _head(recipes).replace("`results/`", f"`{name}/`").replace("report results -o", f"report {name} -o")
    scoreboard = ["## Scoreboard", "", *whole_board(board, _attack_notes(recipes, records))] if board else []
    page = "\n".join([head, *scoreboard, *(_section(recipe, records, alone) for recipe in recipes)])
    for link in () if links else LINKS:
        page = page.replace(link, "")
    return page


def _head(recipes: Sequence[Recipe]) -> str:
    """The introduction of the page; it leaves out the paper and verdicts where the recipes have none."""
    if any(claim.is_papers for recipe in recipes for claim in recipe.claims):
        return HEAD
    return OWN_HEAD + (OWN_VERDICTS if any(recipe.claims for recipe in recipes) else "") + _WRITTEN


def _attack_notes(recipes: Sequence[Recipe], records: list[Record]) -> list[str]:
    """One line per recipe whose gains under attack were measured with scale-free attacks too."""
    lines = []
    for recipe in recipes:
        mine = [record for record in records if record.recipe == recipe.name]
        book = book_of([record for record in mine if record.failed is None])
        finals = finals_of(recipe.name, mine)
        gains = gains_under_attack(claim_rows(recipe, finals, book, plan_of(recipe, mine),
                                              departures_of(recipe.name, mine)), finals)
        lines += [f"[{recipe.name}](#{recipe.name}): {words}" for words in [gain_words(gains)] if words]
    return lines


def updated_page(text: str, results: Results, source: str) -> tuple[str, dict[str, bytes]]:
    """A Markdown page with its scoreboards and figures replaced by those of the records, and the pictures of the
    figures by path relative to the page."""
    if results.board is None:
        raise RunError(f"{results.folder}: expected records of recipes with claims.")
    return with_figures(with_scoreboards(text, results.board, source), results.records, source)


def _section(recipe: Recipe, records: list[Record], alone: Mapping[str, Any] | None = None) -> str:
    finals = finals_of(recipe.name, records)
    ended = [record for record in records if record.recipe == recipe.name]
    finished = [record for record in ended if record.failed is None]
    book = book_of(finished)
    paths = metrics_of(recipe, book)
    counted = any(number_at(record.final, path) is not None for record in finished for path in BY_FREQUENCY.values()
                  if path.startswith("shots"))
    extra = {words: path for words, path in (EXTRA | (BY_FREQUENCY if counted else {})).items()
             if path not in paths and any(number_at(record.final, path) is not None for record in finished)}
    about = f"{recipe.about} {f'Paper: {recipe.paper}.' if recipe.paper else ''}".strip()
    lines = [f"## {recipe.name}", "", *([about, ""] if about else [])]
    departures = departures_of(recipe.name, ended)
    lines += [line for words in departures.sentences for line in (plain_text(words), "")]
    if recipe.departs:
        lines += [f"Departs from the paper: {recipe.departs}", ""]
    lines += table(["arm", "n", *(f"`{path}`" for path in paths), *extra, "seconds per run"])
    for row in arm_rows(recipe, finals, book):
        runs = [record for record in finished if record.arm == row.arm]
        if not runs:
            continue
        numbers = [plus_minus(reached.mean, reached.std, book[path].digits, PLAIN)
                 + (f" (paper {reached.paper:g})" if reached.paper is not None and not departures.settings else "")
                 for path, reached in row.numbers.items()]
        lines.append(cells([row.arm, str(len(runs)), *numbers,
                           *(_mean(number_at(r.final, path) for r in runs) for path in extra.values()),
                           _median((r.timing.get("seconds") for r in runs), 0)]))
    rows = claim_rows(recipe, finals, book, plan_of(recipe, ended), departures)
    for papers, title in ((True, "What the paper claims:"), (False, f"{own_heading(rows).capitalize()}:")):
        if chosen := [row for row in rows if row.papers == papers]:
            lines += ["", *([title, ""] if len(chosen) < len(rows) else []), *_claims(chosen, bool(recipe.paper))]
    if images := image_words(row for run in finished for row in attack_rows(run.arm, [(run.numbers, run.attacks)])):
        lines += ["", plain_text(f"Accuracy under attack is that on {images}.")]
    lines += _gains(gains_under_attack(rows, finals))
    lines += [f"\nDiverged: {run.arm}, seed {run.seed}: {plain_text(run.failed)}" for run in ended if run.failed]
    splits = [f"{line}\n" for line in split_lines(rows, recipe.overlap)]
    cost = _cost(finished, (alone or {}).get(recipe.name, []))
    return "\n".join([*lines, "", *_skewed(rows), *splits, cost, ""])


def _claims(rows: list[ClaimRow], has_paper: bool) -> list[str]:
    """One line per claim. Columns that none of them fills are left out, that of the paper only where there is none."""
    head = ["claim", "paper", "difference", "interval", "permutation p", "n", "verdict", "beside the paper",
            "seeds that would decide"]
    lines = [_claim(row) for row in rows]
    columns = [i for i in range(len(head)) if (i < 7 and (i != 1 or has_paper)) or any(line[i] for line in lines)]
    return [*table([head[i] for i in columns]), *(cells([line[i] for i in columns]) for line in lines)]


def _claim(row: ClaimRow) -> list[str]:
    claim, comparison, digits = row.claim, row.comparison, row.metric.digits
    numbers = claim.paper_numbers
    paper = "" if numbers is None else " -> ".join(
        alike([numbers.ours] if claim.constant is not None else [numbers.theirs, numbers.ours]))
    n = f"{comparison.n}" + (f", {len(row.diverged)} diverged" if row.diverged else "")
    look = f" at look {comparison.look} of {comparison.looks}" if comparison.look else ""
    return [claim.sentence("`{}`".format) + (", lower is better" if claim.better == "lower" else ""), paper,
            signed(comparison.mean, digits, PLAIN), interval(comparison.low, comparison.high, digits),
            p_value(comparison.p_permutation, PLAIN), n, f"**{row.verdict}**{look}",
            "" if row.beside is None else row.beside.word,
            "" if row.needed is None else needed_words(row.needed)]


def _gains(gains: Sequence[Gain]) -> list[str]:
    """Which gains under attack survive attacks that do not depend on the scale of the logits."""
    if not gains:
        return []
    return ["", gain_words(gains), "", caption_of(gains), "", *table(COLUMNS),
            *map(cells, gain_rows(gains, PLAIN))]


def _skewed(rows: Sequence[ClaimRow]) -> list[str]:
    """A warning about claims whose differences look skewed."""
    claims = [row.claim.sentence("`{}`".format).replace(" beats ", " against ") for row in rows
              if row.comparison.skewed]
    if not claims:
        return []
    return [f"Warning for {listed(claims)}: {SKEWED} ([how often](report.md#skewed-differences)).", ""]


def _cost(records: list[Record], alone: Sequence[Mapping[str, Any]]) -> str:
    """What the paper's table of training costs has."""
    try:
        devices = sorted({str(record.timing["device"]) for record in records})
        samples = records[0].timing["samples"] / max(1, records[0].trained_epochs)
        epochs = sorted({record.trained_epochs for record in records})
        memory = max(record.timing["peak_memory_mib"] for record in records)
        versions = sorted({f"torch {record.timing['torch']}" for record in records})
    except KeyError as error:
        raise RunError(f"{records[0].recipe}: the timing of a run has no {error}.") from error
    return (f"{plain_text(', '.join(devices))}; {plain_text(', '.join(versions))}; {range_words(epochs)} "
            f"{'epoch' if epochs == [1] else 'epochs'} of "
            f"{samples:,.0f} {counted_words(records[0])}; {memory:.0f} MiB at most. {_shared(records, alone)}")


def _shared(records: list[Record], alone: Sequence[Mapping[str, Any]]) -> str:
    """How many runs were trained at once (older records do not say), and the time of one that ran alone, where that was
    measured on the same device."""
    at_once = sorted({int(record.timing["at_once"]) for record in records if "at_once" in record.timing})
    epochs = sorted({int(record.timing["shared_epochs"]) for record in records if "shared_epochs" in record.timing})
    shared_words = (" Runs that begin in the same way, here or in another recipe, shared their first "
                    f"{range_words(epochs)} epochs, which are counted for each of them." if epochs else "")
    if at_once == [1]:
        return f"One run at a time.{shared_words}"
    subject = f"{range_words(at_once)} runs were trained at once: each" if at_once else "Runs that shared the card"
    devices = {str(record.timing["device"]) for record in records}
    alone_seconds = [run["seconds"] / run["epochs"] for run in alone if {run["device"]} == devices]
    if at_once and alone_seconds:
        shared_seconds = statistics.median(record.timing["seconds"] / max(1, record.trained_epochs)
                                           for record in records)
        return (f"{subject} took {shared_seconds:.2g} s per epoch (median), and one alone on the machine "
                f"{statistics.median(alone_seconds):.2g} s.{shared_words}")
    return f"{subject} took longer than one alone.{shared_words}"


def _median(values: Iterable[float | None], digits: int = 2) -> str:
    """The median, for times: a run that had to wait for others would distort a mean."""
    numbers = [value for value in values if value is not None]
    return show(statistics.median(numbers), digits, style=PLAIN) if numbers else ""


def _mean(values: Iterable[float | None], digits: int = 2) -> str:
    numbers = [value for value in values if value is not None]
    return show(statistics.fmean(numbers), digits, style=PLAIN) if numbers else ""
