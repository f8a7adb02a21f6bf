"""How to reproduce the runs of a report: exact commands, or in words what no command covers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.records import Record
from ...engine.run_dir import difference
from ...errors import RecipeError
from ...recipes import Recipe, read_recipe
from ..arms import Group


def commands(group: Group) -> tuple[list[str], list[str]]:
    """Commands that reproduce these runs, and notes about what they need or do not cover."""
    name, notes = group.name, []
    words = ["encouraging", "run", name]
    if (data := str(group.records[0].config.get("data", ""))) not in ("", "digits"):
        notes.append(f"{name} needs {data}: add --download, or --data with the folder that has it.")
    try:
        shipped = read_recipe(name)
    except RecipeError:
        words[2] = f"{name}.toml"
        return [_line(words, group)], ["The recipe does not come with the package: give the path of its file.", *notes]
    overrides = _overrides(shipped, group.records)
    try:
        exact = _same(read_recipe(name, overrides), group.records)
    except RecipeError:
        exact = False
    if exact:
        words += [word for override in overrides for word in ("--set", override)]
    else:
        departures = {difference(shipped.config(record.arm, record.seed), record.config) for record in group.records
                      if record.arm in shipped.arms}
        notes += [f"These runs depart from the recipe of that name (there) in their settings (here): {text}."
                  for text in sorted(departures)[:4]] or [
                      "These runs have arms that the recipe of that name does not have."]
    return [_line(words, group)], notes


def _line(words: list[str], group: Group) -> str:
    seeds = group.seeds
    if group.recipe is not None and len(group.arms) < len(group.recipe.arms):
        words = [*words, *(word for arm in group.arms for word in ("--arm", arm.name))]
    if seeds != list(range(len(seeds))):
        words = [*words, "--seeds", ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")]
    elif group.recipe is None or len(seeds) != len(group.recipe.seeds) or group.recipe.seeds != _shipped(group.name):
        words = [*words, "--seeds", str(len(seeds))]
    return shlex.join(words)


def _shipped(name: str) -> tuple[int, ...] | None:
    try:
        return read_recipe(name).seeds
    except RecipeError:
        return None


def _same(recipe: Recipe, records: Sequence[Record]) -> bool:
    return all(record.arm in recipe.arms and recipe.config(record.arm, record.seed) == record.config
               for record in records)


def _overrides(recipe: Recipe, records: Sequence[Record]) -> list[str]:
    """The settings of training, task and data that all these runs share and that differ from the recipe's."""
    changes: dict[str, set[str]] = {}
    for record in records:
        if record.arm not in recipe.arms:
            continue
        ours, theirs = record.config, recipe.config(record.arm, record.seed)
        for key in ("data", "model", "task"):
            if ours.get(key) != theirs[key]:
                changes.setdefault(key, set()).add(json.dumps(ours.get(key)))
        for number, stages in enumerate(zip(theirs["train"], ours.get("train", []), strict=False)):
            prefix = "train" if number == 0 else f"stages.{number}.train"
            for key, value in _changed(*stages):
                changes.setdefault(f"{prefix}.{key}", set()).add(json.dumps(value))
        for key, value in _changed(theirs["options"], ours.get("options", {})):
            changes.setdefault(f"options.{key}", set()).add(json.dumps(value))
    return [f"{key}={next(iter(values))}" for key, values in changes.items() if len(values) == 1]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in after.items() if before.get(key) != value]
