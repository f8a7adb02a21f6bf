"""The scoreboard of recipes: every claim in one row, on the page, in ``docs/results.md`` and in the README.

A claim of the paper whose recipe has not been run is a row too, with the command that runs it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from ..curves import catalogue
from ..engine.records import Record
from ..judge.claims import claim_rows, finals_of
from ..judge.looks import plan_of
from ..judge.metric_book import book_for, book_of
from ..judge.scale_free import gains_under_attack
from ..recipes import Claim, Recipe, departures_of
from ..tasks import ObjectiveConfig
from .board import ScoreRow
from .sections.claim_words import namer
from .sections.reproduction import run_words
from .verdicts import NOT_MEASURED


def score_rows(recipe: Recipe, records: Sequence[Record] = ()) -> list[ScoreRow]:
    """The claims of a recipe, judged on these records of its runs, of which some may have diverged."""
    ended = [record for record in records if record.failed is None]
    book = book_of(ended) if ended else book_for(recipe)
    task = " · ".join(filter(None, [recipe.task, recipe.data]))
    departures = departures_of(recipe.name, records)
    finals = finals_of(recipe.name, records)
    rows = claim_rows(recipe, finals, book, plan_of(recipe, records), departures)
    run = _run_command(recipe, ended) if any(row.verdict == NOT_MEASURED for row in rows) else ""
    gains = {id(gain.row): gain for gain in gains_under_attack(rows, finals)}
    return [ScoreRow(row, row.claim.sentence(namer(book)), recipe.name, row.claim.source or recipe.paper, task,
                     is_primary=book.is_named_alone(row.metric), bonus=side_of_bonus(recipe, row.claim),
                     departs=departures.sentence(row.claim), gain=gains.get(id(row)), run=run) for row in rows]


def _run_command(recipe: Recipe, ended: Sequence[Record]) -> str:
    """What trains the arms that have no runs yet, in the settings of those that have."""
    unswept = [record for record in ended if record.arm in recipe.arms and recipe.arms[record.arm].swept is None]
    return shlex.join(run_words(recipe.name, unswept))


def unmeasured_rows(recipes: Mapping[str, Recipe], measured: Iterable[str]) -> list[ScoreRow]:
    """The paper's claims of the recipes without runs."""
    names = set(measured)
    return [row for name, recipe in recipes.items() if name not in names and recipe.paper and recipe.claims
            for row in score_rows(recipe) if row.papers]


def side_of_bonus(recipe: Recipe, claim: Claim) -> int:
    """1 where the claim is that a bonus helps, -1 where it is that a bonus costs something, 0 where both sides or none
    have one."""
    if claim.beats not in recipe.arms:
        return 0
    return has_bonus(recipe.arms[claim.arm]) - has_bonus(recipe.arms[claim.beats])


def has_bonus(arm: ObjectiveConfig) -> bool:
    """Whether an arm's loss has a bonus for examples that are classified well."""
    if arm.loss == "mse":
        return arm.bonus
    entry = catalogue().get(arm.curve or "")
    return entry is not None and entry.group == "bonus"
