"""Short forms of the scoreboard inside any Markdown page.

They are placed between markers, ``<!-- scoreboard: NAME -->`` and ``<!-- end of scoreboard -->``, by
``encouraging results --update FILE``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..errors import ArgumentError, did_you_mean
from .board import Scoreboard
from .markdown_bonus import accuracy_board, short_board
from .markdown_questions import question_board

_BLOCK = re.compile(r"(<!-- scoreboard: *(\S+) *-->\n)(.*?)(<!-- end of scoreboard -->)", re.DOTALL)
_OPENING = re.compile(r"<!-- scoreboard:")
FORMS: Mapping[str, Callable[[Scoreboard], list[str]]] = {
    "questions": question_board, "short": short_board, "accuracy": accuracy_board}


def with_scoreboards(text: str, board: Scoreboard, source: str) -> str:
    """The page with its scoreboards replaced by those of the records; raises as :func:`check_markers` does."""
    check_markers(text, source)
    return _BLOCK.sub(lambda match: f"{match[1]}\n" + "\n".join(FORMS[match[2]](board)) + f"\n\n{match[4]}", text)


def check_markers(text: str, source: str) -> None:
    """Check that the markers of a page are complete.

    Raises:
        ArgumentError: the page has no markers, one is not closed, or a form is unknown.
    """
    forms = [match[2] for match in _BLOCK.finditer(text)]
    for name in forms:
        if name not in FORMS:
            raise ArgumentError(f"{source}: <!-- scoreboard: {name} -->: expected one of {', '.join(FORMS)}."
                              + did_you_mean(name, FORMS))
    if len(forms) != len(_OPENING.findall(text)) or not (forms or "<!-- figure:" in text):
        raise ArgumentError(f"{source}: expected <!-- scoreboard: short --> on a line of its own and, below it, "
                            "<!-- end of scoreboard -->; what is between them is replaced.")
