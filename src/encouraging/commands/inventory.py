"""Tables that ``encouraging list`` and ``encouraging doctor`` share."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from ..data import DATASETS, data_dir, missing


def new_table(title: str, *heads: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, head in enumerate(heads):
        table.add_column(head, overflow="fold", no_wrap=number == 0)  # the first column has names, which stay whole
    return table


def dataset_table(data: str | None) -> tuple[Table, bool]:
    """The datasets and where they are, and whether any is missing that can be downloaded."""
    folder, any_missing = data_dir(data), False
    table = new_table(f"datasets in {folder}", "name", "training part", "test part")
    for name, dataset in DATASETS.items():
        files = dataset.test or dataset.train  # a text in one file is split by the recipe
        absent = {"train": missing(name, folder, ("train",)),
                  "test": missing(name, folder, ("test" if dataset.test else "train",))}
        where = str(Path(files[0].path).parent) if files else "in scikit-learn"
        table.add_row(name, *("missing" if absent[split] else where for split in ("train", "test")))
        any_missing = any_missing or (any(absent.values()) and not dataset.by_hand)
    return table, any_missing
