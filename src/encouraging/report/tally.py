"""How the claims came out, as bars at the beginning of the page: a picture before the sentences and the scoreboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .board import Scoreboard, ScoreRow
from .bonus import bonus_tones

ONLY_ATTACKS = "only under attacks that follow cross-entropy"
# From what is shown to what is refuted, with what cannot be told in between.
_TONES = ("good", "masked", "same", "open", "none", "bad")
_BONUS = {"good": "better with a bonus", "masked": ONLY_ATTACKS, "same": "no difference", "open": "undecided",
          "bad": "worse with a bonus"}
NARROW = 0.045  # a part of this share of a bar, or less, has no room for its number


class Part(NamedTuple):
    """Some of the claims of a bar: how many, in which words, and their colour."""

    claims: int
    words: str
    tone: str


class Bar(NamedTuple):
    """The claims of one kind by verdict."""

    title: str
    parts: Sequence[Part]

    @property
    def total(self) -> int:
        return sum(part.claims for part in self.parts)

    def has_room(self, part: Part) -> bool:
        """Whether the number of this part can be written into the bar."""
        return part.tone != "masked" and part.claims > NARROW * self.total


def bars_of(board: Scoreboard | None) -> list[Bar]:
    """The claims of the paper, all others, and the comparisons with and without a bonus; nothing where fewer than two
    claims are measured."""
    rows = [row for row in board.rows if row.measured] if board else []
    if board is None or len(rows) < 2:
        return []
    papers = [row for row in rows if row.papers and not row.departs]
    others = [row for row in rows if not row.papers or row.departs]
    kinds = [("Comparisons", rows)] if board.is_own else [("Claims of the paper", papers),
                                                         ("Questions of our own" if papers else "Claims", others)]
    bars = [Bar(title, _by_verdict(members)) for title, members in kinds if members]
    tones = bonus_tones(board.rows)
    if tones.total() > 1:
        bars.append(Bar("With and without a bonus", _parts({(tone, _BONUS.get(tone, tone)): count
                                                            for tone, count in tones.items()})))
    return bars


def _by_verdict(rows: Iterable[ScoreRow]) -> list[Part]:
    return _parts(Counter(("masked", f"{row.verdict.word} {ONLY_ATTACKS}") if row.is_masked else
                          (row.verdict.tone, row.verdict.word) for row in rows))


def _parts(counts: Mapping[tuple[str, str], int]) -> list[Part]:
    order = sorted(counts, key=lambda key: _TONES.index(key[0]) if key[0] in _TONES else len(_TONES))
    return [Part(counts[key], key[1], key[0]) for key in order]
