"""Numbers per arm and seed from anywhere: a dict, rows, a table with columns, a CSV file or JSON lines.

Error messages name the line or row that is wrong. Nothing here needs torch or pandas.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DataError, did_you_mean
from .claims import number_at
from .number_files import ENDINGS, Row, content_of, joined_names, row_of

Numbers = dict[str, dict[int, dict[str, float]]]
ByArm = dict[str, dict[str, dict[str, float]]]  # by arm and by the seed as text


@dataclass(frozen=True)
class Reader:
    """Which columns, or paths inside rows, have the numbers, and which columns name the arm and the seed.

    ``arm`` may also be several columns, ``"ce,el"``, for a table with one column per arm: these have the numbers, the
    metric is only what they are called, and without a column of seeds every row is one.

    After :meth:`read`, ``empty`` says where a number is empty, and ``seed_names`` has the seeds as they were given.
    """

    metrics: Sequence[str]
    arm: str = "arm"
    seed: str = "seed"
    empty: list[str] = field(default_factory=list)
    seed_names: dict[int, str] = field(default_factory=dict)

    def read(self, source: Any) -> Numbers:
        """Numbers by arm, seed and metric.

        ``source`` is the path of a file; or a mapping from arms to numbers (a list, indexed by seed, or a
        mapping from seeds to numbers or to mappings of metrics); or a table: a mapping of columns, an object with
        ``columns`` such as a DataFrame, or rows that are mappings.
        """
        if isinstance(source, str | Path):
            source = content_of(Path(source))
        elif hasattr(source, "columns") and hasattr(source, "__getitem__"):
            _check_names(source.columns, "columns")
            return self._from_rows(_rows_of_columns({str(name): list(source[name]) for name in source.columns}))
        if isinstance(source, Mapping):
            if self.arm in source or self.seed in source:
                return self._from_rows(_rows_of_columns(source))
            return self._by_arm(source)
        if isinstance(source, Iterable):
            return self._from_rows(_as_rows(source))
        raise DataError(f"numbers are a {type(source).__name__}: expected a dict, a table with columns, rows, or the "
                        f"path of a file ({', '.join(ENDINGS)}).")

    def _from_rows(self, rows: Iterable[Row]) -> Numbers:
        by_arm: ByArm = {}
        for number, (where, cells) in enumerate(rows):
            if columns := self._columns_of_arms(cells):
                seed = self._label(cells, self.seed, where) if self.seed in cells else number
                for arm in columns:
                    self._add(by_arm, arm, seed, dict.fromkeys(self.metrics, _cell(cells, arm, where)),
                              f"{where}, column {arm}")
            else:
                arm, seed = (self._label(cells, name, where) for name in (self.arm, self.seed))
                self._add(by_arm, arm, seed, cells, where)
        return self._numbered(by_arm)

    def _columns_of_arms(self, cells: Mapping[str, Any]) -> list[str]:
        """The columns of a table that has one per arm; none where one column names the arms."""
        if self.arm in cells or "," not in self.arm:
            return []
        if len(self.metrics) > 1:
            raise DataError(f"arm {self.arm!r}: a table with one column per arm has one metric, got "
                            f"{joined_names(self.metrics)}. Several metrics need one row per arm and seed.")
        return [name.strip() for name in self.arm.split(",")]

    def _add(self, by_arm: ByArm, arm: Any, seed: Any, cells: Mapping[str, Any], where: str) -> None:
        seeds = by_arm.setdefault(str(arm), {})
        if (label := _seed_label(seed)) in seeds:
            raise DataError(f"{where}: arm {arm} with {self.seed} {label} appears twice; expected one row "
                            "per arm and seed. Where these are several runs, give each a seed of its own.")
        seeds[label] = self._numbers(cells, where)

    def _by_arm(self, source: Mapping[Any, Any]) -> Numbers:
        by_arm: ByArm = {}
        _check_names(source, "arms")
        for arm, values in source.items():
            if hasattr(values, "tolist"):
                values = values.tolist()
            if isinstance(values, list | tuple):
                values = dict(enumerate(values))
            if not isinstance(values, Mapping):
                raise DataError(f"arm {arm}: {type(values).__name__}; expected a list of numbers, one per seed, or a "
                                "mapping from seeds to numbers.")
            by_arm[str(arm)] = {}
            for seed, value in values.items():
                cells = value if isinstance(value, Mapping) else dict.fromkeys(self.metrics, value)
                self._add(by_arm, arm, seed, cells, f"arm {arm}, seed {seed}")
        return self._numbered(by_arm)

    def _label(self, cells: Mapping[str, Any], name: str, where: str) -> Any:
        if name not in cells:
            which = "arm" if name == self.arm else "seed"
            raise DataError(f"{where}: no column {name!r}; there are {joined_names(cells)}. Say which column names the "
                            f"{which} with --{which} COLUMN (in Python, {which}=\"COLUMN\")."
                            f"{self._without_column(which, cells)}{did_you_mean(name, map(str, cells))}")
        if not isinstance(cells[name], Hashable):
            raise DataError(f"{where}: {name} is a {type(cells[name]).__name__}, expected a name or a number.")
        if cells[name] in (None, "") or cells[name] != cells[name]:
            raise DataError(f"{where}: {name} is empty.")
        return cells[name]

    def _without_column(self, which: str, cells: Mapping[str, Any]) -> str:
        """What to do with a table that has no column of arms, or none of seeds."""
        if which == "seed":
            return " Where no column does, add one: differences are taken between numbers with the same seed."
        numeric = [str(name) for name, value in cells.items() if name != self.seed and _is_number(value)]
        return (f" Where each arm has a column of its own, name these columns: --arm {','.join(numeric)} (in Python, "
                f"arm=\"{','.join(numeric)}\")." if len(numeric) > 1 else "")

    def _numbers(self, cells: Mapping[str, Any], where: str) -> dict[str, float]:
        numbers = {metric: _number(_cell(cells, metric, where), metric, where) for metric in self.metrics}
        self.empty.extend(f"{where}: {metric} is empty, so this seed is left out of it"
                          for metric, number in numbers.items() if number is None)
        return {metric: number for metric, number in numbers.items() if number is not None}

    def _numbered(self, by_arm: ByArm) -> Numbers:
        """Seeds as numbers: as given where all are distinct integers, else numbered in the order of their names."""
        labels = list(dict.fromkeys(label for seeds in by_arm.values() for label in seeds))
        try:
            if not all(re.fullmatch(r"[-+]?[0-9]+", label) for label in labels):
                raise ValueError
            numbers = {label: int(label) for label in labels}
            if len(set(numbers.values())) < len(labels):
                raise ValueError
        except ValueError:
            numbers = {label: number for number, label in enumerate(sorted(labels))}
        self.seed_names.update((number, label) for label, number in numbers.items())
        return {arm: {numbers[label]: values for label, values in seeds.items()} for arm, seeds in by_arm.items()}


def _seed_label(seed: Any) -> str:
    """A seed as text: 0, 0.0 and "0" are the same one, because JSON has only text for keys, and a table with an empty
    cell only floats."""
    return str(int(seed)) if isinstance(seed, float) and math.isfinite(seed) and seed == int(seed) else str(seed)


def _rows_of_columns(columns: Mapping[Any, Any]) -> list[Row]:
    _check_names(columns, "columns")
    lengths = {str(name): len(column) for name, column in columns.items() if hasattr(column, "__len__")}
    if len(lengths) < len(columns) or len(set(lengths.values())) > 1:
        raise DataError(f"columns of different lengths: {', '.join(f'{name} {n}' for name, n in lengths.items())}.")
    return [Row(f"row {number}", dict(zip(lengths, cells, strict=True)))
            for number, cells in enumerate(zip(*columns.values(), strict=True), 1)]


def _as_rows(rows: Iterable[Any]) -> Iterator[Row]:
    for number, cells in enumerate(rows, 1):
        yield cells if isinstance(cells, Row) else row_of(f"row {number}", cells)


def _cell(cells: Mapping[str, Any], metric: str, where: str) -> Any:
    if metric in cells:
        return cells[metric]
    inside = number_at(cells, metric)
    if inside is None:
        raise DataError(f"{where}: no {metric!r}; there are {joined_names(cells)}."
                        + did_you_mean(metric, map(str, cells)))
    return inside


def _number(value: Any, metric: str, where: str) -> float | None:
    """None for an empty cell: that seed has no number."""
    if value is None or value == "":
        return None
    try:
        if not _is_number(value):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        advice = " Write a point instead of the comma." if re.fullmatch(r"[-+]?\d+,\d+", str(value)) else ""
        raise DataError(f"{where}: {metric} is {str(value)[:40]!r}, expected a number.{advice}") from error


def _is_number(value: Any) -> bool:
    """Whether ``float`` reads it as a person would: Python also takes True for 1 and 9_0.5 for 90.5."""
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _check_names(names: Iterable[Any], noun: str) -> None:
    texts = [str(name) for name in names]
    if len(set(texts)) < len(texts):
        repeated = next(name for name in texts if texts.count(name) > 1)
        raise DataError(f"{noun}: {repeated!r} appears twice among {joined_names(texts)}; expected each once. 1 and "
                        "'1' are the same name.")
