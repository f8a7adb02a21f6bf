"""The claims of a recipe, judged on the final numbers of its runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .beside_paper import BesidePaper, beside_paper
from .family import Case, judge_cases
from .looks import LookPlan, plan_of
from .metric_book import MetricBook
from .power import SeedRange, seeds_to_decide
from .stats import (
    FAILS,
    HOLDS,
    NO_DIFFERENCE,
    UNDECIDED,
    Comparison,
    describe,
    paired_differences,
)

if TYPE_CHECKING:
    from ..engine import Metric
    from ..engine.records import Record
    from ..recipes import Claim, Departures, Recipe

# The contents of final.json by arm and seed; a run that diverged has nothing but the key FAILED, with what it said.
Finals = Mapping[str, Mapping[int, Mapping[str, Any]]]
FAILED = "failed"
REPRODUCED, CONTRADICTED, NOT_MEASURED = "reproduced", "contradicted", "not measured"
PAPERS_WORDS = {HOLDS: REPRODUCED, FAILS: CONTRADICTED}


class Reached(NamedTuple):
    """What an arm reached on one metric: mean, standard deviation and number of seeds, and the paper's number."""

    mean: float
    std: float
    n: int
    paper: float | None


@dataclass(frozen=True)
class ArmRow:
    """One arm's numbers by the path of the metric, and the seeds with which it diverged."""

    arm: str
    numbers: dict[str, Reached]
    diverged: Sequence[int] = ()


class Pairs(NamedTuple):
    """The numbers of two arms on the seeds that both have."""

    seeds: list[int]
    ours: list[float]
    theirs: list[float]


@dataclass(frozen=True)
class ClaimRow:
    """A claim, the pairs of numbers it is judged on, the comparison that judges it, and what its metric is called.

    ``papers`` tells whether the paper claims this, in this setting. ``beside`` compares the size of the difference with
    the paper's. ``needed`` is the range of seeds that would decide an undecided claim. ``diverged`` has arms and seeds
    of runs that diverged.
    """

    claim: Claim
    pairs: Pairs
    comparison: Comparison
    metric: Metric
    papers: bool = False
    beside: BesidePaper | None = None
    needed: SeedRange | None = None
    diverged: Sequence[tuple[str, int]] = ()

    @property
    def verdict(self) -> str:
        """The verdict in the words that its kind of claim has."""
        if not self.comparison.n:
            return UNDECIDED if self.diverged else NOT_MEASURED
        verdict = self.comparison.verdict
        return PAPERS_WORDS.get(verdict, verdict) if self.papers else verdict


def own_heading(rows: Iterable[ClaimRow]) -> str:
    """The heading of the claims that are not judged as the paper's."""
    departed = any(row.claim.is_papers and not row.papers for row in rows)
    return "other settings, and questions of our own" if departed else "questions of our own"


def finals_of(recipe: str, records: Iterable[Record]) -> dict[str, dict[int, dict[str, Any]]]:
    """Final numbers of a recipe's runs by arm and seed, with those that were measured under attack."""
    finals: dict[str, dict[int, dict[str, Any]]] = {}
    for record in records:
        if record.recipe == recipe:
            final = record.numbers if record.failed is None else {FAILED: record.failed}
            finals.setdefault(record.arm, {})[record.seed] = final
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
    """What every arm reached, on the metrics that the claims name and on the one that arms are compared by."""
    rows = []
    for arm in recipe.arms:
        numbers = {}
        for metric in metrics_of(recipe, book):
            values = [v for final in finals.get(arm, {}).values() if (v := number_at(final, metric)) is not None]
            paper = next((number for claim in recipe.claims if (number := claim.paper_of(arm, metric)) is not None),
                         None)
            mean, std = describe(values) if values else (math.nan, math.nan)
            numbers[metric] = Reached(mean, std, len(values), paper)
        rows.append(ArmRow(arm, numbers, diverged_seeds(finals, arm)))
    return rows


def metrics_of(recipe: Recipe, book: MetricBook) -> list[str]:
    """The paths of the metrics that a table of the recipe shows."""
    named = (path for claim in recipe.claims for path in claim.metrics)
    return list(dict.fromkeys([*named, book.compared.path, book.primary.path]))


def paired(claim: Claim, finals: Finals, seeds: Iterable[int] | None = None) -> Pairs:
    """The two numbers of a claim on the seeds (these, or all) for which both exist, in the order of the seeds."""
    ours, theirs = finals.get(claim.arm, {}), finals.get(claim.arms[-1], {})
    both = sorted(set(ours) & set(theirs))
    if seeds is not None:
        chosen = set(seeds)
        both = [seed for seed in both if seed in chosen]
    pairs = Pairs([], [], [])
    for seed in both:
        our_number, their_number = number_at(ours[seed], claim.metric), _other_side(claim, theirs[seed])
        if our_number is not None and their_number is not None:
            pairs.seeds.append(seed)
            pairs.ours.append(our_number)
            pairs.theirs.append(their_number)
    return pairs


def _other_side(claim: Claim, final: Mapping[str, Any]) -> float | None:
    """What the claimed number is compared with, given the final numbers of the other arm."""
    return claim.constant if claim.constant is not None else number_at(final, claim.beats_metric or claim.metric)


def claim_rows(recipe: Recipe, finals: Finals, book: MetricBook, plan: LookPlan | None = None,
               departures: Departures | None = None) -> list[ClaimRow]:
    """Every claim of a recipe with its verdict, over the seeds that both arms have; at the recipe's own looks, unless a
    plan is given. Where the runs depart from the recipe (``departures``), the claims that this concerns hold or fail
    instead of being reproduced or contradicted, and their size is not compared with the paper's."""
    rows = judge_claims(recipe.claims, finals, book, papers=not recipe.stands_in,
                        plan=plan_of(recipe) if plan is None else plan)
    return [replace(row, papers=False, beside=None) if departures is not None and departures.covers(row.claim) else row
            for row in rows]


def judge_claims(claims: Sequence[Claim], finals: Finals, book: MetricBook, *, overlap: float | None = None,
                 papers: bool = True, plan: LookPlan | None = None) -> list[ClaimRow]:
    """Claims with their verdicts, judged together.

    ``papers`` tells whether this is the paper's own setting, ``plan`` at which numbers of seeds the claims are judged.
    """
    plan = plan or LookPlan()
    all_looks = [_looks_taken(claim, finals, plan) for claim in claims]
    cases = [_case(claim, finals, looks, plan) for claim, looks in zip(claims, all_looks, strict=True)]
    rows = []
    for claim, looks, comparison in zip(claims, all_looks, judge_cases(cases, overlap=overlap), strict=True):
        seeds = looks[comparison.look - 1] if comparison.look else _latest_seeds(looks, plan)
        beside = beside_paper(comparison, claim.paper_difference, claim.paper_variances, claim.paper_seeds, overlap)
        needed = seeds_to_decide(comparison, claim.sought, overlap) if comparison.verdict == UNDECIDED else None
        rows.append(ClaimRow(claim, paired(claim, finals, seeds), comparison, book[claim.metric],
                             papers and claim.is_papers, beside, needed,
                             _diverged(claim, finals, _latest_seeds(looks, plan))))
    return rows


def _case(claim: Claim, finals: Finals, looks: Sequence[Sequence[int] | None], plan: LookPlan) -> Case:
    """What a claim is judged on: its differences at every look that was taken, and those of the latest seeds."""
    seeds = _latest_seeds(looks, plan)
    return Case([_differences(claim, finals, look) for look in looks], len(plan.looks),
                _differences(claim, finals, seeds), claim.sought, _withheld(claim, _diverged(claim, finals, seeds)))


def _differences(claim: Claim, finals: Finals, seeds: Sequence[int] | None) -> np.ndarray:
    pairs = paired(claim, finals, seeds)
    return paired_differences(pairs.ours, pairs.theirs, claim.direction)


def _looks_taken(claim: Claim, finals: Finals, plan: LookPlan) -> list[Sequence[int] | None]:
    """The seeds of every look whose runs have all ended; without a plan there is one look, at all seeds."""
    if not plan.looks:
        return [None]
    return [plan.seeds[:n] for n in plan.looks if n <= len(plan.seeds)
            and all(seed in finals.get(arm, {}) for arm in claim.arms for seed in plan.seeds[:n])]


def _latest_seeds(looks: Sequence[Sequence[int] | None], plan: LookPlan) -> Sequence[int] | None:
    """The seeds of the last look; before the first one, all planned seeds. None stands for all seeds."""
    return looks[-1] if looks else plan.seeds


def _diverged(claim: Claim, finals: Finals, seeds: Iterable[int] | None) -> list[tuple[str, int]]:
    """Arms and seeds of the runs that diverged, among these seeds or all."""
    chosen = None if seeds is None else set(seeds)
    return [(arm, seed) for arm in claim.arms for seed in diverged_seeds(finals, arm)
            if chosen is None or seed in chosen]


def diverged_seeds(finals: Finals, arm: str) -> list[int]:
    """The seeds with which an arm diverged."""
    return sorted(seed for seed, final in finals.get(arm, {}).items() if FAILED in final)


def _withheld(claim: Claim, diverged: Sequence[tuple[str, int]]) -> frozenset[str]:
    """The verdicts that cannot be given because runs diverged.

    A diverged run counts as a loss of its arm, but gives no difference. So there can be no verdict in favour of that
    arm, and none of no difference; a verdict against it remains possible. Where both arms diverged with the same seed,
    or where two numbers of one arm are compared, nothing is withheld.
    """
    if claim.beats_metric is not None:
        return frozenset()
    ours, theirs = ({seed for arm, seed in diverged if arm == side} for side in (claim.arm, claim.beats))
    withheld = {HOLDS} if ours - theirs else set()
    withheld |= {FAILS} if theirs - ours else set()
    return frozenset(withheld | {NO_DIFFERENCE} if withheld else withheld)
