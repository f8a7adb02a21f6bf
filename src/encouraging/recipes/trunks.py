"""Arms that begin alike.

Deferred re-weighting and a late bonus differ from the arm without them only from an epoch on. Until then the same seed
gives the same weights, so the beginning is trained once: see engine/branches.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..data import Clock
from ..tasks import ObjectiveConfig
from ..tasks.objective import Objective
from .schema import Recipe

# What may begin at an epoch, and the curve that is not in force before its bonus begins.
CHANGING = frozenset({"curve", "label_smoothing", "match_norm", "bonus_from_epoch", "reweight_from_epoch",
                      "reweight_beta", "changes", "bonus_divisor", "bonus"})


class Trunk(NamedTuple):
    """An arm, and how many first epochs it has in common with another one."""

    arm: str
    epochs: int


def trunks(recipe: Recipe) -> dict[str, Trunk]:
    """For each arm that begins as an earlier one does: the one with which it has the most epochs in common. An arm that
    does not differ from an earlier one is there to be trained twice."""
    found: dict[str, Trunk] = {}
    settings = {name: _settings(recipe, name) for name in recipe.arms}
    names = [name for name in recipe.arms if settings[name] is not None]
    for number, name in enumerate(names):
        candidates = [Trunk(other, common_epochs(recipe, name, other)) for other in names[:number]
                      if settings[other] == settings[name]]
        longest = max(candidates, key=lambda trunk: trunk.epochs, default=None)
        if longest is not None and 0 < longest.epochs < recipe.stages_of(name)[0].train.epochs:
            found[name] = longest
    return found


def common_epochs(recipe: Recipe, arm: str, other: str) -> int:
    """How many first epochs two arms teach the same."""
    first, second = (recipe.stages_of(name)[0] for name in (arm, other))
    for epoch in range(1, first.train.epochs + 1):
        if _taught(first.objective, epoch) != _taught(second.objective, epoch):
            return epoch - 1
    return first.train.epochs


def _taught(objective: ObjectiveConfig, epoch: int) -> tuple[Objective, float | None]:
    """What is in force in an epoch, and the beta of its class weights where it has some."""
    now = objective.at(Clock(1, epoch))
    if now.weighted:
        return now, objective.reweight_beta
    return replace(now, bonus_divisor=None), None  # it says how class weights divide


def _settings(recipe: Recipe, arm: str) -> dict[str, Any] | None:
    """All that two arms must have in common beside what they teach; None where the beginning cannot be shared."""
    stages = recipe.stages_of(arm)
    train, objective = stages[0].train, stages[0].objective
    alone = (len(stages) > 1 or train.probe_every or train.conclude_on == "average" or train.max_steps is not None
             or any(change.from_update is not None for change in objective.changes))
    if alone:
        return None
    config = recipe.config(arm, 0)
    fixed = objective.model_dump(mode="json", include=set(ObjectiveConfig.model_fields) - CHANGING)
    return {**{key: value for key, value in config.items() if key not in ("arm", "objectives")}, "fixed": fixed}

