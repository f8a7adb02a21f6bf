"""The table of costs: time and memory per run, and the machine."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ..arms import Group
from ..numbers import listed, show
from .parts import Cell, Table


def costs(groups: Sequence[Group]) -> Table:
    """One row per recipe."""
    rows = []
    for group in groups:
        timing = [record.timing for record in group.records]
        seconds = [float(t["seconds"]) for t in timing if "seconds" in t]
        memory = [float(t["peak_memory_mib"]) for t in timing if "peak_memory_mib" in t]
        devices = sorted({str(t["device"]) for t in timing if "device" in t})
        versions = [f"{name} {', '.join(numbers)}" for name in ("encouraging", "torch", "python")
                    if (numbers := sorted({str(t[name]) for t in timing if name in t}))]
        rows.append([Cell(group.name), Cell(str(len(timing)), f"seeds {_seeds(group.seeds)}"),
                     Cell(f"{show(fmean(seconds), 1)} s", f"{show(sum(seconds) / 60, 1)} min in all") if seconds
                     else Cell("–"), Cell(f"{show(max(memory), 0)} MiB") if memory else Cell("–"),
                     Cell(listed(devices) or "–", ", ".join(versions), True)])
    return Table("Cost per run: the mean time, and the largest memory use of any run. Runs that share a device take "
                 "longer than one alone.",
                 ["recipe", "runs", "time per run", "memory", "machine"], rows)


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return listed([str(seed) for seed in seeds])
