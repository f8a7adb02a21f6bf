"""Does a bonus help? What a reader asks first, each question answered by the claims that ``questions.toml`` names."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from .board import Scoreboard, ScoreRow
from .bonus import bonus_counts, tone_of
from .markdown_bonus import without_and_with
from .markdown_table import cells, plain_text, table
from .numbers import plural

_ANSWERS = {"good": "**better**", "bad": "**worse**", "masked": "better only under this attack",
            "same": "no difference", "open": "undecided"}


def question_board(board: Scoreboard) -> list[str]:
    """One line per setting of a question, and how many other comparisons there are."""
    rows = {(row.recipe, row.row.claim.metric, row.row.claim.arm, row.row.claim.beats): row
            for row in board.rows if row.bonus}
    lines = table(["", "setting", "without", "with a bonus", "seeds", "verdict"])
    measured = 0
    for question in _questions():
        answers = [(answer["setting"], row) for answer in question["answers"]
                   if (row := rows.get((answer["recipe"], answer["metric"], answer["arm"], answer["beats"])))]
        for number, (setting, row) in enumerate(answers):
            lines.append(cells([f"**{question['ask']}**" if number == 0 else "", plain_text(setting), *_answer(row)]))
        measured += sum(row.measured for _, row in answers)
    counts = bonus_counts(board.rows)
    return [*lines, "", f"These are {measured} of {counts.measured} comparisons: {counts.words}. "
            f"{plural(counts.unmeasured, 'more claim')} {'is' if counts.unmeasured == 1 else 'are'} not measured yet."]


@cache
def _questions() -> list[dict[str, Any]]:
    text = resources.files(__package__).joinpath("questions.toml").read_text(encoding="utf-8")
    questions: list[dict[str, Any]] = tomllib.loads(text)["questions"]
    return questions


def _answer(row: ScoreRow) -> list[str]:
    if not row.measured:
        return ["", "", "", "not measured yet"]
    return [*without_and_with(row), str(row.n), _ANSWERS[tone_of(row)]]
