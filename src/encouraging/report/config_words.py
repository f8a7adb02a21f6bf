"""The settings of runs in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .arms import Group
from .numbers import listed

USUAL = {"label_smoothing": 0.0, "match_norm": False, "bonus": False, "bonus_from_epoch": 1,
         "reweight_from_epoch": None, "margin": None}


def setup_rows(group: Group) -> list[tuple[str, str]]:
    """What the runs of a recipe have in common, as names and values."""
    config = group.records[0].config
    train = (config.get("train") or [{}])[0]
    rows = [("task", config.get("task")), ("data", config.get("data")), ("model", config.get("model"))]
    if "epochs" in train:
        length = ("updates", train["max_steps"]) if train.get("max_steps") else ("epochs", train["epochs"])
        rows += [length, ("optimizer", train.get("optimizer")),
                 ("learning rate", f"{train.get('lr', '?')}{_schedule(train)}"),
                 ("batch size", train.get("batch_size"))]
        if train.get("precision", "fp32") != "fp32":
            rows.append(("precision", train["precision"]))
    rows += [("arms", len(group.arms)), ("seeds", len(group.seeds))]
    return [(name, str(value)) for name, value in rows if value]


def _schedule(train: Mapping[str, Any]) -> str:
    """
    >>> _schedule({"schedule": "multistep", "milestones": [51, 65], "gamma": 0.1})
    ' (times 0.1 from epochs 51 and 65)'
    """
    kind = train.get("schedule", "constant")
    if kind == "multistep":
        at = train.get("milestone_steps")
        where = f"updates {listed([str(m) for m in at])}" if at else (
            f"epochs {listed([str(m) for m in train['milestones']])}")
        return f" (times {train['gamma']:g} from {where})"
    return "" if kind == "constant" else f" ({str(kind).replace('_', ' ')} schedule)"


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
        if key not in USUAL or value != USUAL[key]:
            words.append(key if value is True else f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}")
    return ", ".join(words)
