"""Runs and records as numbers for :func:`encouraging.compare`: any metric of a recipe's runs, whether it has a claim or
not."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError
from ..judge.looks import LookPlan, recorded_plan
from .comparison_settings import Direction
from .numbers import listed


class ComparedRuns(NamedTuple):
    """Numbers by arm and seed, the metrics that are better when lower, the messages of runs that diverged, and the
    numbers of seeds at which the runs were judged while they were trained."""

    numbers: dict[str, dict[int, dict[str, Any]]]
    lower: dict[str, Direction]
    diverged: dict[tuple[str, int], str]
    plan: LookPlan

    @property
    def notes(self) -> list[str]:
        return [f"{arm} seed {seed} diverged" for arm, seed in self.diverged]


def numbers_of_runs(folder: Path) -> ComparedRuns:
    """The final numbers of the runs of one recipe, its arms in the recipe's order.

    Raises:
        DataError: there are no finished runs below the folder, or they belong to several recipes.
        RunError: a record is damaged, or two records of one run differ.
    """
    from ..recipes import read_runs  # imports torch, which the numbers of other sources do not need

    records = read_runs(folder, failed=True)
    names = list(dict.fromkeys(record.recipe for record in records))
    if not names:
        raise DataError(f"{folder}: expected finished runs or their records below this folder, and there are none.")
    if len(names) > 1:
        raise DataError(f"{folder}: has runs of the recipes {listed(names)}; expected those of one recipe, such as "
                        f"{folder / names[0]}.")
    finished = [record for record in records if record.failed is None]
    order = {name: index for index, name in enumerate((records[0].recipe_tree or {}).get("arms", ()))}
    numbers: dict[str, dict[int, dict[str, Any]]] = {}
    for record in sorted(finished, key=lambda record: (order.get(record.arm, len(order)), record.arm, record.seed)):
        numbers.setdefault(record.arm, {})[record.seed] = record.numbers
    lower: dict[str, Direction] = {str(metric["path"]): "lower" for record in finished[:1]
                                   for metric in record.metrics or () if metric.get("better") == "lower"}
    diverged = {(record.arm, record.seed): record.failed for record in records if record.failed is not None}
    return ComparedRuns(numbers, lower, diverged, recorded_plan(records))
