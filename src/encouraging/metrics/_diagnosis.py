"""Everything there is to say about a classifier, gathered block by block.

A :class:`Reader` is fed with logits as they come and keeps a few numbers an example, a sample of whole rows to fit a
temperature on, and the sums behind the energy profile. Readers of several files or ranks merge. A *diagnosis* is plain
data, small enough to be kept for every run: what the report draws is in it, whatever the number of examples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from ..curves import Curve
from ..errors import ArgumentError, ShapeError
from ._accuracy import accuracy
from ._calibration import BINS, fit_temperature, nll, reliability, temperature_bounds
from ._energy import energies, scores
from ._margin import margins
from ._ood import Positive, detection
from ._readings import Readings, Unlabelled, as_tensor, read, read_unlabelled
from ._shots import class_accuracy, shot_accuracy
from ._spread import spread
from ._teaching import mean_pulls, teaching

SCHEMA = 1
KEPT_LOGITS = 1 << 22  # of whole rows, for the temperature: 16 MiB
KEPT_ROWS = 50_000
ALL_PROFILES = 32  # with more classes only one has its energy profile taken, the first if none is asked for
LONGEST = 4096  # classes beyond which a list with a number a class is left out


class Reader:
    """A diagnosis in the making.

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
        self.parts: list[Readings] = []
        self.outside: dict[str, list[Unlabelled]] = {}
        self.sums: dict[int, tuple[Tensor, Tensor, int]] = {}  # of finite logits, how many of them, examples
        self.random = torch.Generator().manual_seed(seed)
        self.sample = _Sample(max(2, min(KEPT_ROWS, KEPT_LOGITS // max(classes, 1))))

    def update(self, logits: Tensor | np.ndarray, target: Tensor | np.ndarray, *, first: int = 0) -> None:
        """Examples with their labels, tensors or arrays; errors count rows from ``first``."""
        logits, target = as_tensor(logits).detach(), as_tensor(target)
        self._check(logits)
        found = read(logits, target, first=first)
        if not len(found):
            return
        self.parts.append(Readings(*(getattr(found, name).cpu() for name in Readings.__dataclass_fields__)))
        self._add_profiles(logits, target)
        self.sample.add(torch.rand(len(logits), generator=self.random, dtype=torch.float64), logits, target)

    def update_outside(self, logits: Tensor | np.ndarray, name: str = "outside", *, first: int = 0) -> None:
        """Examples from outside the training distribution, by the name of the set they come from."""
        logits = as_tensor(logits)
        self._check(logits)
        found = read_unlabelled(logits, first=first)
        if not len(found):
            return
        self.outside.setdefault(name, []).append(Unlabelled(found.top.cpu(), found.odds.cpu()))

    def merge(self, other: Self) -> Self:
        """Take in what another reader has seen."""
        if other.classes != self.classes:
            raise ShapeError(f"a reader of {self.classes} classes cannot take in one of {other.classes}.")
        self.parts += other.parts
        for name, parts in other.outside.items():
            self.outside.setdefault(name, []).extend(parts)
        for label, sums in other.sums.items():
            self._add_sums(label, *sums)
        self.sample.take(other.sample)
        return self

    def gather(self, group: Any = None) -> Self:
        """What all ranks of a process group have seen, on every one of them. Give every rank its own ``seed``."""
        everyone: list[Any] = [None] * torch.distributed.get_world_size(group)
        torch.distributed.all_gather_object(everyone, self, group=group)
        whole = type(self)(self.classes, profile=self.profile)
        for reader in everyone:
            whole.merge(reader)
        return whole

    @property
    def readings(self) -> Readings:
        return Readings.cat(self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "random": self.random.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.random = torch.Generator()
        self.random.set_state(state["random"])

    def diagnosis(self, *, counts: Tensor | None = None, curves: Mapping[str, Curve] | None = None, bins: int = BINS,
                  positive: Positive = "inside", taught: Readings | None = None) -> dict[str, Any]:
        """All metrics as plain data.

        ``counts`` are the training examples of every class, for accuracy by shots; ``curves`` the losses whose
        gradient is asked after; ``taught`` the readings of the training set where they are at hand, because there the
        gradient is made.
        """
        found = self.readings
        gap = (found if taught is None else taught).gap
        if not len(found):
            raise ShapeError("a diagnosis needs at least one example with its label.")
        counted = reliability(found.confidence, found.correct, bins)
        whole: dict[str, Any] = {
            "schema": SCHEMA, "examples": len(found), "classes": self.classes,
            "accuracy": accuracy(found), "nll": nll(found),
            "margin": margins(found), "energy": energies(found) | {"profiles": self._profiles()},
            "calibration": {"ece": counted.ece, "mce": counted.mce, "bins": counted.rows()},
            "teaching": {"of": "test" if taught is None else "train", "shares": teaching(gap, curves),
                         "pulls": mean_pulls(gap, curves)},
        }
        if self.classes <= LONGEST:
            whole["class_accuracy"] = class_accuracy(found, self.classes)
        if (scaled := self.sample.temperature(bins)) is not None:
            whole["calibration"]["temperature"] = scaled
        if counts is not None:
            if len(counts) != self.classes:
                raise ShapeError(f"class counts: expected {self.classes} numbers, one a class, got {len(counts)}.")
            whole["shots"] = shot_accuracy(found, counts)
        if self.outside:
            whole["ood"] = {name: _detections(found, Unlabelled.cat(parts), positive)
                            for name, parts in self.outside.items()}
        return whole

    def _check(self, logits: Tensor) -> None:
        if logits.ndim != 2 or logits.shape[1] != self.classes:
            raise ShapeError(f"logits: expected the shape (examples, {self.classes}), got {tuple(logits.shape)}.")

    def _add_profiles(self, logits: Tensor, target: Tensor) -> None:
        if self.classes > LONGEST:
            return
        for label in range(self.classes) if self.classes <= ALL_PROFILES else [self.profile or 0]:
            rows = logits[target == label].double()
            if len(rows):
                there = rows.isfinite()
                self._add_sums(label, rows.masked_fill_(~there, 0).sum(0).cpu(), there.sum(0).cpu(), len(rows))

    def _add_sums(self, label: int, total: Tensor, there: Tensor, examples: int) -> None:
        if label in self.sums:
            before, so_far, count = self.sums[label]
            total, there, examples = before + total, so_far + there, count + examples
        self.sums[label] = (total, there, examples)

    def _profiles(self) -> dict[str, dict[str, Any]]:
        """A class that was masked out for all examples of a label has no energy there: None."""
        return {str(label): {"examples": examples, "energies": [-z / n if n else None for z, n in
                                                                zip(total.tolist(), there.tolist(), strict=True)]}
                for label, (total, there, examples) in sorted(self.sums.items())}


class _Sample:
    """Whole rows drawn at random from all that were seen: those with the smallest random numbers, so that samples of
    parts make a sample of the whole."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []  # random number, logits, label
        self.held = 0
        self.below = math.inf  # no number above this one has a place any more

    def add(self, chance: Tensor, logits: Tensor, target: Tensor) -> None:
        lucky = (chance < self.below).nonzero()[:, 0]
        if len(lucky) > self.size:
            lucky = chance.topk(self.size, largest=False).indices
        if not len(lucky):
            return
        self.parts.append((chance[lucky], logits.index_select(0, lucky.to(logits.device)).float().cpu(),
                           target[lucky.to(target.device)].to(torch.int64).cpu()))
        self.held += len(lucky)
        if self.held >= 2 * self.size:  # not at every call: whole rows are copied
            self.thin()

    def thin(self) -> tuple[Tensor, Tensor, Tensor]:
        """The sample itself, in the order of the random numbers whatever the order in which the rows came."""
        chance, logits, label = (torch.cat(column) for column in zip(*self.parts, strict=True))
        keep = chance.topk(min(self.size, len(chance)), largest=False).indices
        self.parts = [(chance[keep], logits[keep], label[keep])]
        self.held = len(keep)
        if self.held == self.size:
            self.below = float(chance[keep[-1]])
        return self.parts[0]

    def take(self, other: _Sample) -> None:
        for part in other.parts:
            self.add(*part)

    def temperature(self, bins: int) -> dict[str, float | str] | None:
        """Fitted on one half, judged on the other."""
        if self.held < 2:
            return None
        _, logits, label = self.thin()
        half = len(label) // 2
        value = fit_temperature(logits[:half], label[:half])
        low, high = temperature_bounds(logits[:half])
        before, after = (read(rest, label[half:]) for rest in (logits[half:], logits[half:] / value))
        bound = "lowest" if value < 1.01 * low else "highest" if value > 0.99 * high else ""
        return {"value": value, "bound": bound, "fitted_on": half, "judged_on": len(label) - half,
                "ece_before": reliability(before.confidence, before.correct, bins).ece,
                "ece_after": reliability(after.confidence, after.correct, bins).ece,
                "nll_before": nll(before), "nll_after": nll(after)}


def _detections(inside: Readings, outside: Unlabelled, positive: Positive) -> dict[str, Any]:
    familiar, strange = scores(inside), scores(outside)
    found: dict[str, Any] = {"examples": len(outside), "positive": positive, "scores": {}}
    for name, score in familiar.items():
        curve = detection(score, strange[name], positive)
        found["scores"][name] = {"auroc": 100 * curve.auroc, "aupr": 100 * curve.aupr, "fpr95": 100 * curve.fpr95,
                                 "roc": curve.points(), "inside": spread(score)["quantiles"],
                                 "outside": spread(strange[name])["quantiles"]}
    return found


def summary(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a diagnosis without its distributions: what stands in a run's ``final.json``."""
    energy = {name: value["mean"] if isinstance(value, Mapping) else value
              for name, value in diagnosis["energy"].items() if name != "profiles"}
    margin = {name: diagnosis["margin"][name] for name in ("mean", "median")}
    calibration = diagnosis["calibration"]
    short: dict[str, Any] = {"ece": calibration["ece"], "nll": diagnosis["nll"], "margin": margin, "energy": energy}
    if scaled := calibration.get("temperature"):
        short["temperature"] = {name: scaled[name] for name in ("value", "ece_before", "ece_after")}
    if "shots" in diagnosis:
        short["shots"] = diagnosis["shots"]
    detections = {name: {score: {key: numbers[key] for key in ("auroc", "aupr", "fpr95")}
                         for score, numbers in found["scores"].items()}
                  for name, found in diagnosis.get("ood", {}).items()}
    if len(detections) == 1:
        short["ood"] = next(iter(detections.values()))
    elif detections:
        short["ood"] = detections
    return {name: value for name, value in short.items() if not (isinstance(value, float) and math.isnan(value))}
