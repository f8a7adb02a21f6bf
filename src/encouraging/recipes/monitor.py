"""``train.monitor``: which number chooses the best epoch, checked before any data is read."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine import Needs
from ..engine.numbers import TRAINING_LOSS
from ..errors import RecipeError, did_you_mean
from ..tasks import StageSpec


def check_monitors(needs: Needs, stages: Sequence[StageSpec]) -> None:
    """Raise a RecipeError if a stage monitors a number that is not measured after every epoch, or takes the highest
    value of a number for which lower is better."""
    names = (*needs.monitored, TRAINING_LOSS)
    lower = {TRAINING_LOSS, *(metric.path for metric in needs.metrics if metric.better == "lower")}
    for train in (stage.train for stage in stages):
        if train.monitor is None:
            continue
        if train.monitor not in names:
            declared = any(metric.path == train.monitor for metric in needs.metrics)
            why = "is measured only at the end" if declared else "is not measured after an epoch"
            raise RecipeError(f"monitor = {train.monitor!r} {why}. Expected one of {', '.join(names)}."
                              f"{did_you_mean(train.monitor, needs.monitored)}", "train")
        if train.monitor in lower and train.better == "higher":
            raise RecipeError(f"monitor = {train.monitor!r} with better = 'higher' would choose the worst epoch. Add "
                              "better = 'lower'.", "train")
