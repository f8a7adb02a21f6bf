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


class BonusCounts(NamedTuple):
    """How many comparisons with and without a bonus were measured, how they came out, and how many were not."""

    measured: int
    words: str
    unmeasured: int


def bonus_counts(rows: Iterable[ScoreRow]) -> BonusCounts:
    """The comparisons with and without a bonus among these rows; the same one is counted once."""
    compared = {(row.recipe, row.row.claim.metric, row.row.claim.arm, row.row.claim.beats): row
                for row in rows if row.bonus}
    tones = Counter(tone_of(row) for row in compared.values() if row.measured)
    words = listed([f"{tones[tone] or 'none'} {phrase[tones[tone] > 1]}" for tone, phrase in _PHRASES.items()
                    if tones[tone] or tone != "masked"])
    return BonusCounts(tones.total(), words, len(compared) - tones.total())


def bonus_answer(rows: Iterable[ScoreRow]) -> list[str]:
    """The same as a sentence for the page; nothing where there are fewer than two such comparisons."""
    counts = bonus_counts(rows)
    if counts.measured < 2:
        return []
    return [f"Does a bonus help? Of {plural(counts.measured, 'comparison')} of a loss with a bonus and one without, "
            f"{counts.words}. Claims about two losses with a bonus, or two without, are not among them."]


def tone_of(row: ScoreRow) -> str:
    """The tone of the verdict on the bonus: reversed where the claim is that the bonus costs something. A gain under
    attack that scale-free attacks do not confirm is ``masked``."""
    tone = "masked" if row.is_masked else row.verdict.tone
    return {"good": "bad", "bad": "good"}.get(tone, tone) if row.bonus < 0 else tone
