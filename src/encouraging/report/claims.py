"""A recipe's claims against what its runs found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..engine.records import Record
from ..recipes import Claim, Recipe
from .stats import Comparison, describe, judge

Finals = dict[str, dict[int, dict[str, Any]]]


@dataclass(frozen=True)
class ArmRow:
    """One arm's numbers: for every metric mean, deviation, n, and the paper's figure where it has one."""

    arm: str
    numbers: dict[str, tuple[float, float, int, float | None]]


@dataclass(frozen=True)
class ClaimRow:
    claim: Claim
    found: Comparison

    @property
    def verdict(self) -> str:
        return self.found.verdict if self.found.n else "not measured"


def finals_of(recipe: str, records: Iterable[Record]) -> Finals:
    """Final numbers by arm and seed."""
    finals: Finals = {}
    for record in records:
        name, arm, seed = record.place
        if name == recipe:
            finals.setdefault(arm, {})[seed] = record.final
    return finals


def number(final: Mapping[str, Any], path: str) -> float | None:
    """The number at a path such as ``ood.min_energy.fpr95``; a key may itself hold dots (``attacks.fgsm.0.3``).

    >>> number({"attacks": {"fgsm": {"0.3": 21.7}}}, "attacks.fgsm.0.3")
    21.7
    """
    if path in final:
        value = final[path]
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    parts = path.split(".")
    for cut in range(1, len(parts)):
        inner = final.get(".".join(parts[:cut]))
        if isinstance(inner, Mapping) and (value := number(inner, ".".join(parts[cut:]))) is not None:
            return value
    return None


def arm_rows(recipe: Recipe, finals: Finals) -> list[ArmRow]:
    """What every arm reached, on the metrics that the claims name and on the last accuracy."""
    rows = []
    for arm in recipe.arms:
        numbers = {}
        for metric in metrics_of(recipe):
            values = [v for final in finals.get(arm, {}).values() if (v := number(final, metric)) is not None]
            paper = next((c.paper[arm] for c in recipe.claims if c.metric == metric and arm in c.paper), None)
            mean, std = describe(values) if values else (math.nan, math.nan)
            numbers[metric] = (mean, std, len(values), paper)
        rows.append(ArmRow(arm, numbers))
    return rows


def metrics_of(recipe: Recipe) -> list[str]:
    return list(dict.fromkeys([*(claim.metric for claim in recipe.claims), "accuracy"]))


def claim_rows(recipe: Recipe, finals: Finals) -> list[ClaimRow]:
    """Every claim with its verdict, over the seeds that both arms have."""
    pairs = []
    for claim in recipe.claims:
        ours, theirs = ([number(final, claim.metric) for final in (finals.get(arm, {}).get(seed, {})
                         for seed in recipe_seeds(finals))] for arm in (claim.arm, claim.beats))
        both = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None]
        pairs.append(([a for a, _ in both], [b for _, b in both], claim.better))
    return [ClaimRow(claim, found) for claim, found in zip(recipe.claims, judge(pairs, overlap=recipe.overlap),
                                                           strict=True)]


def recipe_seeds(finals: Finals) -> list[int]:
    return sorted({seed for runs in finals.values() for seed in runs})
