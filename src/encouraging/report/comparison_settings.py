"""What a comparison is told about each metric: which direction is better, and which difference would matter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal, TypeAlias

from ..errors import ArgumentError, did_you_mean

Direction: TypeAlias = Literal["higher", "lower"]
DIRECTIONS: tuple[Direction, Direction] = ("higher", "lower")
LOWER_WORDS = ("loss", "error", "err", "nll", "perplexity", "ppl", "ece", "brier", "fpr", "fpr95", "mse", "mae", "rmse",
               "latency", "seconds", "time")  # parts of names of metrics that are usually better when lower


def directions_of(better: str | Mapping[str, str] | None, metrics: Sequence[str]) -> dict[str, Direction]:
    """The better direction of every metric, higher where nothing is said.

    >>> directions_of({"loss": "lower"}, ["accuracy", "loss"])
    {'accuracy': 'higher', 'loss': 'lower'}
    """
    if not isinstance(better, Mapping):
        direction = _direction(better or "higher", "better")
        if direction == "lower" and len(metrics) > 1:
            raise ArgumentError(f"better = 'lower' for {len(metrics)} metrics ({', '.join(metrics)}): say for which, "
                                f"as better={{{metrics[-1]!r}: 'lower'}}.")
        return dict.fromkeys(metrics, direction)
    _check_names(better, metrics, "better")
    return {name: _direction(better.get(name, "higher"), f"better[{name!r}]") for name in metrics}


def expected_of(expected: float | Mapping[str, float | None] | None, metrics: Sequence[str]) -> dict[str, float | None]:
    """The difference that would matter, of every metric; None where nothing is said.

    >>> expected_of({"loss": 0.02}, ["accuracy", "loss"])
    {'accuracy': None, 'loss': 0.02}
    """
    if not isinstance(expected, Mapping):
        if expected is not None and len(metrics) > 1:
            raise ArgumentError(f"expected = {expected!r} for {len(metrics)} metrics ({', '.join(metrics)}): say which "
                                f"difference would matter for which, as expected={{{metrics[0]!r}: {expected!r}}}.")
        return dict.fromkeys(metrics, positive(expected, "expected"))
    _check_names(expected, metrics, "expected")
    return {name: positive(expected.get(name), f"expected[{name!r}]" if len(metrics) > 1 else "expected")
            for name in metrics}


def positive(value: Any, name: str) -> float | None:
    """A number above 0, or None."""
    if value is not None and not (isinstance(value, Real) and 0 < float(value) < math.inf):
        raise ArgumentError(f"{name} = {value!r}: expected a number above 0, or None.")
    return None if value is None else float(value)


def usually_lower(metric: str) -> bool:
    """Whether metrics of this name are usually better when they are lower.

    >>> usually_lower("val_loss"), usually_lower("ood.energy.fpr95"), usually_lower("accuracy")
    (True, True, False)
    """
    words = "".join(letter if letter.isalnum() else " " for letter in metric.lower()).split()
    return any(word in LOWER_WORDS for word in words)


def _direction(word: Any, name: str) -> Direction:
    for direction in DIRECTIONS:
        if word == direction:
            return direction
    raise ArgumentError(f"{name} = {word!r}: expected 'higher' or 'lower'.{did_you_mean(word, DIRECTIONS)}")


def _check_names(settings: Mapping[str, Any], metrics: Sequence[str], name: str) -> None:
    for metric in settings:
        if metric not in metrics:
            raise ArgumentError(f"{name}: {metric!r} is not one of the metrics {', '.join(metrics)}."
                                f"{did_you_mean(metric, metrics)}")
