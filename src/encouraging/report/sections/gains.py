"""Gains under attack in words and tables: which survive attacks that do not depend on the scale of the logits."""

from __future__ import annotations

from collections.abc import Sequence

from ...judge.attack_names import attack_label, attack_words, size_words
from ...judge.scale_free import GONE, NO_CLAIM, NO_GAIN, OPEN, SURVIVES, Gain
from ..numbers import PAGE, Style, listed, plural, signed
from .parts import Cell, Table

CAPTION = ("Gains under attacks by cross-entropy, and what is left of them under the same attack by margin and by DLR "
           "together, whose steps do not depend on the scale of the logits: mean differences in points.")
NOT_JUDGED = " Not judged: no claim of the recipe is about the scale-free attack of that size."
COLUMNS = ("attack", "size", "claim", "paper", "by cross-entropy", "scale-free", "the gain")
# The predicate of one gain and of several, in the order of the sentence.
PHRASES = {SURVIVES: ("survives", "survive"), GONE: ("does not survive", "do not survive"),
           OPEN: ("is undecided", "are undecided"),
           NO_CLAIM: ("is not judged", "are not judged")}


def gain_words(gains: Sequence[Gain], style: Style = PAGE) -> str:
    """Which gains survive and which do not, in one sentence or two; nothing without gains."""
    established = [gain for gain in gains if gain.answer != NO_GAIN]
    others = len(gains) - len(established)
    if not gains:
        return ""
    if not established:
        return (f"No gain under attacks by cross-entropy is established here ({plural(len(gains), 'claim')}), so there "
                "is none that scale-free attacks could confirm.")
    counts = []
    for answer, phrases in PHRASES.items():
        members = [gain for gain in established if gain.answer == answer]
        if members:
            counts.append(f"{len(members)} {phrases[len(members) > 1]} ({listed(_sizes(members, style))})")
    are = "is" if len(established) == 1 else "are"
    words = (f"Of {plural(len(established), 'gain')} that {are} established under attacks by "
             f"cross-entropy, {listed(counts)} when the same attack is driven by scale-free losses.")
    return words + (f" {others} more {'is' if others == 1 else 'are'} not established." if others else "")


def _sizes(gains: Sequence[Gain], style: Style) -> list[str]:
    several = len({gain.row.claim.arm for gain in gains}) > 1
    return [(f"{gain.row.claim.arm} under " if several else "")
            + attack_words(gain.attack, gain.size).replace(" by cross-entropy", "")
            + f": {signed(gain.row.comparison.mean, 1, style)} becomes {signed(gain.difference, 1, style)}"
            for gain in gains]


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
