"""``encouraging collect``: one small record per finished run."""

from __future__ import annotations

from pathlib import Path

from ..engine.records import collect


def collect_records(runs: Path, out: Path) -> list[Path]:
    """Write the records of all finished runs below a folder; their paths."""
    return collect(runs, out)
