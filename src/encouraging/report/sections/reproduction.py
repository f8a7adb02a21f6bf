"""How to reproduce the runs of a report: exact commands, or in words what no command covers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...engine.records import Record
from ...engine.run_dir import difference
from ...errors import RecipeError
from ...recipes import Recipe, read_recipe
from ...recipes.departures import overrides_of
from ...recipes.sweep import sweep_recipe
from ..arms import Arm, Group
from ..numbers import listed
from .attack_commands import attack_commands
from .sweep import Sweep, sweeps_of

OWN_FILE = "The recipe does not come with the package: give the path of its file."


def commands(group: Group) -> tuple[list[str], list[str]]:
    """Commands that reproduce these runs, and notes about what they do not cover."""
    name = group.name
    unswept = [arm for arm in group.arms if arm.swept is None]
    sweeps = sweeps_of(group)
    try:
        read_recipe(name)
    except RecipeError:
        words, more_notes = _from_file(name, group.records)
        lines = [_line(words, unswept, group)] if unswept else []
        lines += [_line([*words, *_sweep_words(sweep)], sweep.arms, group, True) for sweep in sweeps]
        return [*lines, *attack_commands(group)], more_notes
    lines, notes = list[str](), list[str]()
    if any(arm not in sweep.references for arm in unswept for sweep in sweeps) or not sweeps:
        words, more_notes = _exact_command(["encouraging", "run", name], lambda overrides: read_recipe(name, overrides),
                                           [record for arm in unswept for record in arm.records])
        lines.append(_line(words, unswept, group))
        notes += more_notes
    for sweep in sweeps:
        records = [record for arm in (*sweep.references, *sweep.arms) for record in arm.records]
        words, more_notes = _exact_command(["encouraging", "run", name, *_sweep_words(sweep)],
                                           _swept_recipe(name, sweep), records)
        lines.append(_line(words, sweep.arms, group, True))
        notes += more_notes
    return [*lines, *attack_commands(group)], notes


def needed_data(groups: Sequence[Group]) -> list[str]:
    """A note on the datasets of all these commands; none for the digits, which come with the package."""
    needed = sorted({str(group.records[0].config.get("data", "")) for group in groups} - {"", "digits"})
    if not needed:
        return []
    them = "it" if len(needed) == 1 else "them"
    return [f"Runs need {'the dataset' if len(needed) == 1 else 'the datasets'} {listed(needed)}: add `--download`, or "
            f"`--data` with the folder that has {them}, to `encouraging run`."]


def run_words(name: str, records: Sequence[Record]) -> list[str]:
    """The words of a command that trains a recipe in the settings of these runs of it, as far as one command can."""
    if not records:
        return ["encouraging", "run", name]
    try:
        read_recipe(name)
    except RecipeError:
        return _from_file(name, records)[0]
    return _exact_command(["encouraging", "run", name], lambda overrides: read_recipe(name, overrides), records)[0]


def _from_file(name: str, records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """The words of a command that runs a recipe that does not come with the package, with the overrides that its runs
    noted; and notes."""
    noted = [overrides_of(record) for record in records]
    first = noted[0]
    if first is None or any(overrides is None or (overrides.file, overrides.given) != (first.file, first.given)
                            for overrides in noted):
        sets = sorted({" ".join(f"--set {shlex.quote(override)}" for override in overrides.given)
                       for overrides in noted if overrides})
        mixed = [f"Some of these runs were made with {text}." for text in sets]
        return ["encouraging", "run", f"{name}.toml"], [OWN_FILE, *mixed]
    words = ["encouraging", "run", first.file, *(word for override in first.given for word in ("--set", override))]
    return words, [OWN_FILE] if first.file.endswith(".toml") else []


def _exact_command(words: list[str], read: Callable[[Sequence[str]], Recipe],
                   records: Sequence[Record]) -> tuple[list[str], list[str]]:
    """The words of a command with the settings in which these runs differ from the recipe; and notes where no settings
    would give exactly these runs."""
    shipped = read(())
    overrides = _overrides(shipped, records)
    try:
        exact = _gives_the_same(read(overrides), records)
    except RecipeError:
        exact = False
    if exact:
        return [*words, *(word for override in overrides for word in ("--set", override))], []
    departures = {difference(shipped.config(record.arm, record.seed), record.config, most=None) for record in records
                  if record.arm in shipped.arms}
    return words, [f"These runs depart from the recipe of that name (there) in their settings (here): {text}."
                   for text in sorted(departures)[:4]] or [
                       "These runs have arms that the recipe of that name does not have."]


def _sweep_words(sweep: Sweep) -> list[str]:
    texts = [f"{key}={','.join(_toml(value) for value in sweep.values(number))}"
             for number, key in enumerate(sweep.keys)]
    return [*(word for text in texts for word in ("--sweep", text)),
            *(word for base in sweep.bases for word in ("--arm", base))]


def _swept_recipe(name: str, sweep: Sweep) -> Callable[[Sequence[str]], Recipe]:
    texts = _sweep_words(sweep)[1:2 * len(sweep.keys):2]
    return lambda overrides: sweep_recipe(read_recipe(name, overrides), texts, sweep.bases)[0]


def _toml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _line(words: list[str], arms: Sequence[Arm], group: Group, swept: bool = False) -> str:
    seeds = sorted({seed for arm in arms for seed in arm.finals})
    all_arms = [arm for arm in group.recipe.arms.values() if arm.swept is None] if group.recipe else []
    if len(arms) < len(all_arms) and not swept:
        words = [*words, *(word for arm in arms for word in ("--arm", arm.name))]
    if seeds != list(range(len(seeds))):
        words = [*words, "--seeds", ",".join(map(str, seeds)) + ("," if len(seeds) == 1 else "")]
    elif (group.recipe is None or len(seeds) != len(group.recipe.seeds)
          or group.recipe.seeds != _shipped_seeds(group.name)):
        words = [*words, "--seeds", str(len(seeds))]
    return shlex.join(words)


def _shipped_seeds(name: str) -> tuple[int, ...] | None:
    try:
        return read_recipe(name).seeds
    except RecipeError:
        return None


def _gives_the_same(recipe: Recipe, records: Sequence[Record]) -> bool:
    return all(record.arm in recipe.arms and recipe.config(record.arm, record.seed) == record.config
               for record in records)


def _overrides(recipe: Recipe, records: Sequence[Record]) -> list[str]:
    """The settings of training, task, model and data that all these runs share and that differ from the recipe's."""
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
        for table in ("options", "model_options"):
            for key, value in _changed(theirs.get(table, {}), ours.get(table, {})):
                changes.setdefault(f"{table}.{key}", set()).add(json.dumps(value))
    return [f"{key}={next(iter(values))}" for key, values in changes.items() if len(values) == 1]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in after.items() if before.get(key) != value]
