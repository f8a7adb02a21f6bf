"""The table at the end of ``encouraging run``: arms, claims, verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table

from ..judge.claims import NOT_MEASURED, ClaimRow, Finals, arm_rows, claim_rows, metrics_of, own_heading
from ..judge.looks import LookPlan
from ..judge.metric_book import MetricBook, book_for
from ..judge.stats import UNDECIDED
from ..report.numbers import PLAIN, enough_digits, interval, listed, p_value, plural, plus_minus, signed
from ..report.sections.claim_words import needed_words, overall, sweep_tally
from ..report.sections.splits import split_lines
from .arm_table import NAME_WIDTH, ArmLine, arm_tables, fits, keep_lines
from .claim_notes import attack_words, awaits_attack, claim_words, in_common, missing_numbers, notes
from .long_names import LongNames

if TYPE_CHECKING:
    from ..recipes import Departures, Recipe

COLOURS = {"reproduced": "green", "contradicted": "red", "holds": "green", "fails": "red", "no difference": "cyan",
           "undecided": "yellow", "not measured": "dim"}

_NAMED = 3  # arms without runs that are named; of more the number is given
SPREAD = "mean ± standard deviation over n seeds"  # what the numbers of a table of arms are


def print_table(console: Console, recipe: Recipe, finals: Finals, plan: LookPlan | None = None,
                departures: Departures | None = None, folder: Path | None = None) -> None:
    """Print how the runs differ from the recipe, mean and deviation of every arm, and every claim's paired difference,
    interval and verdict. Arms without runs, their claims, and claims that wait for an attack on the runs in ``folder``
    are only counted."""
    from ..recipes.sweep import arm_labels  # brings torch, without which `encouraging compare` prints claims

    print_departures(console, departures)
    book = book_for(recipe)
    labels = arm_labels({name: arm.swept for name, arm in recipe.arms.items() if arm.swept})
    for table in _arms(console, recipe, finals, book, labels, departures is None or not departures.settings):
        console.print(table)
    _say(console, SPREAD)
    if absent := [labels.get(arm, arm) for arm in recipe.arms if not finals.get(arm)]:
        _say(console, _without_runs(absent))
    if recipe.claims:
        rows = [_relabelled(row, labels) for row in claim_rows(recipe, finals, book, plan, departures)]
        waiting = [row for row in rows if awaits_attack(row)]
        untrained = [row for row in rows if row not in waiting and row.verdict == NOT_MEASURED
                     and not set(absent).isdisjoint(row.claim.arms)]
        print_claims(console, [row for row in rows if row not in waiting and row not in untrained], plan,
                     "values" if labels else "claims")
        if untrained:
            are, them = ("is", "it needs") if len(untrained) == 1 else ("are", "they need")
            _say(console, f"{plural(len(untrained), 'claim')} {are} not measured: {them} arms that have no runs")
        if waiting:
            _say(console, attack_words(recipe, waiting, finals, folder))
        for line in split_lines(rows, recipe.overlap):
            console.print(line, markup=False, highlight=False)
        trained = tuple(claim for claim in recipe.claims if all(finals.get(arm) for arm in claim.arms))
        for line in missing_numbers(recipe.model_copy(update={"claims": trained}), finals):
            console.print(line, markup=False, highlight=False, style="yellow")
    elif len(recipe.arms) > 1 and not any(arm.swept for arm in recipe.arms.values()):
        (first, second, *_), metric = recipe.arms, book.compared
        console.print("no claims, so no verdicts. To have one, add to the recipe:\n"
                      f'[[claims]]\nmetric = "{metric.path}"\narm = "{second}"\nbeats = "{first}"'
                      + ('\nbetter = "lower"' if metric.better == "lower" else ""), markup=False, highlight=False)


def print_departures(console: Console, departures: Departures | None) -> None:
    """Say first why runs do not test the claims."""
    for words in departures.sentences if departures is not None else ():
        console.print(words, markup=False, highlight=False, style="yellow")


def _relabelled(row: ClaimRow, labels: Mapping[str, str]) -> ClaimRow:
    """The same row with the names by which readers know the arms of a sweep."""
    arm, beats = (labels.get(name or "", name) for name in (row.claim.arm, row.claim.beats))
    return replace(row, claim=row.claim.model_copy(update={"arm": arm, "beats": beats})) if labels else row


def _say(console: Console, words: str) -> None:
    console.print(words, markup=False, highlight=False, soft_wrap=True)


def _without_runs(arms: Sequence[str]) -> str:
    """
    >>> _without_runs(["el_1"]), _without_runs(["a", "b", "c", "d"])
    ('el_1 has no runs', '4 other arms have no runs')
    """
    if len(arms) > _NAMED:
        return f"{len(arms)} other arms have no runs"
    return f"{listed(arms)} {'has' if len(arms) == 1 else 'have'} no runs"


def _arms(console: Console, recipe: Recipe, finals: Finals, book: MetricBook, labels: Mapping[str, str],
          beside_paper: bool) -> list[Table]:
    """What the arms with runs reached; ``beside_paper``, the numbers of the paper are below ours."""
    title = recipe.name + (f" ({recipe.paper})" if recipe.paper else "")
    if swept := dict.fromkeys(arm.swept.arm for arm in recipe.arms.values() if arm.swept):
        title += f", sweep of {listed(list(swept))}"
    rows = [row for row in arm_rows(recipe, finals, book) if finals.get(row.arm)]
    # What no run has been measured on yet (attacks come after training) has no column, but its claims have their rows.
    paths = [path for path in metrics_of(recipe, book) if any(row.numbers[path].n for row in rows)]
    lines = []
    for row in rows:
        cells = [plus_minus(reached.mean, reached.std, book[path].digits, PLAIN)
                 + (f"\n[dim]paper {reached.paper:g}[/]" if beside_paper and reached.paper is not None else "")
                 for path in paths for reached in [row.numbers[path]]]
        diverged = f"\n[red]{len(row.diverged)} diverged[/]" if row.diverged else ""
        n = f"{max(reached.n for reached in row.numbers.values())}{diverged}"
        lines.append(ArmLine(labels.get(row.arm, row.arm), n, cells))
    return arm_tables(console, title, paths, lines)


def print_claims(console: Console, rows: Sequence[ClaimRow], plan: LookPlan | None = None,
                 kind: str = "claims") -> None:
    """Claims of the paper first, then others, in tables of their own; ``kind`` is what they are where all are alike."""
    judged = "95% interval of the paired differences, Holm-adjusted; + supports the claim"
    if any(row.claim.better == "lower" for row in rows):
        judged += " (where lower is better, + is a decrease)"
    both = len({row.papers for row in rows}) == 2
    common = "" if both else in_common(rows)
    named = [row.claim.arm if common else claim_words(row) for row in rows]
    alike = f"claims that these {'values' if kind == 'values' else 'arms'} beat {common}" if common else kind
    for papers, words in ((True, "claims of the paper"), (False, own_heading(rows))):
        if chosen := [(name, row) for name, row in zip(named, rows, strict=True) if row.papers == papers]:
            head = "arm" if common else "claim"
            console.print(_claims(console, chosen, head, f"{words if both else alike}: {judged}"))
            judged = "judged in the same way, together with those above"
    if plan is not None and plan.looks:
        console.print(f"planned looks at {', '.join(map(str, plan.looks))} seeds: p is multiplied by "
                      f"{len(plan.looks)}, and the intervals are wider to match", highlight=False)
    for line in notes(rows):
        console.print(line, markup=False, highlight=False, style="yellow")
    if len(rows) > 1:
        undecided = " Undecided: these seeds cannot tell." if any(row.verdict == UNDECIDED for row in rows) else ""
        sentence = sweep_tally(rows) if kind == "values" else overall(rows)
        console.print(sentence + undecided, markup=False, highlight=False)


def _claims(console: Console, rows: Sequence[tuple[str, ClaimRow]], first: str, title: str) -> Table:
    """A column per number; in a narrower terminal the interval is below its difference; in a narrow one all numbers
    are below the claim."""
    for table in (_wide_claims(rows, first, title), _wide_claims(rows, first, title, joined=True)):
        if fits(console, table):
            return table
    return _narrow_claims(rows, first, title)


def _wide_claims(rows: Sequence[tuple[str, ClaimRow]], first: str, title: str, joined: bool = False) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, overflow="fold")
    for head in (*(["difference\n(interval)"] if joined else ["difference", "interval"]), "permutation p", "n"):
        table.add_column(head, justify="right", overflow="fold")
    table.add_column("verdict", overflow="fold")
    for name, row in rows:
        difference, between, p = _numbers(row)
        numbers = ["\n".join(number for number in (difference, between) if number != PLAIN.missing) or PLAIN.missing] \
            if joined else [difference, between]
        n = f"{row.comparison.n}" + (f"\n{len(row.diverged)} diverged" if row.diverged else "")
        table.add_row(LongNames(name, NAME_WIDTH), *numbers, p, n, _verdict(row))
    keep_lines(table, range(1, len(table.columns) - 1))
    return table


def _narrow_claims(rows: Sequence[tuple[str, ClaimRow]], first: str, title: str) -> Table:
    """The same for narrow terminals: the numbers are below the claim instead of in columns."""
    table = Table(title=title, title_justify="left", show_lines=True)
    for head in (first, "verdict"):
        table.add_column(head, overflow="fold")
    for name, row in rows:
        numbers = zip(("difference", "interval", "permutation p"), _numbers(row), strict=True)
        lines = [f"{head} {number}" for head, number in numbers if number != PLAIN.missing]
        lines += [f"n {row.comparison.n}", *([f"{len(row.diverged)} diverged"] if row.diverged else [])]
        table.add_row(Group(LongNames(name), *lines), _verdict(row))
    return table


def _numbers(row: ClaimRow) -> tuple[str, str, str]:
    """The difference, its interval and the permutation p."""
    comparison, digits = row.comparison, row.metric.digits
    return (signed(comparison.mean, enough_digits([comparison.mean], digits), PLAIN),
            interval(comparison.low, comparison.high, digits), p_value(comparison.p_permutation, PLAIN))


def _verdict(row: ClaimRow) -> str:
    """The verdict, and in lines below it how the size compares with the paper's and what would decide."""
    lines = [f"[{COLOURS[row.verdict]}]{row.verdict}[/]" + (f" at look {row.comparison.look}" if row.comparison.look
                                                            else "")]
    if row.beside is not None:
        lines.append(f"[dim]{row.beside.words}[/]")
    if row.needed is not None:
        lines.append(f"[dim]{needed_words(row.needed)} seeds would decide[/]")
    return "\n".join(lines)
