"""What the report shows of the runs: arms with all their seeds, or a single model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..engine.records import Record
from ..errors import RunError
from ..judge.claims import number_at
from ..judge.metric_book import MetricBook, book_of
from ..judge.stats import Mean, mean_of
from ..metrics import summary
from ..recipes import Departures, Recipe, departures_of
from ..recipes.schema import Swept
from ..recipes.sweep import arm_labels
from .drawing.panels import Key
from .drawing.style import COLOURS, Dash, look
from .drawing.svg import TAG
from .numbers import plural

_PICKED = 5  # arms beside the first one that are shown until the reader picks others


@dataclass(frozen=True)
class Arm:
    """One side of a comparison with the results of all its seeds; or a single model."""

    name: str
    colour: str
    dashes: str | Dash
    finals: dict[int, Mapping[str, Any]]
    diagnoses: list[Mapping[str, Any]] = field(default_factory=list)
    epochs: list[list[dict[str, Any]]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    swept: Swept | None = None
    tag: str | None = None  # what names its lines and panels, where the reader picks arms

    @property
    def key(self) -> Key:
        return Key(self.name, self.colour, self.dashes, tag=self.tag)

    @property
    def starts_from(self) -> str | None:
        """The arm whose finished weights its runs start from."""
        return next((str(record.config["after"]) for record in self.records if record.config.get("after")), None)

    def values(self, path: str) -> list[float]:
        """The finite numbers at a path of ``final.json``, one per seed that has it."""
        numbers = (number_at(final, path) for final in self.finals.values())
        return [value for value in numbers if value is not None and math.isfinite(value)]

    def mean(self, path: str) -> Mean:
        return mean_of(self.values(path))

    def diagnosed(self, *path: str) -> list[Any]:
        """The entries at a path of the diagnoses, one per diagnosis that has it."""
        entries = []
        for diagnosis in self.diagnoses:
            entry: Any = diagnosis
            for key in path:
                entry = entry.get(key) if isinstance(entry, Mapping) else None
            if entry is not None:
                entries.append(entry)
        return entries


@dataclass(frozen=True)
class Group:
    """The runs of one recipe, and the recipe itself where it is known. Runs that diverged belong to no arm."""

    name: str
    arms: list[Arm]
    recipe: Recipe | None = None
    diverged: list[Record] = field(default_factory=list)

    @cached_property
    def metrics(self) -> MetricBook:
        """What these runs measured, as their task declares it."""
        return book_of(self.records)

    @cached_property
    def departures(self) -> Departures:
        """In which settings these runs differ from the recipe that comes with the package."""
        return departures_of(self.name, [*self.records, *self.diverged])

    @property
    def shown(self) -> list[Arm]:
        """The arms of tables and figures: those of a sweep have a section of their own, unless there is nothing else to
        compare."""
        unswept = [arm for arm in self.arms if arm.swept is None]
        return unswept if len(unswept) > 1 else self.arms

    @property
    def readable(self) -> list[Arm]:
        """The same arms with the names by which readers know those of a sweep."""
        labels = arm_labels({arm.name: arm.swept for arm in self.shown if arm.swept})
        return [replace(arm, name=labels.get(arm.name, arm.name)) for arm in self.shown]

    @property
    def picked(self) -> list[Arm]:
        """Where the reader picks arms, those that are shown at first: the first one, and the best by the metric that
        arms are compared by."""
        primary = self.metrics.compared
        first, *others = self.shown
        means = {arm.name: arm.mean(primary.path).value for arm in others if arm.values(primary.path)}
        best = sorted(means, key=lambda name: means[name], reverse=primary.better == "higher")[:_PICKED]
        return [arm for arm in (first, *others) if arm.tag and (arm is first or arm.name in best)]

    @property
    def picked_words(self) -> str:
        """The arms that are shown at first, in words."""
        first, *best = self.picked
        return first.name + (f" and the {len(best)} best" if len(best) > 1 else " and the best" if best else "")

    @property
    def records(self) -> list[Record]:
        return [record for arm in self.arms for record in arm.records]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for arm in self.arms for seed in arm.finals})

    @property
    def finals(self) -> dict[str, dict[int, Mapping[str, Any]]]:
        return {arm.name: arm.finals for arm in self.arms}


def groups_of(records: Iterable[Record], recipes: Mapping[str, Recipe]) -> list[Group]:
    """Runs by recipe and arm, arms in the recipe's order."""
    by_recipe: dict[str, dict[str, list[Record]]] = {}
    records = list(records)
    for record in records:
        if record.failed is None:
            by_recipe.setdefault(record.recipe, {}).setdefault(record.arm, []).append(record)
    groups = []
    for name, arms in by_recipe.items():
        recipe = recipes.get(name)
        names = [*(arm for arm in (recipe.arms if recipe else ()) if arm in arms)]
        names += [arm for arm in arms if arm not in names]
        diverged = [record for record in records if record.recipe == name and record.failed is not None]
        groups.append(Group(name, [_arm(i, arm, arms[arm]) for i, arm in enumerate(names)], recipe, diverged))
    return groups


def for_picking(group: Group) -> Group:
    """Where there are more arms than colours the reader picks some: every arm gets a tag."""
    shown = [arm.name for arm in group.shown]
    if len(shown) <= len(COLOURS):
        return group
    return replace(group, arms=[replace(arm, tag=f"{TAG}{index}" if arm.name in shown else None)
                                for index, arm in enumerate(group.arms)])


def _arm(index: int, name: str, records: list[Record]) -> Arm:
    return Arm(name, *look(index), {record.seed: record.numbers for record in records},
               [record.diagnosis for record in records if record.diagnosis],
               [record.epochs for record in records if record.epochs], records, _swept(name, records))


def _swept(arm: str, records: Iterable[Record]) -> Swept | None:
    """Which sweep an arm belongs to, as recorded by its runs."""
    for record in records:
        try:
            entry = ((record.recipe_tree or {}).get("arms") or {}).get(arm) or {}
            if entry.get("swept"):
                return Swept(**entry["swept"])
        except (AttributeError, TypeError, ValueError) as error:
            raise RunError(f"the sweep in the record of {record.recipe}, {arm}, cannot be read ({error}). Remove the "
                           "damaged run.") from error
    return None


def single_model(name: str, diagnosis: Mapping[str, Any]) -> Arm:
    """A model by itself, as an arm."""
    numbers = {"accuracy": diagnosis["accuracy"], **summary(diagnosis)}
    return Arm(name, *look(1), {0: numbers}, [diagnosis])


def titles(arms: Sequence[Arm]) -> list[str]:
    """The titles of panels and rows; a model by itself needs none."""
    return [arm.name for arm in arms] if len(arms) > 1 else [""] * len(arms)


def row_kind(arms: Sequence[Arm]) -> str:
    """What the rows of a table are: arms or models."""
    return "arm" if any(arm.records for arm in arms) else "model"


def over_seeds(arms: Sequence[Arm], words: str = "Mean over") -> str:
    """Over how many seeds a picture is, as a sentence; empty for a single model."""
    counts = sorted({len(arm.finals) for arm in arms})
    if counts[-1] == 1:
        return ""
    return f"{words} {plural(counts[0], 'seed') if len(counts) == 1 else f'{counts[0]} to {counts[-1]} seeds'}."
