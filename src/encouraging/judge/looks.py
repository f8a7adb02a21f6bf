"""Looks: the numbers of seeds at which claims are judged, planned before the first seed is trained.

Whoever trains more seeds until a claim is decided looks several times, and each look is another chance to be wrong. So
the looks are planned, recorded, and corrected for: see :mod:`~encouraging.judge.family`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..engine.files import LOOKS_FILE, read_json, write_json
from ..errors import RunError
from .stats import MINIMUM

if TYPE_CHECKING:
    from ..engine.records import Record
    from ..recipes import Recipe

LOOKS = (4, 8, 16, 32)
SCHEMA = 1


class LookPlan(NamedTuple):
    """The number of seeds of each look, and the seeds in order: a look at n seeds uses the first n. Without looks the
    claims are judged once, over all seeds."""

    looks: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()


def plan_looks(existing: Sequence[int], wanted: Sequence[int] = (), looks: Sequence[int] = LOOKS) -> LookPlan:
    """Looks for a recipe of which some seeds are trained already.

    Seeds that are already trained are the first look, because their results may have been seen. ``wanted`` seeds come
    next, then the lowest others.

    >>> plan_looks([]).looks, plan_looks([0, 1, 2, 3, 4]).looks, plan_looks([7], [1], [3, 5]).seeds
    ((4, 8, 16, 32), (5, 8, 16, 32), (7, 1, 0, 2, 3))
    """
    count = len(existing)
    counts = tuple(n for n in looks if n > count)
    if count >= MINIMUM:
        counts = (count, *counts)
    order = dict.fromkeys([*sorted(existing), *wanted])
    for seed in itertools.count():
        if len(order) >= counts[-1]:
            break
        order.setdefault(seed)
    return LookPlan(counts, tuple(order)[: counts[-1]])


def keep_plan(folder: Path, plan: LookPlan) -> LookPlan:
    """Write the plan into a recipe's folder, whole or not at all; an existing plan is kept and returned."""
    existing = read_plan(folder)
    if existing is not None:
        return existing
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / LOOKS_FILE, {"schema": SCHEMA, "looks": plan.looks, "seeds": plan.seeds})
    return plan


def read_plan(folder: Path) -> LookPlan | None:
    """The plan of a recipe's folder, where it has one."""
    path = folder / LOOKS_FILE
    return plan_from(read_json(path), path) if path.is_file() else None


def plan_from(tree: Mapping[str, Any], source: object) -> LookPlan:
    """A plan as JSON holds it."""
    looks, seeds = tree.get("looks"), tree.get("seeds")
    well_formed = all(isinstance(numbers, list | tuple) and all(type(number) is int for number in numbers)
                      for numbers in (looks, seeds))
    if not well_formed or not looks or looks[0] < MINIMUM or list(looks) != sorted(set(looks)):
        raise RunError(f"{source}: expected looks (rising numbers of seeds, {MINIMUM} or more) and seeds, found "
                       f"{looks!r} and {seeds!r}. Restore the file: without it the earlier looks would not be counted.")
    assert seeds is not None
    return LookPlan(tuple(looks), tuple(seeds))


def plan_of(recipe: Recipe, records: Iterable[Record] = ()) -> LookPlan:
    """The looks by which the claims of these runs are judged: those recorded with the runs, and the recipe's own.

    Runs that were made in different folders may have different plans: the looks of all plans count.
    """
    plans = [plan_from(record.looks, f"a run of {record.recipe}") for record in records
             if record.looks and record.recipe == recipe.name]
    if recipe.looks:
        plans.append(LookPlan(recipe.looks, recipe.seeds))
    return _joined(plans)


def recorded_plan(records: Iterable[Record]) -> LookPlan:
    """The looks that were recorded with these runs of one recipe."""
    return _joined([plan_from(record.looks, f"a run of {record.recipe}") for record in records if record.looks])


def _joined(plans: Sequence[LookPlan]) -> LookPlan:
    looks = sorted({n for plan in plans for n in plan.looks})
    seeds = max((plan.seeds for plan in plans), key=len, default=())
    return LookPlan(tuple(looks), seeds)
