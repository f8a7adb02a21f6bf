"""``encouraging results``: the page of results, from records."""

from __future__ import annotations

from pathlib import Path

from ..engine.outputs import check_output, write_output
from ..report.results import results_page


def write_results(records: Path, out: Path) -> None:
    """Write the Markdown page of the recipes that have records below a folder."""
    check_output(out, [records])
    write_output(out, results_page(records).encode())
