"""Pairs of numbers judged together, as the claims of a recipe are."""

from __future__ import annotations

from collections.abc import Sequence

from encouraging.judge.family import Case, judge_cases
from encouraging.judge.stats import Comparison, paired_differences


def judge(pairs: Sequence[tuple[Sequence[float], Sequence[float], str]]) -> list[Comparison]:
    """Claims as ``(ours, theirs, better)``, judged by Holm's procedure."""
    return judge_cases([Case([paired_differences(ours, theirs, better)]) for ours, theirs, better in pairs])
