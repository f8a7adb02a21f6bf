"""The scoreboard as Markdown: every claim, kind by kind, for the page of results."""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.records import Record
from ..recipes import kept_recipes, names, read_recipe
from .board import Scoreboard, ScoreRow, scoreboard_of
from .markdown_table import cells, plain_text, table
from .numbers import PLAIN
from .scoreboard import score_rows, unmeasured_rows


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
            # The answer comes first: on most screens the last columns of a wide table are out of sight.
            lines += table(["claim", "verdict", "difference", "interval", "n", "ours",
                            *(["paper"] if board.has_paper else []), "recipe",
                            *(["in the paper"] if board.has_paper else [])])
            lines += [cells([_claim(row), _judged(row), row.difference_words(PLAIN), row.interval_words(PLAIN),
                             str(row.n), row.our_words(PLAIN), *([row.paper_words(PLAIN)] if board.has_paper else []),
                             f"[{row.recipe}](#{row.recipe})", *([row.source] if board.has_paper else [])])
                      for row in rows]
        else:
            lines += table(["claim", "in the paper", "paper", "command"])
            lines += [cells([_claim(row), row.source, row.paper_words(PLAIN), f"`{row.command}`"]) for row in rows]
        lines.append("")
    return lines


def _judged(row: ScoreRow) -> str:
    return f"**{row.verdict.word}**" + (f"; {row.left_words(PLAIN)}" if row.is_masked else "")


def _claim(row: ScoreRow) -> str:
    return plain_text(row.sentence) + (" (lower is better)" if row.lower_is_better else "")
