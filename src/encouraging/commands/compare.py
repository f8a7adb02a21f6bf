"""``encouraging compare``: verdicts on the numbers of any script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from ..engine.outputs import check_output
from ..errors import ArgumentError
from ..judge.claims import number_at
from ..judge.stats import describe
from ..report.comparison import Comparisons, compare
from ..report.comparison_settings import DIRECTIONS, Direction
from ..report.numbers import PLAIN, plus_minus
from .arm_table import ArmLine, arm_tables
from .claim_notes import claim_words
from .run_table import SPREAD, print_claims


def compare_file(path: Path, metrics: Sequence[str], out: Path | None, *, console: Console | None = None,
                 **options: Any) -> list[Path]:
    """Print the claims about the numbers of a file and write their page; the files that were written."""
    if out is not None:
        check_output(out, [path])
    comparisons = compare(path, metrics, **options)
    console = console or Console()
    for table in _arms(console, comparisons):
        console.print(table)
    console.print(SPREAD, markup=False, highlight=False)
    print_claims(console, comparisons.rows)
    missing = [f"{claim_words(row)}: {words}" for row in comparisons if (words := comparisons.missing(row))]
    for line in [*missing, *comparisons.notes]:
        console.print(line, markup=False, highlight=False, style="yellow")
    return [] if out is None else [comparisons.write(out)]


class MetricWords(NamedTuple):
    """The metrics of a command line, and what it says about each."""

    metrics: list[str]
    better: dict[str, Direction]
    expected: dict[str, float | None]


def metric_words(metrics: Sequence[str], lower: bool, expected: Sequence[str]) -> MetricWords:
    """What ``--metric``, ``--lower`` and ``--expected`` say: ``COLUMN``, ``COLUMN:lower`` or ``COLUMN:lower:NUMBER``,
    and ``NUMBER`` or ``COLUMN=NUMBER``.

    >>> metric_words(["accuracy", "loss:lower"], False, ["loss=0.02"])
    MetricWords(metrics=['accuracy', 'loss'], better={'loss': 'lower'}, expected={'loss': 0.02})
    """
    read = MetricWords([], {}, {})
    for words in metrics:
        name, direction, number = _split(words)
        read.metrics.append(name)
        if direction is not None:
            read.better[name] = direction
        if number is not None:
            read.expected[name] = _number(number, f"--metric {words}")
    if lower:
        if len(read.metrics) > 1:
            raise ArgumentError(f"--lower for {len(read.metrics)} metrics: say for which, as "
                                f"--metric {read.metrics[-1]}:lower.")
        if read.better.get(read.metrics[0]) == "higher":
            raise ArgumentError(f"--lower and --metric {metrics[0]} say different things: give one of them.")
        read.better[read.metrics[0]] = "lower"
    for words in expected:
        name, equals, number = words.rpartition("=")
        if not equals and len(read.metrics) > 1:
            raise ArgumentError(f"--expected {words} for {len(read.metrics)} metrics: say for which, as "
                                f"--expected {read.metrics[0]}={words}.")
        name = name if equals else read.metrics[0]
        if name in read.expected:
            raise ArgumentError(f"--expected {words}: the expected difference of {name} is given twice.")
        read.expected[name] = _number(number, f"--expected {words}")
    return read


def _split(words: str) -> tuple[str, Direction | None, str | None]:
    """A metric, its direction and its expected difference; other colons belong to the name of the column."""
    for direction in DIRECTIONS:
        if words.endswith(f":{direction}"):
            return words.removesuffix(f":{direction}"), direction, None
        name, mark, number = words.rpartition(f":{direction}:")
        if mark:
            return name, direction, number
    return words, None, None


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ArgumentError(f"{where}: {text!r} is no number; expected the difference that would matter.") from error


def _arms(console: Console, comparisons: Comparisons) -> list[Table]:
    """Mean and standard deviation of every arm over its seeds."""
    metrics, lines = list(comparisons.book.metrics.values()), []
    for arm, seeds in comparisons.numbers.items():
        values = [[number for final in seeds.values() if (number := number_at(final, metric.path)) is not None]
                  for metric in metrics]
        cells = [plus_minus(*describe(reached), metric.digits, PLAIN) if reached else "-"
                 for reached, metric in zip(values, metrics, strict=True)]
        lines.append(ArmLine(arm, str(max(map(len, values))), cells))
    return arm_tables(console, comparisons.title, [metric.path for metric in metrics], lines)
