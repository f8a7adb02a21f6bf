"""Does a bonus help? The scoreboard's rows that compare a loss with and without one, in short tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..judge.attack_names import attack_words
from .board import Scoreboard, ScoreRow
from .bonus import tone_of
from .markdown_table import cells, plain_text, table
from .numbers import PLAIN, plural, range_words, signed

_DECIDED = {"good": "better", "bad": "worse", "masked": "better only under attacks that follow cross-entropy"}
_OPEN = {"same": "No difference", "open": "Undecided"}
_VERDICTS = {"good": "better", "bad": "worse", "masked": "better", "same": "no difference", "open": "undecided"}


def short_board(board: Scoreboard) -> list[str]:
    """Where a bonus helped and where it cost something, one line per number; the rest is counted by recipe."""
    rows = [row for row in board.rows if row.bonus]
    measured = [row for row in rows if row.measured]
    pairs = Counter(recipe for recipe, _ in {(row.recipe, _arms(row)) for row in measured})
    lines = table(["with a bonus", "recipe", "measured", "without -> with", "seeds"])
    for tone, words in _DECIDED.items():
        for number, members in enumerate(_by_line(row for row in measured if tone_of(row) == tone)):
            recipe, arms = members[0].recipe, _arms(members[0])
            lines.append(cells([f"**{words}**" if number == 0 else "",
                                f"`{recipe}`" + (f" ({arms})" if pairs[recipe] > 1 else ""), _measured(members),
                                _numbers(members, tone), range_words(row.n for row in members)]))
    return [*lines, *counts_of(rows, _OPEN)]


def counts_of(rows: Sequence[ScoreRow], tones: Mapping[str, str]) -> list[str]:
    """How many comparisons have these tones, by recipe, and how many were not measured: a sentence each."""
    groups = [(words, [row for row in rows if row.measured and tone_of(row) == tone]) for tone, words in tones.items()]
    groups.append(("Not measured yet", [row for row in rows if not row.measured]))
    lines = []
    for words, members in groups:
        if members:
            counts = Counter(row.recipe for row in members)
            lines += ["", f"**{words}**: {plural(len(members), 'comparison')}, in "
                      + ", ".join(f"`{name}` ({count})" for name, count in counts.items()) + "."]
    return lines


def accuracy_board(board: Scoreboard) -> list[str]:
    """The metric that a task is judged by, without and with a bonus."""
    lines = table(["setting", "without", "with a bonus", "difference", "interval", "n", "verdict"])
    for row in board.rows:
        if row.measured and row.is_primary and row.bonus:
            oriented = _towards_bonus(row)
            lines.append(cells([f"`{row.recipe}`: {_arms(row)}", *without_and_with(row),
                                oriented.difference_words(PLAIN), oriented.interval_words(PLAIN), str(row.n),
                                _VERDICTS[tone_of(row)]]))
    return lines


def _by_line(rows: Iterable[ScoreRow]) -> list[list[ScoreRow]]:
    """Rows that one line can show, those of an attack at several sizes; lines of one recipe follow each other."""
    recipes: dict[str, dict[tuple[str, str], list[ScoreRow]]] = {}
    for row in rows:
        lines = recipes.setdefault(row.recipe, {})
        lines.setdefault((_attack(row) or row.row.metric.words, _arms(row)), []).append(row)
    return [members for lines in recipes.values() for members in lines.values()]


def _measured(rows: Sequence[ScoreRow]) -> str:
    """The metric, at one size of an attack or at several."""
    if attack := _attack(rows[0]):
        return plain_text(f"accuracy under {attack_words(attack, *(_size(row) for row in rows))}")
    return plain_text(rows[0].row.metric.words) + (" (lower is better)" if rows[0].lower_is_better else "")


def _numbers(rows: Sequence[ScoreRow], tone: str) -> str:
    """Both sides; of gains that scale-free attacks do not confirm, the gains and what is left of them."""
    if tone != "masked":
        return ", ".join(" -> ".join(without_and_with(row)) for row in rows)
    gains, remaining = (row.row.comparison.mean for row in rows), (_scale_free_difference(row) for row in rows)
    return f"{_span(gains)}; scale-free {_span(remaining)}"


def _attack(row: ScoreRow) -> str:
    """The attack that a row is about, or nothing."""
    kind, _, path = row.row.claim.metric.partition(".")
    return path.partition(".")[0] if kind == "attacks" else ""


def _size(row: ScoreRow) -> str:
    return row.row.claim.metric.split(".", 2)[2]


def _scale_free_difference(row: ScoreRow) -> float:
    return row.gain.difference if row.gain else math.nan


def _span(numbers: Iterable[float]) -> str:
    """Differences in points, from the smallest to the largest."""
    ordered = sorted(numbers)
    words = list(dict.fromkeys(signed(number, 1, PLAIN) for number in (ordered[0], ordered[-1])))
    return " to ".join(words)


def _arms(row: ScoreRow) -> str:
    """The arm with a bonus first."""
    arms = [row.row.claim.arm, str(row.row.claim.beats)]
    return plain_text(" against ".join(arms[::row.bonus]))


def _towards_bonus(row: ScoreRow) -> ScoreRow:
    """The same row with differences that are positive where the bonus is better."""
    if row.bonus > 0:
        return row
    comparison = row.row.comparison
    return replace(row, row=replace(row.row, comparison=replace(comparison, mean=-comparison.mean, low=-comparison.high,
                                                                high=-comparison.low)))


def without_and_with(row: ScoreRow) -> list[str]:
    return row.our_words(PLAIN).split(" -> ")[::row.bonus]
