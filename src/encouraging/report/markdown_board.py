"""The scoreboard as Markdown: whole for the page of results, and short for a README or any other page.

Short forms stand between markers, ``<!-- scoreboard: NAME -->`` and ``<!-- end of scoreboard -->``;
``encouraging results --update FILE`` writes them anew.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace

from ..engine.records import Record
from ..errors import ArgumentError, did_you_mean
from ..judge.attack_names import attack_words
from ..recipes import kept_recipes, names, read_recipe
from .board import Scoreboard, ScoreRow, scoreboard_of
from .numbers import PLAIN, plural, signed
from .scoreboard import score_rows, unmeasured_rows

_BLOCK = re.compile(r"(<!-- scoreboard: *(\S+) *-->\n)(.*?)(<!-- end of scoreboard -->)", re.DOTALL)
_OPENING = re.compile(r"<!-- scoreboard:")
_TONES = {"good": "better with a bonus", "bad": "worse with a bonus",
          "masked": "better only under attacks that follow cross-entropy", "same": "no difference", "open": "undecided"}
_VERDICTS = {"good": "better", "bad": "worse", "masked": "better", "same": "no difference", "open": "undecided"}


def board_of_records(records: Sequence[Record]) -> Scoreboard | None:
    """The board of all recipes that have records, and of what the paper claims beyond them."""
    shipped = {name: read_recipe(name) for name in names()}
    recipes = {**kept_recipes(records), **shipped}
    measured = [name for name in recipes if any(record.recipe == name for record in records)]
    rows = [row for name in measured
            for row in score_rows(recipes[name], [record for record in records if record.recipe == name])]
    # A page about nothing but the reader's own recipes is not about the paper.
    return scoreboard_of([*rows, *(unmeasured_rows(shipped, measured) if shipped.keys() & set(measured) else ())])


def whole_board(board: Scoreboard, notes: Sequence[str] = ()) -> list[str]:
    """Every claim in one table, kind by kind, below the verdicts in one sentence and the notes."""
    lines = [line for text in (board.answer, *notes) for line in (text, "")]
    for title, rows in board.kinds:
        heading, _, words = title.partition(": ")
        lines += [f"### {heading}", "", *([plain_text(words), ""] if words else [])]
        if any(row.measured for row in rows):
            lines += table(["claim", "recipe", *(["in the paper", "paper"] if board.has_paper else []), "ours", "n",
                            "difference", "interval", "verdict"])
            lines += [cells([_claim(row), f"[{row.recipe}](#{row.recipe})",
                             *([row.source, row.paper_words(PLAIN)] if board.has_paper else []), row.our_words(PLAIN),
                             str(row.n), row.difference_words(PLAIN), row.interval_words(PLAIN),
                             _judged(row)]) for row in rows]
        else:
            lines += table(["claim", "in the paper", "paper", "command"])
            lines += [cells([_claim(row), row.source, row.paper_words(PLAIN), f"`{row.command}`"]) for row in rows]
        lines.append("")
    return lines


def short_board(board: Scoreboard) -> list[str]:
    """Where a bonus helped and where it did not: one line per answer. Recipes that compare several arms name them."""
    rows = [row for row in board.rows if row.bonus]
    pairs = {(row.recipe, _arms(row)) for row in rows if row.measured}
    several = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}
    lines = table(["", "without -> with a bonus, over n seeds"])
    for tone, words in _TONES.items():
        if members := [row for row in rows if row.measured and _tone(row) == tone]:
            lines.append(cells([f"**{words}**", _by_recipe(members, several, tone)]))
    if waiting := [row for row in rows if not row.measured]:
        recipes = dict.fromkeys(row.recipe for row in waiting)
        lines.append(cells(["not measured yet", f"{plural(len(waiting), 'claim')} about a bonus, in "
                            + ", ".join(f"`{name}`" for name in recipes)]))
    return lines


def accuracy_board(board: Scoreboard) -> list[str]:
    """The metric that a task is judged by, without and with a bonus."""
    lines = table(["setting", "without", "with a bonus", "difference", "interval", "n", "verdict"])
    for row in board.rows:
        if row.measured and row.is_primary and row.bonus:
            seen = _towards_bonus(row)
            lines.append(cells([f"`{row.recipe}`: {_arms(row)}", *_without_and_with(row),
                                seen.difference_words(PLAIN), seen.interval_words(PLAIN), str(row.n),
                                _VERDICTS[_tone(row)]]))
    return lines


FORMS: Mapping[str, Callable[[Scoreboard], list[str]]] = {"short": short_board, "accuracy": accuracy_board}


def updated(text: str, board: Scoreboard, source: str) -> str:
    """A page with everything between its markers written anew; its errors are those of :func:`check_markers`."""
    check_markers(text, source)
    return _BLOCK.sub(lambda match: f"{match[1]}\n" + "\n".join(FORMS[match[2]](board)) + f"\n\n{match[4]}", text)


def check_markers(text: str, source: str) -> None:
    """Whether a page can be written anew.

    Raises:
        ArgumentError: it has no markers, one is not closed, or a form has another name.
    """
    forms = [match[2] for match in _BLOCK.finditer(text)]
    for name in forms:
        if name not in FORMS:
            raise ArgumentError(f"{source}: <!-- scoreboard: {name} -->: expected one of {', '.join(FORMS)}."
                              + did_you_mean(name, FORMS))
    if len(forms) != len(_OPENING.findall(text)) or not (forms or "<!-- figure:" in text):
        raise ArgumentError(f"{source}: expected <!-- scoreboard: short --> on a line of its own and, below it, "
                            "<!-- end of scoreboard -->; what is between them is written anew.")


def _by_recipe(rows: Iterable[ScoreRow], several: Container[str], tone: str) -> str:
    """The rows of each recipe in one line; those of the recipes in ``several`` say which arms they compare."""
    every: dict[str, list[ScoreRow]] = {}
    for row in rows:
        every.setdefault(row.recipe, []).append(row)
    lines = []
    for name, members in every.items():
        together: dict[tuple[str, str], list[ScoreRow]] = {}
        for row in members:  # the sizes of an attack together
            together.setdefault((_attack(row) or row.row.metric.words, _arms(row)), []).append(row)
        arms: dict[str, list[str]] = {}
        for (_, pair), found_rows in together.items():
            arms.setdefault(_measure(found_rows, tone), []).append(pair)
        found = [measure + (f" ({_pairs(pairs, tone)})" if name in several else "") for measure, pairs in arms.items()]
        counts = sorted({row.n for row in members})
        n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        lines.append(f"`{name}`, n = {n}: {'; '.join(found)}")
    return "<br>".join(lines)


def _pairs(pairs: Sequence[str], tone: str) -> str:
    """The arms that were compared; of many that are undecided their number says enough."""
    return f"{len(pairs)} pairs of arms" if tone == "open" and len(pairs) > 2 else ", ".join(pairs)


def _measure(rows: Sequence[ScoreRow], tone: str) -> str:
    """What was measured, at one size of an attack or at several, with the numbers of a tone that has them."""
    attack, metric = _attack(rows[0]), rows[0].row.metric
    words = plain_text(metric.words)
    if attack:
        words = f"accuracy under {attack_words(attack, *(_size(row) for row in rows))}"
    if tone == "masked":
        gains, left = _span(row.row.comparison.mean for row in rows), _span(_left(row) for row in rows)
        return f"{words} {gains}, scale-free {left}"
    if tone in ("good", "bad"):
        return f"{words} {', '.join(' -> '.join(_without_and_with(row)) for row in rows)}"
    return words


def _attack(row: ScoreRow) -> str:
    """The attack that a row is about, or nothing."""
    first, _, rest = row.row.claim.metric.partition(".")
    return rest.partition(".")[0] if first == "attacks" else ""


def _size(row: ScoreRow) -> str:
    return row.row.claim.metric.split(".", 2)[2]


def _left(row: ScoreRow) -> float:
    return row.gain.difference if row.gain else math.nan


def _span(numbers: Iterable[float]) -> str:
    """Differences in points, from the smallest to the largest."""
    ends = sorted(numbers)
    words = list(dict.fromkeys(signed(end, 1, PLAIN) for end in (ends[0], ends[-1])))
    return " to ".join(words)


def _arms(row: ScoreRow) -> str:
    """The arm with a bonus first."""
    arms = [row.row.claim.arm, str(row.row.claim.beats)]
    return plain_text(" against ".join(arms[::row.bonus]))


def _tone(row: ScoreRow) -> str:
    """The tone of the verdict on the bonus, which is the other one where the claim is that it costs; and a gain under
    attack that scale-free attacks do not confirm has a tone of its own."""
    tone = "masked" if row.is_masked else row.verdict.tone
    return {"good": "bad", "bad": "good"}.get(tone, tone) if row.bonus < 0 else tone


def _towards_bonus(row: ScoreRow) -> ScoreRow:
    """The same row with differences that are positive where the bonus is better."""
    if row.bonus > 0:
        return row
    found = row.row.comparison
    return replace(row, row=replace(row.row, comparison=replace(found, mean=-found.mean, low=-found.high,
                                                                high=-found.low)))


def _without_and_with(row: ScoreRow) -> list[str]:
    return row.our_words(PLAIN).split(" -> ")[::row.bonus]


def _judged(row: ScoreRow) -> str:
    return f"**{row.verdict.word}**" + (f"; {row.left_words(PLAIN)}" if row.is_masked else "")


def _claim(row: ScoreRow) -> str:
    return plain_text(row.sentence) + (" (lower is better)" if row.lower_is_better else "")


def plain_text(words: str) -> str:
    """Text of unknown origin, such as a device's name, so that Markdown and HTML show it as it is.

    >>> plain_text("a|b <img> *c* mse_softmax `d`\\n# e")
    'a\\\\|b &lt;img&gt; \\\\*c\\\\* mse_softmax \\\\`d\\\\` # e'
    """
    text = " ".join(words.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*\[\]|]|^[#+-])", r"\\\1", text)
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # inside a word it means nothing


def table(head: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [cells(head), "|" + " --- |" * len(head)]


def cells(words: Sequence[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(words) + " |"
