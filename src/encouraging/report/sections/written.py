"""The section of language models: how each arm's model continues the test text."""

from __future__ import annotations

from collections.abc import Sequence

from ..arms import Arm
from .parts import Cell, Section, Table


def section(arms: Sequence[Arm]) -> Section | None:
    """None where no arm has written anything, as in records, which hold no text."""
    by_arm = [(arm, texts[0]) for arm in arms if (texts := arm.diagnosed("text", "sentences"))]
    if not by_arm:
        return None
    tables = []
    for prompt in dict.fromkeys(str(text["prompt"]) for _, text in by_arm):
        rows = [[Cell(arm.name), Cell(_on_one_line(str(text["written"])), words=True)]
                for arm, text in by_arm if text["prompt"] == prompt]
        tables.append(Table(f"What follows “{_on_one_line(prompt)}”, the beginning of the test text. A slash is the "
                            "end of a line.", ["arm", "continuation"], rows))
    return Section("written", "What the models write", [
        "The continuation by the model of each arm’s first seed, drawn token by token from its own probabilities, with "
        "the same random numbers. `encouraging generate RUN` writes more, from any beginning and at any temperature."],
        tables=tables)


def _on_one_line(text: str) -> str:
    return " / ".join("".join(map(_shown, line)).strip() for line in text.split("\n"))


def _shown(char: str) -> str:
    """A page must not hold control characters. A model of pieces can write any byte."""
    return char if char.isprintable() else " " if char.isspace() else "\N{REPLACEMENT CHARACTER}"
