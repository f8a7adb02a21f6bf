"""What a section is made of, as plain data for the template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...engine import Metric
from ...judge.stats import Mean
from ..drawing.panels import Picture
from ..numbers import between, plural, plus_minus, show

if TYPE_CHECKING:
    from .arm_board import ArmBoard


class Cell(NamedTuple):
    """A number or words, with small print below it; ``href`` links to more about it."""

    main: str
    small: str = ""
    words: bool = False
    href: str = ""


@dataclass(frozen=True)
class Table:
    """Words first, then numbers; ``caption`` says what they are, ``groups`` what several columns have in common."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    groups: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class Section:
    """A heading and what follows it, in this order. ``board`` comes before the pictures; with ``fold``, pictures and
    tables are folded under these words."""

    key: str
    title: str
    lead: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    board: ArmBoard | None = None
    fold: str = ""


def pictured(picture: Picture | None, key: str, title: str, *lead: str) -> Section | None:
    """A section with one picture; None if there is no picture."""
    return Section(key, title, lead, [picture]) if picture else None


def present(*pictures: Picture | None) -> list[Picture]:
    return [picture for picture in pictures if picture]


def with_unit(metric: Metric) -> str:
    """The name of a metric with its unit, as a column has it.

    >>> with_unit(Metric("accuracy", "accuracy", "%"))
    'accuracy, %'
    """
    return metric.words + (f", {metric.unit}" if metric.unit else "")


def mean_cell(mean: Mean, metric: Metric) -> Cell:
    """A mean with its interval below, cut off where the metric itself ends."""
    low, high = max(mean.low, metric.low), min(mean.high, metric.high)
    return Cell(show(mean.value, metric.digits), between(low, high, metric.digits) if mean.n > 1 else "")


def deviation_cell(mean: Mean, digits: int) -> Cell:
    """A mean with its standard deviation, and the number of seeds below."""
    if not mean.n:
        return Cell("–")
    return Cell(plus_minus(mean.value, mean.std, digits), plural(mean.n, "seed"))
