"""Finished runs by the recipe that they belong to, which is not always the one of their name.

Recipes change, but runs keep the name and the settings of their time. If a recipe of the package has ``formerly`` set
to that name, and has exactly these settings, the runs count as its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from ..engine.records import Record, read_records
from ..engine.run_dir import difference
from ..errors import RunError
from .read import names, read_recipe
from .schema import Recipe


def read_runs(*folders: str | Path, failed: bool = False) -> list[Record]:
    """Every finished run below these folders, sorted by recipe, arm and seed; with ``failed`` also those that diverged.

    Raises:
        RunError: a file is damaged, or two runs of one recipe, arm and seed have different settings or numbers.
    """
    return by_recipe(read_records(*folders, failed=failed))


def by_recipe(records: Iterable[Record]) -> list[Record]:
    """The records under the names of the recipes that they belong to; different runs of one recipe, arm and seed are
    refused."""
    runs: dict[tuple[str, str, int], Record] = {}
    for record in records:
        record = _with_current_name(record)
        earlier = runs.get(record.key)
        if earlier is not None and record.failed is not None:
            continue
        if earlier is not None and earlier.failed is None \
                and (earlier.config, earlier.final) != (record.config, record.final):
            raise RunError(f"two runs of {record.recipe}, {record.arm}, seed {record.seed} differ "
                           f"({difference(earlier.config, record.config)}). Give only one of them.")
        runs[record.key] = record
    return [runs[key] for key in sorted(runs)]


def _with_current_name(record: Record) -> Record:
    if record.recipe not in names() or _fits(read_recipe_once(record.recipe), record):
        return record
    for name in names():
        recipe = read_recipe_once(name)
        if recipe.formerly == record.recipe and _fits(recipe, record):
            return replace(record, config={**record.config, "recipe": name})
    return record


def _fits(recipe: Recipe, record: Record) -> bool:
    """Whether the run has this recipe's settings, apart from the name."""
    if record.arm not in recipe.arms:
        return False
    return recipe.config(record.arm, record.seed) == {**record.config, "recipe": recipe.name}


@cache
def read_recipe_once(name: str) -> Recipe:
    return read_recipe(name)
