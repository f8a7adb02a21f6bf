"""What the report shows of the runs: arms with all their seeds, their means and intervals, and numbers in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ..engine.records import Record
from ..metrics import summary
from ..recipes import Recipe
from .claims import number
from .drawing import COLOURS, Key
from .figures import Dash

DASHES: tuple[str | Dash, ...] = ("-", "--", "-.", ":")


class Metric(NamedTuple):
    """A number of ``final.json``: where it is, what it is called, which digits are worth printing, where it ends."""

    path: str
    words: str
    digits: int
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf


KNOWN = (
    Metric("accuracy", "accuracy", 2, "%", 0, 100),
    Metric("best_accuracy", "best accuracy", 2, "%", 0, 100),
    Metric("excess_risk", "excess risk", 2, "%"),
    Metric("ece", "calibration error", 4, "", 0, 1),
    Metric("nll", "negative log-likelihood", 3, "", 0),
    Metric("margin.median", "median margin", 2),
    Metric("margin.mean", "mean margin", 2),
    Metric("energy.label", "energy on the data", 2),
    Metric("energy.rival", "lowest rival energy", 2),
    Metric("energy.rival_zeroed", "lowest rival energy, zeroed", 2),
    Metric("energy.free", "free energy", 2),
    Metric("ood.min_energy.auroc", "AUROC, outside data", 2, "%", 0, 100),
    Metric("ood.min_energy.fpr95", "FPR95, outside data", 2, "%", 0, 100),
)
WEAKEST = 3
SHOWN = ("accuracy", "best_accuracy", "excess_risk", "ece", "margin.median", "energy.label", "energy.rival")


class Mean(NamedTuple):
    """The mean over seeds with its 95% t interval, which a single seed does not have."""

    value: float
    low: float
    high: float
    std: float
    n: int


@dataclass(frozen=True)
class Arm:
    """One side of a comparison with all that its seeds left; or a single model."""

    name: str
    colour: str
    dashes: str | Dash
    finals: dict[int, Mapping[str, Any]]
    diagnoses: list[Mapping[str, Any]] = field(default_factory=list)
    epochs: list[list[dict[str, Any]]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    @property
    def key(self) -> Key:
        return Key(self.name, self.colour, self.dashes)

    def values(self, path: str) -> list[float]:
        found = (number(final, path) for final in self.finals.values())
        return [value for value in found if value is not None and math.isfinite(value)]

    def mean(self, path: str) -> Mean:
        return mean_of(self.values(path))

    def of(self, *path: str) -> list[Any]:
        """What the diagnoses hold at a path, where they do."""
        found = []
        for diagnosis in self.diagnoses:
            here: Any = diagnosis
            for key in path:
                here = here.get(key) if isinstance(here, Mapping) else None
            if here is not None:
                found.append(here)
        return found


@dataclass(frozen=True)
class Group:
    """The runs of one recipe; the recipe itself where it is known."""

    name: str
    arms: list[Arm]
    recipe: Recipe | None = None

    @property
    def records(self) -> list[Record]:
        return [record for arm in self.arms for record in arm.records]

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for arm in self.arms for seed in arm.finals})


def groups_of(records: Iterable[Record], recipes: Mapping[str, Recipe]) -> list[Group]:
    """Runs by recipe and arm, arms in the recipe's order."""
    named: dict[str, dict[str, list[Record]]] = {}
    for record in records:
        recipe, arm, _ = record.place
        named.setdefault(recipe, {}).setdefault(arm, []).append(record)
    groups = []
    for name, arms in named.items():
        known = recipes.get(name)
        order = [*(arm for arm in (known.arms if known else ()) if arm in arms)]
        order += [arm for arm in arms if arm not in order]
        groups.append(Group(name, [_arm(i, arm, arms[arm]) for i, arm in enumerate(order)], known))
    return groups


def _arm(place: int, name: str, records: list[Record]) -> Arm:
    return Arm(name, *_look(place), {record.place[2]: record.final for record in records},
               [record.diagnosis for record in records if record.diagnosis],
               [record.epochs for record in records if record.epochs], records)


def single(name: str, diagnosis: Mapping[str, Any]) -> Arm:
    """A model by itself."""
    short = {"accuracy": diagnosis["accuracy"], **summary(diagnosis)}
    return Arm(name, *_look(1), {0: short}, [diagnosis])


def _look(place: int) -> tuple[str, str | Dash]:
    """A colour an arm; the dashes change where the colours begin again."""
    return COLOURS[place % len(COLOURS)], DASHES[(place // len(COLOURS)) % len(DASHES)]


def mean_of(values: Sequence[float | None]) -> Mean:
    """Of what there is: a number that is missing or not finite has no say.

    >>> [round(x, 2) for x in mean_of([1.0, 2.0, 3.0])]
    [2.0, -0.48, 4.48, 1.0, 3]
    """
    there = [value for value in values if value is not None and math.isfinite(value)]
    n = len(there)
    if not n:
        return Mean(math.nan, math.nan, math.nan, math.nan, 0)
    mean = float(np.mean(there))
    if n == 1:
        return Mean(mean, math.nan, math.nan, math.nan, 1)
    std = float(np.std(there, ddof=1))
    reach = float(stats.t.ppf(0.975, n - 1)) * std / math.sqrt(n)
    return Mean(mean, mean - reach, mean + reach, std, n)


def metric(path: str) -> Metric:
    """What is known about a path, or the path as its own name."""
    found = next((known for known in KNOWN if known.path == path), None)
    return found or Metric(path, path.replace("_", " "), 2, "%" if path.endswith("accuracy") else "")


def shown_metrics(arms: Sequence[Arm]) -> list[Metric]:
    """The numbers of the table of arms, where any arm has them."""
    wanted = [metric(path) for path in SHOWN]
    for name in _outside(arms):
        for score in ("auroc", "fpr95"):
            wanted.append(Metric(f"ood.{name}.min_energy.{score}", f"{score.upper()}, {name}", 2, "%", 0, 100) if name
                          else metric(f"ood.min_energy.{score}"))
    return [known for known in wanted if any(arm.values(known.path) for arm in arms)]


def _outside(arms: Sequence[Arm]) -> list[str]:
    """The outside sets by their names in ``final.json``; the only one has none there."""
    names: dict[str, None] = {}
    for arm in arms:
        for final in arm.finals.values():
            for name, value in (final.get("ood") or {}).items():
                names["" if "auroc" in value else name] = None
    return list(names)


def show(value: float | None, digits: int = 2, unit: str = "") -> str:
    """A number as the page prints it, with a true minus.

    >>> show(-27.0, 1), show(99.5, 2, "%"), show(float("nan"))
    ('−27.0', '99.50%', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("-", "−") + unit


def signed(value: float, digits: int = 2) -> str:
    return show(value, digits) if not value > 0 or not math.isfinite(value) else "+" + show(value, digits)


def between(low: float, high: float, digits: int = 2) -> str:
    """An interval in words.

    >>> between(-0.001, 0.03)
    '−0.001 to 0.030'
    """
    if math.isnan(low):
        return "no interval"
    digits = enough((low, high), digits)
    return f"{show(low, digits)} to {show(high, digits)}"


def enough(ends: Sequence[float], digits: int) -> int:
    """So many digits that no end looks like 0 without being it: which side of 0 it is on decides a claim."""
    while digits < 8 and any(end != 0 and math.isfinite(end) and float(f"{end:.{digits}f}") == 0 for end in ends):
        digits += 1
    return digits


def titles(arms: Sequence[Arm]) -> list[str]:
    """The names of panels and rows; a model by itself needs none."""
    return [arm.name for arm in arms] if len(arms) > 1 else [""] * len(arms)


def kind(arms: Sequence[Arm]) -> str:
    """What the rows of a table are."""
    return "arm" if any(arm.records for arm in arms) else "model"


def plural(n: int, word: str) -> str:
    """
    >>> plural(1, "seed"), plural(3, "seed")
    ('1 seed', '3 seeds')
    """
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def listed(words: Sequence[str], last: str = "and") -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), words[-1] if words else ""]))


def weakest(found: Mapping[str, Any]) -> str:
    """The classes that are recognised worst, where not all are alike."""
    names = found.get("class_names")
    right = [(value, label) for label, value in enumerate(found.get("class_accuracy", ())) if value is not None]
    if len(right) <= WEAKEST or found["accuracy"] == 100:
        return ""
    return ", ".join(f"{names[label] if names else label} ({value:.1f}%)" for value, label in sorted(right)[:WEAKEST])
