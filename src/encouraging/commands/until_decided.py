"""``encouraging run --until-decided``: train more seeds, look by look, until every claim is decided.

The looks are planned and written down before the first seed, and p is adjusted for all of them, so it does not matter
at which look the training ends (:mod:`encouraging.judge.family`). A look is taken when all of its runs have ended; what
was decided follows from the run directories alone, so an interrupted command continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from ..engine import RunDir
from ..engine.records import read_records
from ..engine.sweep import Event
from ..errors import RecipeError
from ..judge.claims import NOT_MEASURED, ClaimRow, claim_rows, finals_of
from ..judge.looks import LOOKS, LookPlan, keep_plan, plan_looks, read_plan
from ..judge.metric_book import book_for
from ..judge.stats import UNDECIDED
from ..recipes import Recipe
from ..recipes.grid import Job
from ..report.numbers import plural
from .attack_plan import attack_command
from .claim_notes import is_about_attacks
from .progress import ProgressDisplay


def check_until_decided(recipe: Recipe, arms: Sequence[str], seeds: str | None) -> None:
    """Refuse what does not go together with planned looks."""
    if not recipe.claims:
        raise RecipeError(f"--until-decided: {recipe.name} makes no claims that could be decided. Add [[claims]], or "
                          "say with --seeds how many to train.")
    for flag, given in (("--arm", arms), ("--seeds", seeds)):
        if given:
            raise RecipeError(f"--until-decided with {flag}: the looks are at every arm and at {_listed(LOOKS)} seeds. "
                              f"Leave out one of the two; a recipe can have looks of its own: looks = [3, 6, 12].")


def make_plan(recipe: Recipe, folder: Path) -> LookPlan:
    """The plan of a recipe's folder; where there is none yet, it is made and written."""
    plan = read_plan(folder)
    if plan is not None:
        return plan
    finals = finals_of(recipe.name, read_records(folder, failed=True)) if folder.is_dir() else {}
    existing = {seed for claim in recipe.claims
                for seed in set.intersection(*(set(finals.get(arm, {})) for arm in claim.arms))}
    return keep_plan(folder, plan_looks(sorted(existing), recipe.seeds, recipe.looks or LOOKS))


def train_to_looks(recipe: Recipe, grid: Sequence[Job], folder: Path, train: Callable[[list[Job]], ProgressDisplay],
                   agree: Callable[[Callable[[], bool]], bool], console: Console) -> ProgressDisplay:
    """Train the seeds of one look after another. Ends when no claim is undecided, when a run did not end, or after the
    last look; claims that wait for an attack on the runs do not count as undecided. Returns the display of the last
    training, with all runs that failed. ``agree`` broadcasts rank 0's answer to all ranks."""
    failed: list[Event] = []
    before = 0
    arms = plural(len({job.arm for job in grid}), "arm")
    finished = sum(RunDir(job.folder).done for job in grid)
    are = "is" if finished == 1 else "are"
    console.print(f"up to {len(grid)} runs ({arms}, {recipe.looks[-1]} seeds), of which {finished} {are} finished; the "
                  f"claims are judged at {_listed(recipe.looks)} seeds, and training ends as soon as all are decided",
                  highlight=False, soft_wrap=True)
    for count in recipe.looks:
        display = train([job for job in grid if job.seed in recipe.seeds[before:count]])
        failed, display.failed = [*failed, *display.failed], [*failed, *display.failed]
        jobs = [job for job in grid if job.seed in recipe.seeds[:count]]
        if display.stopped or agree(partial(_is_finished, recipe, jobs, count, folder, console)):
            break
        before = count
    return display


def _is_finished(recipe: Recipe, jobs: Sequence[Job], count: int, folder: Path, console: Console) -> bool:
    """Whether the training ends after this look: one of its runs did not end, or no claim is undecided."""
    if not all(RunDir(job.folder).done or RunDir(job.folder).diverged for job in jobs):
        return True
    plan = LookPlan(recipe.looks, recipe.seeds[:count])  # later seeds may exist already, and must not count
    rows = claim_rows(recipe, finals_of(recipe.name, read_records(folder, failed=True)),
                      book_for(recipe), plan)
    waiting = [row for row in rows if _is_unmeasured(row, count)]
    undecided = sum(row.verdict == UNDECIDED for row in rows if row not in waiting)
    unmeasured = f", {len(waiting)} not measured" if waiting else ""
    console.print(f"look {recipe.looks.index(count) + 1} of {len(recipe.looks)}, {count} seeds: {undecided} of "
                  f"{len(rows)} claims undecided{unmeasured}", highlight=False)
    if waiting and not undecided:
        console.print(f"{plural(len(waiting), 'claim')} {'is' if len(waiting) == 1 else 'are'} not measured: "
                      + _advice(recipe, waiting, folder), markup=False, highlight=False, soft_wrap=True)
    return undecided == 0


def _is_unmeasured(row: ClaimRow, count: int) -> bool:
    """Whether a claim has no numbers at all, or is undecided and lacks those under attack of some of these seeds."""
    if row.verdict == UNDECIDED and is_about_attacks(row):
        return len(row.pairs.seeds) + len({seed for _, seed in row.diverged}) < count
    return row.verdict == NOT_MEASURED


def _advice(recipe: Recipe, waiting: Sequence[ClaimRow], folder: Path) -> str:
    if any(is_about_attacks(row) for row in waiting):
        return f"run `{attack_command(recipe, folder)}`, then this command again"
    return "no run has a number of both sides, and more seeds would not change that"


def _listed(looks: Sequence[int]) -> str:
    return ", ".join(map(str, looks))
