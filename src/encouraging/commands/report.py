"""``encouraging report``: one HTML page about many runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ..engine.outputs import check_output
from ..recipes import names, read_recipe, read_runs
from ..report.page import write_report

PRINT_EVERY = 10.0  # seconds between two lines, where there is no terminal
WHOLE_PAPER = 8  # from so many recipes of the paper on, the page is about the whole paper


def report_on(runs: Sequence[Path], out: Path, figures: Path | None = None, *,
              console: Console | None = None) -> list[Path]:
    """Write the page, and every figure where a folder for them is given; the paths of all files.

    Where the runs are of many of the paper's experiments, what else the paper has is listed as not measured.
    """
    check_output(out, runs, make_parents=True)
    with _status(console or Console(stderr=True)) as say:
        say("reading the runs")
        records = read_runs(*runs, failed=True)
        shipped = {record.recipe for record in records} & set(names())
        papers = sum(bool(read_recipe(name).paper) for name in shipped)
        return write_report(records, out, figures=figures, whole_paper=papers >= WHOLE_PAPER, say=say)


@contextmanager
def _status(console: Console) -> Iterator[Callable[[str], None]]:
    """A progress line that disappears at the end; where there is no terminal, a line now and then."""
    if not console.is_terminal:
        printed = time.monotonic()

        def print_rarely(words: str) -> None:
            nonlocal printed
            if time.monotonic() - printed >= PRINT_EVERY:
                printed = time.monotonic()
                console.print(words, markup=False, highlight=False, soft_wrap=True)

        yield print_rarely
        return
    with console.status("") as status:
        yield lambda words: status.update(Text(words))
