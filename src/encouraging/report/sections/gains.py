"""Gains under attack in words and tables: which survive attacks that do not depend on the scale of the logits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...judge.attack_names import attack_label, size_words
from ...judge.scale_free import GONE, NO_CLAIM, NO_GAIN, OPEN, SURVIVES, Gain
from ..numbers import PAGE, Style, listed, plural, signed
from .parts import Cell, Table

CAPTION = ("Gains under attacks by cross-entropy, and what is left of them under the same attack by margin and by DLR "
           "together, whose steps do not depend on the scale of the logits: mean differences in points.")
NOT_JUDGED = " Not judged: no claim of the recipe is about the scale-free attack of that size."
COLUMNS = ("attack", "size", "claim", "paper", "by cross-entropy", "scale-free", "the gain")
# What is said of one gain and of several that are not confirmed, in the order of the sentence.
PHRASES = {GONE: ("does not survive", "do not survive"), OPEN: ("is undecided", "are undecided"),
           NO_CLAIM: ("is not judged", "are not judged")}


def gain_words(gains: Sequence[Gain]) -> str:
    """How many gains scale-free attacks confirm, in one sentence or two; nothing without gains. The sizes and the
    numbers are in the table."""
    established = [gain for gain in gains if gain.answer != NO_GAIN]
    others = len(gains) - len(established)
    if not gains:
        return ""
    if not established:
        return (f"No gain under attacks by cross-entropy is established here ({plural(len(gains), 'claim')}), so there "
                "is none that scale-free attacks could confirm.")
    numbers = Counter(gain.answer for gain in established)
    counts = [f"{numbers[answer]} {phrases[numbers[answer] > 1]}" for answer, phrases in PHRASES.items()
              if numbers[answer]]
    confirmed = numbers[SURVIVES]
    how_many = "none" if not confirmed else "all" if confirmed == len(established) > 1 else str(confirmed)
    rest = f"{'; ' if confirmed else ': '}{listed(counts)}" if counts else ""
    are = "is" if len(established) == 1 else "are"
    words = (f"Of {plural(len(established), 'gain')} that {are} established under attacks by cross-entropy, scale-free "
             f"attacks confirm {how_many}{rest}.")
    return words + (f" {others} more {'is' if others == 1 else 'are'} not established." if others else "")


def gain_rows(gains: Sequence[Gain], style: Style = PAGE) -> list[list[str]]:
    """The cells of the table."""
    return [[attack_label(gain.attack), size_words(gain.size), f"{gain.row.claim.arm} beats {gain.row.claim.beats}",
             "" if gain.row.claim.paper_difference is None else signed(gain.row.claim.paper_difference, 1, style),
             signed(gain.row.comparison.mean, 1, style), signed(gain.difference, 1, style), gain.answer]
            for gain in gains]


def caption_of(gains: Sequence[Gain]) -> str:
    """What the table shows, and what "not judged" means where it is in it."""
    return CAPTION + (NOT_JUDGED if any(gain.answer == NO_CLAIM for gain in gains) else "")


def gain_table(gains: Sequence[Gain]) -> list[Table]:
    """The table of the page; none without gains."""
    rows = [[Cell(cell, words=number in (0, 2, 6)) for number, cell in enumerate(row)] for row in gain_rows(gains)]
    return [Table(caption_of(gains), COLUMNS, rows)] if rows else []
