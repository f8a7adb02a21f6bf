"""``encouraging report``: one HTML page about many runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..engine.outputs import check_output
from ..recipes import read_runs
from ..report.page import write_report


def report_on(runs: Sequence[Path], out: Path, figures: Path | None = None) -> list[Path]:
    """Write the page, and every figure where a folder for them is given; the paths of all files."""
    check_output(out, runs, make_parents=True)
    return write_report(read_runs(*runs, failed=True), out, figures=figures)
