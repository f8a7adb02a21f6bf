"""``encouraging report``: one HTML page about many runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ..engine.outputs import check_output
from ..recipes import names, read_recipe, read_runs
from ..report.page import write_report

WHOLE_PAPER = 8  # from so many recipes of the paper on, the page is about the whole paper


def report_on(runs: Sequence[Path], out: Path, figures: Path | None = None, *,
              console: Console | None = None) -> list[Path]:
    """Write the page, and every figure where a folder for them is given; the paths of all files.

    Where the runs are of many of the paper's experiments, what else the paper has is listed as not measured.
    """
    check_output(out, runs, make_parents=True)
    with _status(console or Console()) as say:
        say("reading the runs")
        records = read_runs(*runs, failed=True)
        shipped = {record.recipe for record in records} & set(names())
        papers = sum(bool(read_recipe(name).paper) for name in shipped)
        return write_report(records, out, figures=figures, whole_paper=papers >= WHOLE_PAPER, say=say)


@contextmanager
def _status(console: Console) -> Iterator[Callable[[str], None]]:
    """A progress line that disappears at the end; none where the output is not a terminal."""
    if not console.is_terminal:
        yield lambda words: None
        return
    with console.status("") as status:
        yield lambda words: status.update(Text(words))
