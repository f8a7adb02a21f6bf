"""One file per arm that holds all its seeds, for experiments of many small runs such as splits of a graph dataset.

What all runs have in common is stored once. Final numbers are stored exactly. Of the training curves only the loss, the
primary metric and the monitored metric are stored; the curves and the diagnoses are rounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RunError

if TYPE_CHECKING:
    from .records import Record

DIGITS = 4  # significant digits of curves and diagnoses
OPTIONAL = ("failed", "looks", "attacks")  # fields that few runs have
STEPS = ("stage", "epoch", "step", "lr")  # columns that every curve has


def pack(records: Sequence[Record]) -> dict[str, Any]:
    """The content of an arm's file. All records must have the same recipe, arm and settings."""
    first = records[0]
    shared = {key: value for key, value in first.timing.items()
              if all(record.timing.get(key) == value for record in records)}
    parts = {"asked": {key: value for key, value in first.config.items() if key != "seed"},
             "environment": first.environment, "timing": shared, "metrics": first.metrics, "recipe": first.recipe_tree}
    curve_names = curves_of(first)
    runs = []
    for record in sorted(records, key=lambda record: record.seed):
        own: dict[str, Any] = {"environment": record.environment} if record.environment != first.environment else {}
        own |= {name: part for name in OPTIONAL if (part := getattr(record, name)) is not None}
        runs.append({"seed": record.seed, "final": record.final,
                     "timing": {key: value for key, value in record.timing.items() if key not in shared},
                     "epochs": columns(record.epochs, curve_names), "diagnosis": rounded(record.diagnosis), **own})
    return {**{name: part for name, part in parts.items() if part is not None}, "runs": runs}


def unpack(content: Mapping[str, Any], path: Path) -> list[Record]:
    """The records of an arm's file."""
    from .records import Record

    try:
        return [Record({**content["asked"], "seed": run["seed"]}, run.get("environment", content["environment"]),
                       run["final"], {**content.get("timing", {}), **run["timing"]}, lines(run["epochs"]),
                       run.get("diagnosis"), content.get("metrics"), content.get("recipe"),
                       **{name: run[name] for name in OPTIONAL if name in run}) for run in content["runs"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path}: expected a file of an arm's runs as this version writes it ({type(error).__name__}: "
                       f"{error}). Collect the runs again with `encouraging collect --by-arm`.") from error


def is_arm_file(content: Mapping[str, Any]) -> bool:
    return {"asked", "environment", "runs"} <= content.keys()


def curves_of(record: Record) -> tuple[str, ...]:
    """The columns of the training curves that are stored."""
    primary = [str(metric["path"]) for metric in record.metrics or () if metric.get("primary")]
    monitors = [str(stage["monitor"]) for stage in record.config.get("train", ()) if stage.get("monitor")]
    return (*STEPS, "loss", *dict.fromkeys([*primary, *monitors]))


def columns(epochs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """The lines of epochs as columns. A column of equal numbers is one number, an arithmetic sequence its ``from`` and
    ``by``.

    >>> columns([{"epoch": 1, "lr": 0.1, "loss": 0.123456}, {"epoch": 2, "lr": 0.1, "loss": 0.1}], STEPS + ("loss",))
    {'count': 2, 'epoch': {'from': 1, 'by': 1}, 'lr': 0.1, 'loss': [0.1235, 0.1]}
    """
    table: dict[str, Any] = {"count": len(epochs)}
    for name in names:
        column = [rounded(line.get(name)) for line in epochs]
        if any(value is not None for value in column):
            table[name] = _compress(column)
    return table


def lines(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines of epochs from which :func:`columns` made a table, except for the rounding.

    >>> lines({"count": 2, "epoch": {"from": 1, "by": 1}, "lr": 0.1, "loss": [0.1235, None]})
    [{'epoch': 1, 'lr': 0.1, 'loss': 0.1235}, {'epoch': 2, 'lr': 0.1}]
    """
    count = int(table["count"])
    expanded = {name: _expand(value, count) for name, value in table.items() if name != "count"}
    return [{name: column[row] for name, column in expanded.items() if column[row] is not None}
            for row in range(count)]


def _compress(column: list[Any]) -> Any:
    if all(value == column[0] for value in column):
        return column[0]
    if all(isinstance(value, int) for value in column):
        step = column[1] - column[0]
        if column == [column[0] + step * number for number in range(len(column))]:
            return {"from": column[0], "by": step}
    return column


def _expand(value: Any, count: int) -> list[Any]:
    if isinstance(value, Mapping):
        return [value["from"] + value["by"] * number for number in range(count)]
    if isinstance(value, list) and len(value) != count:
        raise ValueError(f"a curve has {len(value)} numbers for {count} epochs")
    return value if isinstance(value, list) else [value] * count


def rounded(value: Any) -> Any:
    """Round every number in nested lists and tables to :data:`DIGITS` significant digits.

    >>> rounded({"a": [1.23456, 7], "b": float("inf")})
    {'a': [1.235, 7], 'b': inf}
    """
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(inner) for key, inner in value.items()}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def text_of(content: Mapping[str, Any]) -> str:
    """JSON with one line per part and one per run."""
    head = [f"{json.dumps(name)}: {json.dumps(part)}" for name, part in content.items() if name != "runs"]
    runs = ",\n  ".join(json.dumps(run, separators=(",", ":")) for run in content["runs"])
    return "{\n " + ",\n ".join([*head, f'"runs": [\n  {runs}\n ]']) + "\n}\n"
