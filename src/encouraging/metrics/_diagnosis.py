"""All metrics of a classifier, collected block by block.

A :class:`Reader` takes logits as they come and keeps a few numbers per example, a sample of whole rows to fit a
temperature on, and the sums behind the energy profile. Readers of several files or ranks merge. A *diagnosis* is plain
data, small enough to be kept for every run: the report draws everything from it, whatever the number of examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from ..class_counts import Counts
from ..curves import Curve
from ..errors import ArgumentError, CurveError, ShapeError
from ._accuracy import accuracy
from ._calibration import BINS, nll, reliability
from ._energy import USUAL_NAMES, energies, scores
from ._inputs import as_tensor
from ._margin import margins
from ._ood import Positive, detection, mean_row, openood_row
from ._profiles import LONGEST, Profiles
from ._readings import Readings, Unlabelled, read, read_unlabelled
from ._sample import Sample
from ._shots import FEW, MANY, class_accuracy, class_margin, counts_in_order, shot_accuracy
from ._spread import spread
from ._teaching import mean_pulls, teaching

SCHEMA = 1
KEPT_LOGITS = 1 << 22  # of whole rows, for the temperature: 16 MiB
KEPT_ROWS = 50_000


class Reader:
    """Collects logits and labels, and turns them into a diagnosis.

    Args:
        classes: Number of classes.
        profile: The class whose energy profile is kept where there are more than 32 classes; the first by default.
        seed: The seed of the random sample that the temperature is fitted on.

    Raises:
        ArgumentError: ``profile`` is not a class.

    >>> reader = Reader(classes=3)
    >>> reader.update(torch.tensor([[4.0, 0.0, 1.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 1]))
    >>> reader.diagnosis()["accuracy"]
    100.0
    """

    def __init__(self, classes: int, *, profile: int | None = None, seed: int = 0) -> None:
        if profile is not None and not 0 <= profile < classes:
            raise ArgumentError(f"Reader(profile={profile}): expected a class, 0 to {classes - 1}.")
        self.classes = classes
        self.profile = profile
        self.profiles = Profiles(classes, profile)
        self.parts: list[Readings] = []
        self.outside: dict[str, list[Unlabelled]] = {}
        self.random = torch.Generator().manual_seed(seed)
        self.sample = Sample(max(2, min(KEPT_ROWS, KEPT_LOGITS // max(classes, 1))))

    def update(self, logits: Tensor | np.ndarray, target: Tensor | np.ndarray, *, first: int = 0) -> None:
        """Examples with their labels, tensors or arrays; errors count rows from ``first``."""
        logits, target = as_tensor(logits, "logits").detach(), as_tensor(target, "labels")
        self._check(logits)
        block = read(logits, target, first=first)
        if not len(block):
            return
        self.parts.append(Readings(*(getattr(block, name).cpu() for name in Readings.__dataclass_fields__)))
        self.profiles.update(logits, target)
        self.sample.add(torch.rand(len(logits), generator=self.random, dtype=torch.float64), logits, target)

    def update_outside(self, logits: Tensor | np.ndarray, name: str = "outside", *, first: int = 0) -> None:
        """Out-of-distribution examples, by the name of the set they come from."""
        logits = as_tensor(logits, "logits")
        self._check(logits)
        block = read_unlabelled(logits, first=first)
        if not len(block):
            return
        self.outside.setdefault(name, []).append(Unlabelled(block.highest.cpu(), block.log_odds.cpu()))

    def merge(self, other: Self) -> Self:
        """Add what another reader has seen."""
        if other.classes != self.classes:
            raise ShapeError(f"a reader of {self.classes} classes cannot merge one of {other.classes}.")
        self.parts += other.parts
        for name, parts in other.outside.items():
            self.outside.setdefault(name, []).extend(parts)
        self.profiles.merge(other.profiles)
        self.sample.take(other.sample)
        return self

    def gather(self, group: Any = None) -> Self:
        """A reader of what all ranks of a process group have seen, returned on every rank. Give each rank its own
        ``seed``."""
        readers: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(readers, self, group=group)
        merged = type(self)(self.classes, profile=self.profile)
        for reader in readers:
            merged.merge(reader)
        return merged

    @property
    def readings(self) -> Readings:
        return Readings.cat(self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "random": self.random.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.random = torch.Generator()
        self.random.set_state(state["random"])

    def diagnosis(self, *, counts: Counts | None = None,
                  curves: Mapping[str, Curve] | None = None, bins: int = BINS, positive: Positive = "inside",
                  taught: Readings | None = None, many: int = MANY, few: int = FEW,
                  groups: Mapping[str, str] | None = None, trained_with: Curve | None = None) -> dict[str, Any]:
        """All metrics as plain data.

        Args:
            counts: Training examples per class, for accuracy by class frequency, as :func:`shot_groups` takes them.
            curves: The losses whose gradient mass is computed; None for the usual ones.
            bins: The number of bins of the calibration error.
            positive: Which examples are the positive class of out-of-distribution detection.
            taught: Readings of the training set; the gradient mass is then computed on them instead of the test set.
            many, few: The bounds of :func:`shot_groups`.
            groups: ``near`` or ``far`` by the names of out-of-distribution sets, as OpenOOD divides them.
            trained_with: The curve that the model was trained with, through which its probabilities are read as well:
                see :func:`posterior_logits`.

        Returns:
            Nested dicts and lists of numbers, ready for JSON but for NaN.

        Raises:
            ShapeError: There are no examples, or not one count per class.
        """
        readings = self.readings
        gap = (readings if taught is None else taught).gap
        if not len(readings):
            raise ShapeError("a diagnosis needs at least one example with its label.")
        binned = reliability(readings.confidence, readings.correct, bins)
        diagnosis: dict[str, Any] = {
            "schema": SCHEMA, "examples": len(readings), "classes": self.classes,
            "accuracy": accuracy(readings), "nll": nll(readings),
            "margin": margins(readings), "energy": energies(readings) | {"profiles": self.profiles.table()},
            "calibration": {"ece": binned.ece, "mce": binned.mce, "bins": binned.rows()},
            "teaching": {"of": "test" if taught is None else "train", "shares": teaching(gap, curves),
                         "pulls": mean_pulls(gap, curves)},
        }
        if self.classes <= LONGEST:
            diagnosis["class_accuracy"] = class_accuracy(readings, self.classes)
        if (scaled := self.sample.temperature(bins)) is not None:
            diagnosis["calibration"]["temperature"] = scaled
            if trained_with is not None:
                with suppress(CurveError):  # a curve of one's own, with a pull of 0 somewhere
                    diagnosis["calibration"]["posterior"] = self.sample.read_through(trained_with, bins)
        if counts is not None:
            counts = counts_in_order(counts)
            if len(counts) != self.classes:
                raise ShapeError(f"class counts: expected {self.classes} numbers, one per class, got {len(counts)}.")
            diagnosis["shots"] = shot_accuracy(readings, counts, many, few)
            if self.classes <= LONGEST:
                diagnosis["class_counts"] = counts.tolist()
                diagnosis["class_margin"] = _finite(class_margin(readings, self.classes))
        if self.outside:
            diagnosis["ood"] = {name: _detections(readings, Unlabelled.cat(parts), positive)
                                | ({"group": groups[name]} if groups and name in groups else {})
                                for name, parts in self.outside.items()}
        return diagnosis

    def _check(self, logits: Tensor) -> None:
        if logits.ndim != 2 or logits.shape[1] != self.classes:
            raise ShapeError(f"logits: expected the shape (examples, {self.classes}), got {tuple(logits.shape)}.")


def _finite(numbers: list[float | None]) -> list[float | None]:
    """JSON has no infinity: the mean of margins over masked classes becomes None."""
    return [number if number is None or math.isfinite(number) else None for number in numbers]


def _detections(inside: Readings, outside: Unlabelled, positive: Positive) -> dict[str, Any]:
    inside_scores, outside_scores = scores(inside), scores(outside)
    detections: dict[str, Any] = {}
    for name, score in inside_scores.items():
        curve = detection(score, outside_scores[name], positive)
        detections[name] = {"auroc": 100 * curve.auroc, "aupr": 100 * curve.aupr, "fpr95": 100 * curve.fpr95,
                            "openood": openood_row(score, outside_scores[name]), "roc": curve.points(),
                            "inside": spread(score)["quantiles"],
                            "outside": spread(outside_scores[name])["quantiles"]}
    return {"examples": len(outside), "positive": positive, "scores": detections}


def summary(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a diagnosis without its distributions, as kept in a run's ``final.json``.

    Args:
        diagnosis: What :meth:`Reader.diagnosis` returned.

    Returns:
        Nested dicts of numbers.

    >>> reader = Reader(classes=2)
    >>> reader.update(torch.tensor([[4.0, 0.0], [0.0, 3.0]]), torch.tensor([0, 1]))
    >>> summary(reader.diagnosis())["margin"]["mean"]
    3.5
    """
    energy = {name: value["mean"] if isinstance(value, Mapping) else value
              for name, value in diagnosis["energy"].items() if name != "profiles"}
    margin = {name: diagnosis["margin"][name] for name in ("mean", "median", "median_zeroed")
              if name in diagnosis["margin"]}
    calibration = diagnosis["calibration"]
    short: dict[str, Any] = {"ece": calibration["ece"], "nll": diagnosis["nll"], "margin": margin, "energy": energy}
    if scaled := calibration.get("temperature"):
        short["temperature"] = {name: scaled[name] for name in ("value", "ece_before", "ece_after")}
    if posterior := calibration.get("posterior"):
        short["posterior"] = {"ece": posterior["ece_after"], "nll": posterior["nll_after"]}
    if "shots" in diagnosis:
        short["shots"] = diagnosis["shots"]
    if ood := diagnosis.get("ood"):
        sets = {name: _rates(detection["scores"]) for name, detection in ood.items()}
        groups = {name: detection["group"] for name, detection in ood.items() if "group" in detection}
        for group in dict.fromkeys(groups.values()):
            sets[f"{group}ood"] = _mean_rates([sets[name] for name, group_of in groups.items() if group_of == group])
        short["ood"] = next(iter(sets.values())) if len(sets) == 1 and not groups else sets
    return {name: value for name, value in short.items() if not (isinstance(value, float) and math.isnan(value))}


def _rates(by_score: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Rates by score, also under the names that other libraries use."""
    rates = {score: {key: numbers[key] for key in ("auroc", "aupr", "fpr95", "openood") if key in numbers}
             for score, numbers in by_score.items()}
    return rates | {usual: rates[score] for usual, score in USUAL_NAMES.items() if score in rates}


def _mean_rates(sets: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The mean over the sets of a group, score by score."""
    return {score: {**mean_row([{key: rates[score][key] for key in ("auroc", "aupr", "fpr95")} for rates in sets]),
                    "openood": mean_row([rates[score]["openood"] for rates in sets])} for score in sets[0]}
