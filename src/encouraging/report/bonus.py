"""Does a bonus help? How the claims that compare a loss with a bonus and one without it came out, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from .board import ScoreRow
from .numbers import listed, plural

# The predicate of one comparison and of several by tone, in the order in which they are counted.
_PHRASES = {"good": ("is better with a bonus", "are better with a bonus"),
            "masked": ("only under attacks that follow cross-entropy",) * 2, "bad": ("is worse", "are worse"),
            "same": ("shows no difference", "show no difference"), "open": ("is undecided", "are undecided")}


MOST_NAMES = 4  # of numbers that are named


class BonusCounts(NamedTuple):
    """How many comparisons with and without a bonus were measured, how they came out, in which numbers a bonus was
    better and worse, and how many were not measured."""

    measured: int
    words: str
    better: list[str]
    worse: list[str]
    unmeasured: int


def bonus_counts(rows: Iterable[ScoreRow]) -> BonusCounts:
    """The comparisons with and without a bonus among these rows."""
    rows = list(rows)
    compared, tones = _compared(rows), bonus_tones(rows)
    words = listed([f"{tones[tone] or 'none'} {phrase[tones[tone] > 1]}" for tone, phrase in _PHRASES.items()
                    if tones[tone] or tone in ("good", "bad")])  # that none is better, or worse, is an answer
    better, worse = (list(dict.fromkeys(row.row.metric.words for row in compared
                                        if row.measured and tone_of(row) == tone)) for tone in ("good", "bad"))
    return BonusCounts(tones.total(), words, better, worse, len(compared) - tones.total())


def bonus_tones(rows: Iterable[ScoreRow]) -> Counter[str]:
    """How often the comparisons with and without a bonus have which tone, where they are measured."""
    return Counter(tone_of(row) for row in _compared(rows) if row.measured)


def _compared(rows: Iterable[ScoreRow]) -> list[ScoreRow]:
    """The rows that compare a loss with a bonus and one without; the same comparison is counted once."""
    return list({(row.recipe, row.row.claim.metric, row.row.claim.arm, row.row.claim.beats): row
                 for row in rows if row.bonus}.values())


def bonus_answer(rows: Iterable[ScoreRow]) -> list[str]:
    """The same in sentences for the page, with the names of the numbers where they are few: a wider margin is no gain
    in accuracy. Nothing where there are fewer than two such comparisons."""
    counts = bonus_counts(rows)
    if counts.measured < 2:
        return []
    named = "".join(f"{word} with it: {'; '.join(names)}. " for word, names in
                    (("Better", counts.better), ("Worse", counts.worse)) if 0 < len(names) <= MOST_NAMES)
    return [f"Does a bonus help? Of {plural(counts.measured, 'comparison')} of a loss with a bonus and one without, "
            f"{counts.words}. {named}Claims about two losses with a bonus, or two without, are not among them."]


def tone_of(row: ScoreRow) -> str:
    """The tone of the verdict on the bonus: reversed where the claim is that the bonus costs something. A gain under
    attack that scale-free attacks do not confirm is ``masked``."""
    tone = "masked" if row.is_masked else row.verdict.tone
    return {"good": "bad", "bad": "good"}.get(tone, tone) if row.bonus < 0 else tone
