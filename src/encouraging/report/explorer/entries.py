"""The curves of the package with their titles, groups and parameters, as the explorer needs them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ... import curves

Range = tuple[float, float, float, str, str]  # low, high, step, meaning, scale
RANGES: dict[str, Range] = {
    "log_end": (0, 1, 0.01, "LE: where the log becomes a line", "linear"),
    "conservative.log_end": (0, 0.99, 0.01, "LE: where the log becomes a line", "linear"),
    "start": (0, 0.95, 0.01, "start: p from which it rewards", "linear"),
    "exponent": (0, 6, 0.1, "exponent: the power of p", "linear"),
    "weight": (0, 4, 0.1, "weight: the size of the bonus", "linear"),
    "epsilon": (-1, 4, 0.1, "ε: weight of 1 − p", "linear"),
    "gamma": (0, 5, 0.1, "γ: how strongly learned examples are turned down", "linear"),
    "halt": (0, 1, 0.01, "halt: p at which focal loss ends", "linear"),
    "eps": (1e-8, 1e-2, 10, "eps: clamp of 1 − p (0 for none)", "log"),
}
ANY: Range = (0, 1, 0.01, "", "linear")
TITLES = {
    "bonus": {"encouraging": "encouraging loss, LE from 0 to 1", "normal": "normal bonus",
              "conservative": "conservative bonus", "aggressive": "aggressive bonus", "power": "power of p",
              "poly": "poly loss"},
    "no bonus": {"cross_entropy": "cross-entropy", "focal": "focal loss", "halted_focal": "halted focal loss"},
    "squared error": {"square": "squared error"},
}


class Parameter(NamedTuple):
    """One parameter, in the range worth exploring."""

    name: str
    default: float | bool
    low: float
    high: float
    step: float
    meaning: str
    scale: str = "linear"


class Entry(NamedTuple):
    """One curve: what it is called, what makes it, and what it takes."""

    name: str
    title: str
    group: str
    factory: Callable[..., curves.Curve]
    parameters: tuple[Parameter, ...]


def catalogue() -> Mapping[str, Entry]:
    """Every curve of the package by name."""
    entries = {}
    for group, titles in TITLES.items():
        for name, title in titles.items():
            factory = getattr(curves, name)
            parameters = tuple(
                Parameter(param.name, param.default, *RANGES.get(f"{name}.{param.name}", RANGES.get(param.name, ANY)))
                for param in inspect.signature(factory).parameters.values())
            entries[name] = Entry(name, title, group, factory, parameters)
    return entries
