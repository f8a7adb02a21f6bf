"""How to make the runs of a report again: exact commands, and what they were made on."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ..engine.records import Record
from ..engine.run_dir import difference
from ..errors import RecipeError
from ..recipes import Recipe, read_recipe
from .arms import Group, listed, plural, show
from .sections import Cell, Table


def commands(group: Group) -> tuple[list[str], list[str]]:
    """Commands that make these runs, and in words where no command does."""
    name, notes = group.name, []
    words = ["encouraging", "run", name]
    if (data := str(group.records[0].asked.get("data", ""))) not in ("", "digits"):
        notes.append(f"{name} needs {data}: add --download, or --data with the folder that has it.")
    try:
        shipped = read_recipe(name)
    except RecipeError:
        words[2] = f"{name}.toml"
        return [_line(words, group)], ["The recipe does not come with the package: give the path of its file.", *notes]
    sets = _overrides(shipped, group.records)
    try:
        exact = _same(read_recipe(name, sets), group.records)
    except RecipeError:
        exact = False
    if exact:
        words += [word for override in sets for word in ("--set", override)]
    else:
        found = {difference(shipped.config(arm, seed), record.asked) for record in group.records
                 for _, arm, seed in [record.place] if arm in shipped.arms}
        notes += [f"These runs depart from the recipe of that name (there) in their settings (here): {text}."
                 for text in sorted(found)[:4]] or ["These runs have arms that the recipe of that name has not."]
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
    return all(arm in recipe.arms and recipe.config(arm, seed) == record.asked
               for record in records for _, arm, seed in [record.place])


def _overrides(recipe: Recipe, records: Sequence[Record]) -> list[str]:
    """The settings of training, task and data that all these runs share and the recipe has otherwise."""
    found: dict[str, set[str]] = {}
    for record in records:
        _, arm, seed = record.place
        if arm not in recipe.arms:
            continue
        asked = recipe.config(arm, seed)
        for key in ("data", "model", "task"):
            if record.asked.get(key) != asked[key]:
                found.setdefault(key, set()).add(json.dumps(record.asked.get(key)))
        for place, stages in enumerate(zip(asked["train"], record.asked.get("train", []), strict=False)):
            prefix = "train" if place == 0 else "stage2.train"
            for key, value in _changed(*stages):
                found.setdefault(f"{prefix}.{key}", set()).add(json.dumps(value))
        for key, value in _changed(asked["options"], record.asked.get("options", {})):
            found.setdefault(f"options.{key}", set()).add(json.dumps(value))
    return [f"{key}={next(iter(values))}" for key, values in found.items() if len(values) == 1]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in after.items() if before.get(key) != value]


def machines(groups: Sequence[Group]) -> Table:
    """What the runs cost, and on what."""
    rows = []
    for group in groups:
        timing = [record.timing for record in group.records]
        seconds = [float(t["seconds"]) for t in timing if "seconds" in t]
        memory = [float(t["peak_memory_mib"]) for t in timing if "peak_memory_mib" in t]
        devices = sorted({str(t["device"]) for t in timing if "device" in t})
        versions = [f"{name} {', '.join(found)}" for name in ("encouraging", "torch", "python")
                    if (found := sorted({str(t[name]) for t in timing if name in t}))]
        rows.append([Cell(group.name), Cell(str(len(timing)), f"seeds {_seeds(group.seeds)}"),
                     Cell(f"{show(fmean(seconds), 1)} s", f"{show(sum(seconds) / 60, 1)} min in all") if seconds
                     else Cell("–"), Cell(f"{show(max(memory), 0)} MiB") if memory else Cell("–"),
                     Cell(listed(devices) or "–", ", ".join(versions), True)])
    return Table("What a run cost: the mean time, and the most memory that any run had in use. Runs that share a "
                 "device take longer than one alone.",
                 ["recipe", "runs", "time a run", "memory", "machine"], rows)


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return listed([str(seed) for seed in seeds])


def setting(group: Group) -> str:
    """The recipe in a sentence, from what was asked for."""
    asked = group.records[0].asked
    train = (asked.get("train") or [{}])[0]
    text = f"Here: {asked.get('model', '?')} on {asked.get('data', '?')}"
    if "epochs" in train:
        text += (f", {plural(train['epochs'], 'epoch')} with {train.get('optimizer', '?')} at a learning rate of "
                 f"{train.get('lr', '?')}{_schedule(train)}, batches of {train.get('batch_size', '?')}")
        if train.get("precision", "fp32") != "fp32":
            text += f", in {train['precision']}"
    return f"{text}; {plural(len(group.arms), 'arm')} with {plural(len(group.seeds), 'seed')}."


def _schedule(train: Mapping[str, Any]) -> str:
    """
    >>> _schedule({"schedule": "multistep", "milestones": [51, 65], "gamma": 0.1})
    ' (times 0.1 from epochs 51 and 65)'
    """
    kind = train.get("schedule", "constant")
    if kind == "multistep":
        return f" (times {train['gamma']:g} from epochs {listed([str(m) for m in train['milestones']])})"
    return "" if kind == "constant" else f" ({str(kind).replace('_', ' ')} schedule)"


def loss_words(asked: Mapping[str, Any]) -> str:
    """What an arm teaches, as its request has it.

    >>> loss_words({"objectives": [{"loss": "curve", "curve": "encouraging", "log_end": 1.0, "label_smoothing": 0.1}]})
    'encouraging, log_end 1, label_smoothing 0.1'
    """
    objective = dict((asked.get("objectives") or [{}])[0])
    squared = objective.pop("loss", "curve") == "mse"
    curve = objective.pop("curve", "?")
    usual = {"label_smoothing": 0.0, "match_norm": False, "bonus": False, "bonus_from_epoch": 1,
             "reweight_from_epoch": None, "margin": None}
    if not squared:
        objective.pop("link", None)
    if objective.get("reweight_from_epoch") is None:
        objective.pop("reweight_beta", None)
    words = ["squared error" if squared else str(curve)]
    for key, value in objective.items():
        if key not in usual or value != usual[key]:
            words.append(key if value is True else f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}")
    return ", ".join(words)
