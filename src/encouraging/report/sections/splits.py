"""The words of claims whose seeds are splits of one dataset: two intervals beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...judge.splits import OtherSamples, on_other_samples
from ..numbers import between, interval, show

if TYPE_CHECKING:
    from ...judge.claims import ClaimRow
    from .claims import Claims, ClaimView

HERE, BEYOND = "on this dataset", "on other samples like it"
EXPLAINED = ("A seed is a split of one dataset. The interval over splits decides: it says what holds on this dataset. "
             "What may be expected on other samples like it is less certain, because all splits share the same "
             "examples: Nadeau and Bengio's interval says how much.")


def beside_splits(claims: Claims, overlap: float | None) -> Claims:
    """The claims with both intervals where the recipe gives an ``overlap``; else as they are."""
    if overlap is None:
        return claims
    return replace(claims, views=[_with_both(view, row, overlap)
                                  for view, row in zip(claims.views, claims.rows, strict=True)])


def _with_both(view: ClaimView, row: ClaimRow, overlap: float) -> ClaimView:
    facts = []
    for name, value in view.facts:
        if name.startswith("interval"):
            facts.append((f"{HERE}, {name}", value))
            beyond = on_other_samples(row.comparison, overlap)
            if beyond is not None:
                words = between(beyond.low, beyond.high, row.metric.digits)
                facts.append((BEYOND, f"{words}. {_limit(row, beyond)}".strip()))
        else:
            facts.append(("splits" if name == "seeds" else name, value))
    return replace(view, facts=facts)


def split_lines(rows: Sequence[ClaimRow], overlap: float | None) -> list[str]:
    """For the page of results and the terminal: what the two intervals mean, then a sentence per claim."""
    lines = []
    for row in rows if overlap is not None else ():
        beyond = on_other_samples(row.comparison, overlap or 0.0)
        if beyond is not None:
            lines.append(f"{row.claim.sentence()}: {HERE} "
                         f"{interval(row.comparison.low, row.comparison.high, row.metric.digits)}, {BEYOND} "
                         f"{interval(beyond.low, beyond.high, row.metric.digits)}. {_limit(row, beyond)}".strip())
    return [EXPLAINED, *lines] if lines else []


def _limit(row: ClaimRow, beyond: OtherSamples) -> str:
    """Where the paper's difference, or the expected one, is too small to be decided beyond this dataset, however many
    splits are trained."""
    difference = row.claim.sought
    if difference is None or beyond.can_decide(difference):
        return ""
    digits = row.metric.digits
    return (f"However many splits are trained, this interval reaches at least {show(beyond.least, digits)} to either "
            f"side, so the difference that is looked for ({show(difference, digits)}) cannot be decided in this way.")
