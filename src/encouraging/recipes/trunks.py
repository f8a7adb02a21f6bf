"""Arms with identical first epochs.

An arm with deferred re-weighting or a late bonus differs from the arm without it only after some epochs. Until then the
same seed gives the same weights, so these epochs are trained once: see engine/branches.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from ..data import Clock
from ..tasks import ObjectiveConfig
from ..tasks.objective import Objective
from .schema import Recipe

# Settings that may take effect at a later epoch; the curve is one, because cross-entropy is used before its bonus.
CHANGING = frozenset({"curve", "label_smoothing", "match_norm", "bonus_from_epoch", "reweight_from_epoch",
                      "reweight_beta", "changes", "bonus_divisor", "bonus"})


class Trunk(NamedTuple):
    """An arm, and the number of first epochs that it shares with another one."""

    arm: str
    epochs: int


def trunks(recipe: Recipe) -> dict[str, Trunk]:
    """For each arm that shares first epochs with earlier arms: the arm with which it shares the most. An arm that is
    equal to an earlier one is left out: it is meant to be trained twice."""
    longest_shared: dict[str, Trunk] = {}
    settings = {name: _settings(recipe, name) for name in recipe.arms}
    names = [name for name in recipe.arms if settings[name] is not None]
    for number, name in enumerate(names):
        candidates = [Trunk(other, common_epochs(recipe, name, other)) for other in names[:number]
                      if settings[other] == settings[name]]
        longest = max(candidates, key=lambda trunk: trunk.epochs, default=None)
        if longest is not None and 0 < longest.epochs < recipe.stages_of(name)[0].train.epochs:
            longest_shared[name] = longest
    return longest_shared


def common_epochs(recipe: Recipe, arm: str, other: str) -> int:
    """The number of first epochs in which two arms have the same loss."""
    first, second = (recipe.stages_of(name)[0] for name in (arm, other))
    for epoch in range(1, first.train.epochs + 1):
        if _loss_in(first.objective, epoch) != _loss_in(second.objective, epoch):
            return epoch - 1
    return first.train.epochs


def _loss_in(config: ObjectiveConfig, epoch: int) -> tuple[Objective, float | None]:
    """The loss of an epoch, and the beta of its class weights if it has any."""
    objective = config.at(Clock(1, epoch))
    if objective.weighted:
        return objective, config.reweight_beta
    return replace(objective, bonus_divisor=None), None  # without class weights it has no effect


def _settings(recipe: Recipe, arm: str) -> dict[str, Any] | None:
    """Everything that two arms must have in common apart from the loss; None if the first epochs cannot be shared."""
    stages = recipe.stages_of(arm)
    train, objective = stages[0].train, stages[0].objective
    cannot_share = (len(stages) > 1 or train.probe_every or train.conclude_on == "average"
                    or train.max_steps is not None
                    or any(change.from_update is not None for change in objective.changes))
    if cannot_share:
        return None
    config = recipe.config(arm, 0)
    fixed = objective.model_dump(mode="json", include=set(ObjectiveConfig.model_fields) - CHANGING)
    return {**{key: value for key, value in config.items() if key not in ("arm", "objectives")}, "fixed": fixed}

