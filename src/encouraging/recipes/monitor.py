"""``train.monitor``: which number chooses the best epoch, checked before any data is read."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine import Needs
from ..engine.numbers import TRAINING_LOSS
from ..errors import RecipeError, did_you_mean
from ..tasks import StageSpec


def check_monitors(needs: Needs, stages: Sequence[StageSpec]) -> None:
    """Raise a RecipeError if a stage monitors a number that is not measured after every epoch, would choose the worst
    epoch, or does not say whether lower or higher is better where the task does not either. Without ``monitor`` the
    direction is that of the primary metric, and another one would be ignored."""
    names = (*needs.monitored, TRAINING_LOSS)
    directions = {metric.path: metric.better for metric in needs.metrics} | {TRAINING_LOSS: "lower"}
    for train in (stage.train for stage in stages):
        if train.monitor is None:
            primary = needs.primary
            if primary is not None and "better" in train.model_fields_set and train.better != primary.better:
                raise RecipeError(f"better = {train.better!r} without monitor: the best epoch is that of "
                                  f"{primary.path!r}, which is better when {primary.better}. Add the monitor that is "
                                  "meant, or leave better out.", "train")
            continue
        if train.monitor not in names:
            why = "is measured only at the end" if train.monitor in directions else "is not measured after an epoch"
            raise RecipeError(f"monitor = {train.monitor!r} {why}. Expected one of {', '.join(names)}."
                              f"{did_you_mean(train.monitor, needs.monitored)}", "train")
        better = directions.get(train.monitor)
        if better is None and "better" not in train.model_fields_set:
            raise RecipeError(f"monitor = {train.monitor!r}: the task does not say whether it is better when higher or "
                              "lower. Add better = 'higher' or better = 'lower'.", "train")
        if better is not None and better != train.better:
            raise RecipeError(f"monitor = {train.monitor!r} with better = {train.better!r} would choose the worst "
                              f"epoch. Add better = {better!r}.", "train")
