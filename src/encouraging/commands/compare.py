"""``encouraging compare``: verdicts on the numbers of any script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ..engine.outputs import check_output
from ..report.comparison import compare
from .run_table import print_claims


def compare_file(path: Path, metrics: Sequence[str], out: Path | None, *, console: Console | None = None,
                 **how: Any) -> list[Path]:
    """Print the claims about the numbers of a file and write their page; the files that were written."""
    if out is not None:
        check_output(out, [path])
    found = compare(path, metrics, **how)
    print_claims(console or Console(), found.rows)
    return [] if out is None else [found.write(out)]
