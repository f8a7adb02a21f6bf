"""The section of costs: machine, memory, time and epochs of a run, ours beside the paper's."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from statistics import median
from typing import Any

from ...judge.metric_words import counted_words
from ..arms import Group
from ..numbers import listed, show
from .parts import Cell, Section, Table

_COLUMNS = ("device", "memory", "time", "epochs")
_LEAD = ("What one training costs: the median time, and the largest memory use of any run. Runs that share a device "
         "take longer than one alone, and different devices cannot be compared by time.")


def section(groups: Sequence[Group], whole_paper: bool = False) -> Section:
    """One row per recipe, beside the paper's row where it has one; with ``whole_paper`` also its rows without runs."""
    rows, used = [], []
    for group in groups:
        theirs = _paper_row(group)
        used.append(theirs)
        rows.append([Cell(group.name, theirs["words"] if theirs else ""), *_ours(group), *_theirs(theirs)])
    if whole_paper:
        rows += [[Cell(entry["words"]), Cell("–"), Cell("–", words=True), *[Cell("–")] * (len(_COLUMNS) - 1),
                  *_theirs(entry)]
                 for entry in paper_costs() if entry not in used]
    beside = any(used) or whole_paper
    head = ["recipe", "runs", *_COLUMNS, *(_COLUMNS if beside else ())]
    groups_of_columns = [("", 2), ("ours", len(_COLUMNS)), ("the paper’s Table 6", len(_COLUMNS))] if beside else []
    table = Table("", head, [row if beside else row[:len(head)] for row in rows], groups_of_columns)
    return Section("costs", "Costs", [_LEAD], (), [table])


def paper_costs() -> list[dict[str, Any]]:
    """The rows of the paper's table."""
    text = resources.files(__package__).joinpath("paper.toml").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = tomllib.loads(text)["costs"]
    return entries


def _paper_row(group: Group) -> dict[str, Any] | None:
    """The paper's row of the same data and model."""
    config = group.records[0].config
    data, model = (str(config.get(key, "")).lower() for key in ("data", "model"))
    return next((entry for entry in paper_costs() if entry["data"] == data and entry["model"] in model), None)


def _theirs(entry: dict[str, Any] | None) -> list[Cell]:
    words = entry["paper"] if entry else ["–"] * len(_COLUMNS)
    return [Cell(word, words=number == 0) for number, word in enumerate(words)]


def _ours(group: Group) -> list[Cell]:
    timing = [record.timing for record in group.records]
    seconds = [float(t["seconds"]) for t in timing if "seconds" in t]
    memory = [float(t["peak_memory_mib"]) for t in timing if "peak_memory_mib" in t]
    epochs = [float(record.trained_epochs) for record in group.records if record.trained_epochs]
    samples = [float(record.timing["samples"]) / record.trained_epochs for record in group.records
               if record.trained_epochs and "samples" in record.timing]
    of_samples = f"of {_range(samples)} {counted_words(group.records[0])}" if samples else ""
    devices = sorted({str(t["device"]) for t in timing if "device" in t})
    versions = [f"{name} {', '.join(numbers)}" for name in ("encouraging", "torch", "python")
                if (numbers := sorted({str(t[name]) for t in timing if name in t}))]
    return [Cell(str(len(timing)), f"seeds {_seeds(group.seeds)}"),
            Cell(listed(devices) or "–", ", ".join(versions), True),
            Cell(f"{show(max(memory), 0)} MiB") if memory else Cell("–"),
            Cell(duration(median(seconds)), f"{duration(sum(seconds))} in all") if seconds else Cell("–"),
            Cell(_range(epochs), of_samples) if epochs else Cell("–")]


def duration(seconds: float) -> str:
    """
    >>> duration(27.3), duration(257), duration(48 * 3600)
    ('27.3 s', '4.3 min', '48.0 h')
    """
    if seconds < 120:
        return f"{show(seconds, 1)} s"
    return f"{show(seconds / 60, 1)} min" if seconds < 7200 else f"{show(seconds / 3600, 1)} h"


def _range(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,.0f}" if round(low) == round(high) else f"{low:,.0f} to {high:,.0f}"


def _seeds(seeds: Sequence[int]) -> str:
    """Sorted seeds in words: one after another as a range, which is never written out, as seeds may be far apart.

    >>> _seeds([0, 1, 2]), _seeds([1, 42, 2**62])
    ('0 to 2', '1, 42 and 4611686018427387904')
    """
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]} to {seeds[-1]}"
    return listed([str(seed) for seed in seeds])
