"""What the numbers of ``final.json`` are called, how many digits of them are shown, and where their range ends."""

from __future__ import annotations

import math
from typing import NamedTuple


class Metric(NamedTuple):
    """A number of ``final.json``: its path, its name in words, the decimals shown, its unit and its range."""

    path: str
    words: str
    digits: int
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf


NAMED = (
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
    Metric("ood.min_energy.auroc", "AUROC, out-of-distribution data", 2, "%", 0, 100),
    Metric("ood.min_energy.fpr95", "FPR95, out-of-distribution data", 2, "%", 0, 100),
)


def metric(path: str) -> Metric:
    """The metric at this path of ``final.json``; one without an entry is called by its path.

    >>> metric("ece").digits, metric("my_number").words
    (4, 'my number')
    """
    entry = next((m for m in NAMED if m.path == path), None)
    return entry or Metric(path, path.replace("_", " "), 2, "%" if path.endswith("accuracy") else "")
