"""``encouraging collect``: one small record per finished run, or one per arm."""

from __future__ import annotations

from pathlib import Path

from ..engine.records import collect, collect_by_arm, read_records
from ..errors import RunError


def collect_records(runs: Path, out: Path, by_arm: bool = False) -> list[Path]:
    """Write the records of all finished runs below a folder; their paths."""
    written = collect_by_arm(runs, out) if by_arm else collect(runs, out)
    if not written and not read_records(runs, failed=True):
        raise RunError(f"{runs}: no finished run is below it; a run is finished when its folder has a final.json.")
    return written
