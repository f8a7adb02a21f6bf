"""The claims of a recipe, judged on the final numbers of its runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..engine import Metric
from ..engine.records import Record
from ..recipes import Claim, Recipe
from .metric_book import MetricBook
from .stats import Comparison, describe, judge

Finals = Mapping[str, Mapping[int, Mapping[str, Any]]]  # the contents of final.json by arm and seed


class Reached(NamedTuple):
    """What an arm reached on one metric: mean, standard deviation and number of seeds, and the paper's number."""

    mean: float
    std: float
    n: int
    paper: float | None


@dataclass(frozen=True)
class ArmRow:
    """One arm's numbers by the path of the metric."""

    arm: str
    numbers: dict[str, Reached]


class Pairs(NamedTuple):
    """The numbers of two arms on the seeds that both have."""

    seeds: list[int]
    ours: list[float]
    theirs: list[float]


@dataclass(frozen=True)
class ClaimRow:
    """A claim, the pairs of numbers it is judged on, the comparison that judges it, and what its metric is called."""

    claim: Claim
    pairs: Pairs
    comparison: Comparison
    metric: Metric

    @property
    def verdict(self) -> str:
        return self.comparison.verdict if self.comparison.n else "not measured"


def finals_of(recipe: str, records: Iterable[Record]) -> dict[str, dict[int, dict[str, Any]]]:
    """Final numbers of a recipe's runs by arm and seed."""
    finals: dict[str, dict[int, dict[str, Any]]] = {}
    for record in records:
        if record.recipe == recipe:
            finals.setdefault(record.arm, {})[record.seed] = record.final
    return finals


def number_at(final: Mapping[str, Any], path: str) -> float | None:
    """The number at a path such as ``ood.min_energy.fpr95``; a key may itself contain dots (``attacks.fgsm.0.3``).

    >>> number_at({"attacks": {"fgsm": {"0.3": 21.7}}}, "attacks.fgsm.0.3")
    21.7
    """
    if path in final:
        value = final[path]
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    parts = path.split(".")
    for cut in range(1, len(parts)):
        inner = final.get(".".join(parts[:cut]))
        if isinstance(inner, Mapping) and (value := number_at(inner, ".".join(parts[cut:]))) is not None:
            return value
    return None


def arm_rows(recipe: Recipe, finals: Finals, book: MetricBook) -> list[ArmRow]:
    """What every arm reached, on the metrics that the claims name and on the task's primary one."""
    rows = []
    for arm in recipe.arms:
        numbers = {}
        for metric in metrics_of(recipe, book):
            values = [v for final in finals.get(arm, {}).values() if (v := number_at(final, metric)) is not None]
            paper = next((c.paper[arm] for c in recipe.claims if c.metric == metric and arm in c.paper), None)
            mean, std = describe(values) if values else (math.nan, math.nan)
            numbers[metric] = Reached(mean, std, len(values), paper)
        rows.append(ArmRow(arm, numbers))
    return rows


def metrics_of(recipe: Recipe, book: MetricBook) -> list[str]:
    """The paths of the metrics that a table of the recipe shows."""
    return list(dict.fromkeys([*(claim.metric for claim in recipe.claims), book.primary.path]))


def paired(claim: Claim, finals: Finals) -> Pairs:
    """The claim's metric on the seeds for which both arms have it, in the order of the seeds."""
    ours, theirs = finals.get(claim.arm, {}), finals.get(claim.beats, {})
    both = [(seed, number_at(ours[seed], claim.metric), number_at(theirs[seed], claim.metric))
            for seed in sorted(set(ours) & set(theirs))]
    whole = [(seed, a, b) for seed, a, b in both if a is not None and b is not None]
    return Pairs([seed for seed, _, _ in whole], [a for _, a, _ in whole], [b for _, _, b in whole])


def claim_rows(recipe: Recipe, finals: Finals, book: MetricBook) -> list[ClaimRow]:
    """Every claim with its verdict, over the seeds that both arms have."""
    pairs = [paired(claim, finals) for claim in recipe.claims]
    judged = judge([(both.ours, both.theirs, claim.better) for claim, both in zip(recipe.claims, pairs, strict=True)])
    return [ClaimRow(*row, book[row[0].metric]) for row in zip(recipe.claims, pairs, judged, strict=True)]
