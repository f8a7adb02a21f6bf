"""``encouraging results``: the page of results, from records."""

from __future__ import annotations

from pathlib import Path

from ..report.results import results_page


def write_results(records: Path, out: Path) -> None:
    """Write the Markdown page of the recipes that have records below a folder."""
    out.write_text(results_page(records))
