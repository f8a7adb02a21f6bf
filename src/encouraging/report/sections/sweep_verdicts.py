"""The values of a sweep against the baseline: judged like claims, all values together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...judge.claims import ClaimRow, finals_of, judge_claims
from ...judge.stats import UNDECIDED
from ...recipes.sweep import arm_labels, sweep_claims
from ..arms import Arm, Group
from ..numbers import between, enough_digits, listed, p_value, signed
from .claim_words import needed_words
from .parts import Cell, Table


def judged(group: Group, arms: Sequence[Arm]) -> list[ClaimRow]:
    """The comparisons of these arms of a sweep with the baseline that were measured."""
    if group.recipe is None:
        return []
    copies = {arm.name: arm.swept for arm in arms if arm.swept}
    claims = sweep_claims(group.recipe, copies, group.metrics.compared)
    finals = finals_of(group.name, [*group.records, *group.diverged])
    rows = judge_claims(claims, finals, group.metrics, papers=False)
    return [row for row in rows if row.comparison.n or row.diverged]


def labels_of(arms: Iterable[Arm]) -> dict[str, str]:
    """What readers call the arms of a sweep."""
    return arm_labels({arm.name: arm.swept for arm in arms if arm.swept})


def difference_words(row: ClaimRow, labels: Mapping[str, str]) -> str:
    """The difference from the baseline with its interval and verdict, in brackets of a sentence."""
    comparison, digits = row.comparison, row.metric.digits
    baseline = labels.get(str(row.claim.beats), str(row.claim.beats))
    if not comparison.n:
        return f"against {baseline}: {row.verdict}"
    words = f"{signed(comparison.mean, enough_digits([comparison.mean], digits))} against {baseline}"
    return f"{words}, interval {between(comparison.low, comparison.high, digits)}: {row.verdict}"


def verdict_table(rows: Sequence[ClaimRow], labels: Mapping[str, str], name: str) -> list[Table]:
    """One line per value; none without comparisons. ``name`` is what the metric is called in a sentence."""
    if not rows:
        return []
    baselines = {str(row.claim.beats) for row in rows}
    against = listed([labels.get(arm, arm) for arm in baselines]) if len(baselines) == 1 else "the baseline"
    better = ", lower is better" if rows[0].claim.better == "lower" else ""
    lines = []
    for row in rows:
        comparison, digits = row.comparison, row.metric.digits
        beside = f"{needed_words(row.needed)} seeds would decide" if row.needed is not None else ""
        small = f"against {labels.get(str(row.claim.beats), str(row.claim.beats))}" if len(baselines) > 1 else ""
        lines.append([Cell(labels.get(row.claim.arm, row.claim.arm), small),
                      Cell(signed(comparison.mean, enough_digits([comparison.mean], digits))),
                      Cell(between(comparison.low, comparison.high, digits)),
                      Cell(p_value(comparison.p_permutation)), Cell(str(comparison.n)),
                      Cell(row.verdict, beside if row.verdict == UNDECIDED else "", words=True)])
    return [Table(f"Does a value beat {against} on {name}{better}? Paired differences over the seeds with their 95% "
                  "interval, Holm-adjusted for all values together; a positive difference is in favour of the value.",
                  ["", "difference", "interval", "permutation p", "n", "verdict"], lines)]
