"""The settings of runs in words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from ..tasks import ObjectiveConfig
from .arms import Group
from .numbers import listed

DEFAULTS = ObjectiveConfig.defaults(("label_smoothing", "match_norm", "bonus", "bonus_from_epoch",
                                     "reweight_from_epoch", "margin"))  # not shown


def setup_rows(group: Group) -> list[tuple[str, str]]:
    """What the runs of a recipe have in common, as names and values."""
    config = group.records[0].config
    stages = [_training(train) for train in config.get("train") or () if "epochs" in train]
    rows = [("task", config.get("task")), ("data", config.get("data")), ("model", config.get("model"))]
    for name in dict.fromkeys(name for stage in stages for name in stage):
        values = [str(stage[name]) for stage in stages if stage.get(name)]
        if values != ["fp32"] * len(values):  # everybody's default
            rows.append((name, ", then ".join(values if len(set(values)) > 1 else values[:1])))
    rows += [("arms", len(group.arms)), ("seeds", len(group.seeds))]
    return [(name, str(value)) for name, value in rows if value]


def _training(train: Mapping[str, Any]) -> dict[str, Any]:
    """The training of a stage, as names and values."""
    length = ("updates", train["max_steps"]) if train.get("max_steps") else ("epochs", train["epochs"])
    return dict([length]) | {
        "optimizer": train.get("optimizer"), "learning rate": f"{train.get('lr', '?')}{_schedule(train)}",
        "batch size": train.get("batch_size"), "precision": train.get("precision", "fp32")}


def _schedule(train: Mapping[str, Any]) -> str:
    """
    >>> _schedule({"schedule": "multistep", "milestones": [51, 65], "gamma": 0.1})
    ' (times 0.1 from epochs 51 and 65)'
    >>> _schedule({"schedule": "step", "every": 2.4, "gamma": 0.97})
    ' (times 0.97 every 2.4 epochs)'
    """
    schedule = train.get("schedule", "constant")
    if schedule == "multistep":
        steps = train.get("milestone_steps")
        where = f"updates {listed([str(m) for m in steps])}" if steps else (
            f"epochs {listed([str(m) for m in train['milestones']])}")
        return f" (times {train['gamma']:g} from {where})"
    if schedule == "step":
        return f" (times {train['gamma']:g} every {train['every']:g} epochs)"
    return "" if schedule == "constant" else f" ({str(schedule).replace('_', ' ')} schedule)"


def loss_words(config: Mapping[str, Any]) -> str:
    """The loss of an arm, as its settings have it.

    >>> loss_words({"objectives": [{"loss": "curve", "curve": "encouraging", "log_end": 1.0, "label_smoothing": 0.1}]})
    'encouraging, log_end 1, label_smoothing 0.1'
    """
    objective = dict((config.get("objectives") or [{}])[0])
    squared = objective.pop("loss", "curve") == "mse"
    curve = objective.pop("curve", "?")
    if not squared:
        objective.pop("link", None)
    if objective.get("reweight_from_epoch") is None:
        objective.pop("reweight_beta", None)
    words = ["squared error" if squared else str(curve)]
    for key, value in objective.items():
        if key not in DEFAULTS or value != DEFAULTS[key]:
            words.append(key if value is True else f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}")
    return ", ".join(words)


def arm_words(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Every arm's loss, the arm whose weights it starts from, and what its stages do where arms differ in that. Where
    two arms would get the same words, the settings in which they differ are added.

    >>> loss = {"objectives": [{"curve": "cross_entropy"}]}
    >>> arm_words({"ce": loss, "crt": {**loss, "after": "ce", "stages": [{"reset": ["head"], "freeze": ["body"]}]}})
    {'ce': 'cross_entropy', 'crt': 'cross_entropy, starts from ce, head starts anew, body is fixed'}
    >>> arm_words({"slow": {**loss, "train": [{"lr": 0.1}]}, "fast": {**loss, "train": [{"lr": 0.4}]}})
    {'slow': 'cross_entropy, lr 0.1', 'fast': 'cross_entropy, lr 0.4'}
    """
    staged = len({str(config.get("stages")) for config in configs.values()}) > 1
    words = {}
    for name, config in configs.items():
        start = [f"starts from {config['after']}"] if config.get("after") else []
        words[name] = ", ".join([loss_words(config), *start, *(_stage_words(config) if staged else ())])
    for same in set(words.values()):
        alike = {name: _settings(configs[name]) for name in words if words[name] == same}
        differing = [key for key in dict.fromkeys(chain(*alike.values()))
                     if len({str(settings.get(key)) for settings in alike.values()}) > 1]
        for name, settings in alike.items():
            words[name] = ", ".join([same, *(f"{key.rpartition('.')[2]} {_value(settings[key])}" for key in differing
                                             if settings.get(key) is not None)])
    return words


def _stage_words(config: Mapping[str, Any]) -> list[str]:
    words = []
    for stage in config.get("stages") or ():
        words += [f"{part} starts anew" for part in stage.get("reset", ())]
        words += [f"{part} is fixed" for part in stage.get("freeze", ())]
        sampling = (stage.get("sampling") or {}).get("kind", "shuffled")
        words += [f"{str(sampling).replace('_', '-')} batches"] if sampling != "shuffled" else []
    return words


def _settings(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """All values of a config by their dotted path, without recipe, arm and seed."""
    settings: dict[str, Any] = {}
    for key, value in config.items():
        if not path and key in ("recipe", "arm", "seed"):
            continue
        if isinstance(value, list) and value and all(isinstance(stage, Mapping) for stage in value):
            value = {str(number): stage for number, stage in enumerate(value)}
        if isinstance(value, Mapping):
            settings |= _settings(value, f"{path}{key}.")
        else:
            settings[f"{path}{key}"] = value
    return settings


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
