"""Looks: the numbers of seeds at which claims are judged, planned before the first seed is trained.

Whoever trains more seeds until a claim is decided looks several times, and each look is another chance to be wrong. So
the looks are planned, written down, and paid for: see :mod:`~encouraging.judge.family`.
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


class Plan(NamedTuple):
    """How many seeds each look has, and which they are: a look at n is at the first n of ``seeds``. Without looks the
    claims are judged once, over all seeds that there are."""

    looks: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()


def plan_looks(existing: Sequence[int], wanted: Sequence[int] = (), looks: Sequence[int] = LOOKS) -> Plan:
    """Looks for a recipe of which some seeds are trained already.

    Seeds that exist have been seen, or could have been: they are the first look, and spend it. ``wanted`` seeds come
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
    return Plan(counts, tuple(order)[: counts[-1]])


def keep_plan(folder: Path, plan: Plan) -> Plan:
    """Write the plan into a recipe's folder, whole or not at all; one that is there already stands."""
    found = read_plan(folder)
    if found is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / LOOKS_FILE, {"schema": SCHEMA, "looks": plan.looks, "seeds": plan.seeds})
    return plan


def read_plan(folder: Path) -> Plan | None:
    """The plan of a recipe's folder, where it has one."""
    path = folder / LOOKS_FILE
    return plan_from(read_json(path), path) if path.is_file() else None


def plan_from(tree: Mapping[str, Any], source: object) -> Plan:
    """A plan as JSON holds it."""
    looks, seeds = tree.get("looks"), tree.get("seeds")
    whole = all(isinstance(part, list | tuple) and all(type(item) is int for item in part) for part in (looks, seeds))
    if not whole or not looks or looks[0] < MINIMUM or list(looks) != sorted(set(looks)):
        raise RunError(f"{source}: expected looks (rising numbers of seeds, {MINIMUM} or more) and seeds, found "
                       f"{looks!r} and {seeds!r}. Without the file the claims are judged as if nobody had looked.")
    assert seeds is not None
    return Plan(tuple(looks), tuple(seeds))


def plan_of(recipe: Recipe, records: Iterable[Record] = ()) -> Plan:
    """The looks by which the claims of these runs are judged: those that the runs kept, or the recipe's own.

    Runs from several places may have been looked at in several ways: all looks count.
    """
    plans = [plan_from(record.looks, f"a run of {record.recipe}") for record in records
             if record.looks and record.recipe == recipe.name]
    if recipe.looks:
        plans.append(Plan(recipe.looks, recipe.seeds))
    looks = sorted({n for plan in plans for n in plan.looks})
    seeds = max((plan.seeds for plan in plans), key=len, default=())
    return Plan(tuple(looks), seeds)
