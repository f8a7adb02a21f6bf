"""``encouraging report``: one HTML page about many runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..engine.records import read_records
from ..report.page import write_report


def report_on(runs: Sequence[Path], out: Path, figures: Path | None = None) -> list[Path]:
    """Write the page, and every figure where a folder for them is given; the paths of all files."""
    return write_report(read_records(*runs, failed=True), out, figures=figures)
