"""The tables of ``docs/cifar.md`` that no command writes: their numbers are the means over the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from encouraging.judge.claims import number_at

ROOT = Path(__file__).parents[1]
METRICS = {"best accuracy": "best_accuracy", "negative log-likelihood": "nll", "ECE": "ece",
           "ECE after temperature scaling": "temperature.ece_after",
           "likelihood through the loss": "posterior.nll", "ECE through the loss": "posterior.ece"}


def finals(recipe: str, arm: str) -> dict[int, dict[str, Any]]:
    """The final numbers of an arm's runs by seed."""
    records = [json.loads(path.read_text()) for path in sorted((ROOT / "results" / recipe).glob(f"{arm}-seed*.json"))]
    return {record["asked"]["seed"]: record["final"] for record in records}


def table(header: str) -> list[list[str]]:
    """The rows of the page's table with these columns."""
    lines = (ROOT / "docs" / "cifar.md").read_text().splitlines()
    start = lines.index(header) + 2
    end = next(number for number, line in enumerate(lines[start:], start) if not line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]


def same(value: float, cell: str) -> bool:
    """Whether a number is the one of a cell, to as many digits."""
    return f"{value:.{len(cell.partition('.')[2])}f}" == cell.removeprefix("+")


@pytest.mark.parametrize(("recipe", "columns"), [
    ("cifar100-learning-rate-quick", ["negative log-likelihood", "ECE", "ECE after temperature scaling"]),
    ("cifar10-label-smoothing-quick", ["best accuracy", "negative log-likelihood", "ECE",
                                       "ECE after temperature scaling"]),
    ("cifar10-resnet50-quick", ["negative log-likelihood", "ECE", "ECE after temperature scaling",
                                "likelihood through the loss", "ECE through the loss"])])
def test_the_means_are_those_of_the_records(recipe: str, columns: list[str]) -> None:
    rows = table(f"| {' | '.join(['arm', *columns])} |")
    assert len(rows) > 1
    for arm, *cells in rows:
        runs = finals(recipe, arm)
        for column, cell in zip(columns, cells, strict=True):
            values = [number_at(final, METRICS[column]) for final in runs.values()]
            measured = [value for value in values if value is not None]
            assert len(measured) == (len(runs) if cell else 0), (arm, column)
            assert not cell or same(sum(measured) / len(measured), cell), (arm, column, cell)


def test_every_seed_of_the_resnet_50_is_shown() -> None:
    without, bonus = (finals("cifar10-resnet50-quick", arm) for arm in ("ce", "el_075"))
    rows = table("| seed | best accuracy, ce | best accuracy, el_075 | difference |")
    assert [int(row[0]) for row in rows] == sorted(without.keys() & bonus.keys())
    for seed, *cells in rows:
        ours, theirs = (side[int(seed)]["best_accuracy"] for side in (bonus, without))
        for value, cell in zip((theirs, ours, ours - theirs), cells, strict=True):
            assert same(value, cell), (seed, cell)
