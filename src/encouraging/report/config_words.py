"""The settings of runs in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .arms import Group
from .numbers import listed, plural

USUAL = {"label_smoothing": 0.0, "match_norm": False, "bonus": False, "bonus_from_epoch": 1,
         "reweight_from_epoch": None, "margin": None}


def setup_words(group: Group) -> str:
    """Model, data and training of a recipe's runs in one sentence."""
    config = group.records[0].config
    train = (config.get("train") or [{}])[0]
    text = f"Here: {config.get('model') or config.get('task', '?')}"
    if config.get("data"):
        text += f" on {config['data']}"
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
