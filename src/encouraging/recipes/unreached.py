"""Changes of an arm's loss in an epoch that its training never reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..tasks import ObjectiveConfig
from .schema import Recipe

CONSEQUENCES = {"reweight_from_epoch": "class weights are never used", "bonus_from_epoch": "the bonus never begins",
                "changes.from_epoch": "the change never happens"}


def unreached(recipe: Recipe, arms: Sequence[str] = ()) -> Iterator[str]:
    """One line per epoch that no stage of an arm reaches. This is not an error: a short trial of a recipe reaches few
    of them, and in a sweep over the epoch the last value may mean never.

    Args:
        recipe: the recipe.
        arms: which of its arms; all by default.
    """
    arms_by_start: dict[tuple[str, int, int], list[str]] = {}
    for arm in arms or recipe.arms:
        stages = recipe.stages_of(arm)
        for key, epoch in dict.fromkeys(start for stage in stages for start in _starts(stage.objective)):
            last = max(stage.train.epochs for stage in stages if (key, epoch) in _starts(stage.objective))
            if epoch > last > 0:
                arms_by_start.setdefault((key, epoch, last), []).append(arm)
    for (key, epoch, last), named in arms_by_start.items():
        yield f"{key} = {epoch} ({', '.join(named)}) is after the last epoch, which is {last}: {CONSEQUENCES[key]}"


def _starts(objective: ObjectiveConfig) -> list[tuple[str, int]]:
    """The keys that start a change, each with its epoch."""
    starts = [("reweight_from_epoch", objective.reweight_from_epoch), ("bonus_from_epoch", objective.bonus_from_epoch),
              *(("changes.from_epoch", change.from_epoch) for change in objective.changes)]
    return [(key, epoch) for key, epoch in starts if epoch is not None]
