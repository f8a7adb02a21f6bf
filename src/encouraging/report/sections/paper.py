"""The section that puts the paper's tables beside our numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources

from ...judge.stats import mean_of
from ..arms import Group
from .parts import Cell, Section, Table, deviation_cell


def section(groups: Sequence[Group]) -> Section | None:
    """Tables of the paper for which there are runs, ours beside theirs."""
    text = resources.files(__package__).joinpath("paper.toml").read_text(encoding="utf-8")
    arms = {(group.name, arm.name): arm for group in groups for arm in group.arms}
    tables, notes = [], []
    for entry in tomllib.loads(text)["tables"]:
        rows = []
        for row in entry["rows"]:
            arm = arms.get((row["recipe"], row["arm"]))
            cells = [Cell(row["words"])]
            measured = False
            for column, theirs in zip(entry["columns"], row["values"], strict=True):
                mean = arm.mean(column["metric"]) if arm else mean_of([])
                measured = measured or mean.n > 0
                cells += [Cell(theirs.replace("-", "−")), deviation_cell(mean, column["digits"])]
            if measured:
                rows.append(cells)
        if rows:
            tables.append(Table(f"{entry['title']}. {entry['caption']} Ours: mean over the seeds ± standard deviation.",
                                ["", *["paper", "ours"] * len(entry["columns"])], rows,
                                [("", 1), *((column["words"], 2) for column in entry["columns"])]))
            notes += entry.get("notes", [])
    if not tables:
        return None
    return Section("paper", "Beside the paper", ["The paper’s numbers come from its tables, ours from the runs on this "
                                                 "page."], (), tables, notes)
