"""Names of metrics and arms in tables of the terminal: in a narrow column they break at dots and underscores."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_BREAKS = re.compile(r"(?<=[_.])(?<!\d\.)(?=[^_.])")  # not after the dot of a number such as 0.1


class LongNames:
    """Words of a table's cell, taken literally. A word wider than the column breaks after a dot or underscore. Words
    that are longer than ``room`` ask for that many columns at least."""

    def __init__(self, words: str, room: int = 0) -> None:
        self.words, self.room = words, room

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(broken(self.words, options.max_width)))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        pieces = [piece for word in self.words.split() for piece in _BREAKS.split(word)]
        widest = max([*map(cell_len, pieces), min(self.room, cell_len(self.words))])
        return Measurement(min(widest, options.max_width), min(cell_len(self.words), options.max_width))


def broken(words: str, width: int) -> list[str]:
    """Words as lines of at most ``width`` columns; a piece that cannot be broken may be wider.

    >>> broken("attacks.fgsm_scale_free.0.1", 17)
    ['attacks.fgsm_', 'scale_free.0.1']
    >>> broken("el beats ce: best_accuracy", 14)
    ['el beats ce:', 'best_accuracy']
    """
    lines = [""]
    for word in words.split():
        pieces = [word] if cell_len(word) <= width else _BREAKS.split(word)
        for number, piece in enumerate(pieces):
            longer = lines[-1] + (" " if number == 0 and lines[-1] else "") + piece
            if not lines[-1] or cell_len(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(piece)
    return lines
