"""The catalogue: every curve of the package by name, with its parameters and what they mean.

Recipes, the command line, the report's explorer, compiled operators and the choice of a kernel read this table. A new
curve is a file with its formula and one entry here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import CurveError, did_you_mean
from ._cross_entropy import CrossEntropy
from ._curve import Curve
from ._focal import Focal, HaltedFocal
from ._log_bonus import Aggressive, Conservative, Normal, encouraging
from ._polynomial import Poly, Power
from ._square import Square


class Parameter(NamedTuple):
    """One parameter of a curve, with the range that is worth exploring (not the range that is allowed).

    Attributes:
        name: The keyword of the curve.
        default: Its default.
        low, high: The ends of the range.
        step: The step of a slider; a factor where ``scale`` is ``"log"``.
        meaning: What it is, in a few words.
        scale: ``"linear"``, or ``"log"`` where a slider moves the decimal logarithm.

    >>> parameter, = catalogue()["conservative"].parameters
    >>> parameter.name, parameter.low, parameter.high
    ('log_end', 0, 0.99)
    """

    name: str
    default: float | bool
    low: float
    high: float
    step: float
    meaning: str
    scale: str = "linear"


class Entry(NamedTuple):
    """One curve of the catalogue.

    Attributes:
        name: The name that :func:`by_name` takes.
        title: The name that people are shown.
        group: ``"bonus"``, ``"no bonus"`` or ``"squared error"``.
        factory: What makes the curve from its parameters.
        parameters: One :class:`Parameter` per argument of the factory.

    >>> entry = catalogue()["poly"]
    >>> entry.title, entry.factory(epsilon=2.0)
    ('poly loss', poly(epsilon=2.0))
    """

    name: str
    title: str
    group: str
    factory: Callable[..., Curve]
    parameters: tuple[Parameter, ...]


_Range = tuple[float, float, float, str] | tuple[float, float, float, str, str]  # low, high, step, meaning, scale

_EPS: _Range = (1e-8, 1e-2, 10, "eps: clamp of 1 − p (0 for none)", "log")
_LOG_END = "LE: where the log becomes a line"
_GAMMA: _Range = (0, 5, 0.1, "γ: how strongly learned examples are down-weighted")


def _entry(name: str, title: str, group: str, factory: Callable[..., Curve], **ranges: _Range) -> Entry:
    """An entry whose defaults are those of the factory itself."""
    parameters = inspect.signature(factory).parameters
    if list(parameters) != list(ranges):
        raise CurveError(f"the catalogue describes {list(ranges)} for {name}, which takes {list(parameters)}.")
    return Entry(name, title, group, factory, tuple(
        Parameter(param, parameters[param].default, *described) for param, described in ranges.items()))


_ENTRIES: dict[str, Entry] = {entry.name: entry for entry in (
    _entry("encouraging", "encouraging loss, LE from 0 to 1", "bonus", encouraging,
           log_end=(0, 1, 0.01, _LOG_END), eps=_EPS),
    _entry("normal", "normal bonus", "bonus", Normal, eps=_EPS),
    _entry("conservative", "conservative bonus", "bonus", Conservative, log_end=(0, 0.99, 0.01, _LOG_END)),
    _entry("aggressive", "aggressive bonus", "bonus", Aggressive,
           start=(0, 0.95, 0.01, "start: p from which it rewards"), eps=_EPS),
    _entry("power", "power of p", "bonus", Power,
           exponent=(0, 6, 0.1, "exponent: the power of p"), weight=(0, 4, 0.1, "weight: the size of the bonus")),
    _entry("poly", "poly loss", "bonus", Poly, epsilon=(-1, 4, 0.1, "ε: weight of 1 − p")),
    _entry("cross_entropy", "cross-entropy", "no bonus", CrossEntropy),
    _entry("focal", "focal loss", "no bonus", Focal, gamma=_GAMMA),
    _entry("halted_focal", "halted focal loss", "no bonus", HaltedFocal, gamma=_GAMMA,
           halt=(0, 1, 0.01, "halt: p at which focal loss ends")),
    _entry("square", "squared error", "squared error", Square,
           bonus=(0, 1, 1, "bonus: whether its mirror is added")),
)}


def catalogue() -> Mapping[str, Entry]:
    """Every curve of the package by name, with its title, factory and parameters.

    Returns:
        A read-only mapping from names to :class:`Entry`.

    >>> [entry.name for entry in catalogue().values() if entry.group == "no bonus"]
    ['cross_entropy', 'focal', 'halted_focal']
    >>> catalogue()["focal"].parameters[0].default
    2.0
    """
    return MappingProxyType(_ENTRIES)


def names() -> list[str]:
    """Every name that :func:`by_name` knows.

    Returns:
        The names in alphabetical order.

    >>> names()[:3]
    ['aggressive', 'conservative', 'cross_entropy']
    """
    return sorted(_ENTRIES)


def by_name(name: str, **params: Any) -> Curve:
    """The curve of that name with those parameters.

    Args:
        name: One of :func:`names`.
        **params: The curve's parameters; others have their defaults.

    Returns:
        The curve.

    Raises:
        CurveError: A name is not known (the message suggests the nearest), or a parameter is outside its range.

    >>> by_name("encouraging", log_end=1.0)
    normal(eps=1e-05)
    >>> by_name("focal", gama=1.0)
    Traceback (most recent call last):
    encouraging.errors.CurveError: focal has no parameter 'gama'; it takes gamma. Did you mean 'gamma'?
    """
    entry = _ENTRIES.get(name)
    if entry is None:
        raise CurveError(f"no curve is called {name!r}; there are {', '.join(names())}.{did_you_mean(name, names())}")
    allowed = [parameter.name for parameter in entry.parameters]
    for param in params:
        if param not in allowed:
            raise CurveError(f"{name} has no parameter {param!r}; it takes {', '.join(allowed) or 'none'}."
                             f"{did_you_mean(param, allowed)}")
    return entry.factory(**params)


def is_in_catalogue(curve: Curve) -> bool:
    """Whether the curve is one of the package's own, which its name and its numbers describe completely.

    By exact type: a subclass may have changed the formula.
    """
    entry = _ENTRIES.get(curve.name)
    return entry is not None and entry.factory is type(curve)


def to_numbers(curve: Curve) -> list[float]:
    """The parameters of a curve of the catalogue as plain numbers, which an operator of torch can take."""
    return [float(value) for value in curve.params.values()]


def from_numbers(name: str, numbers: Sequence[float]) -> Curve:
    """The curve of that name from what :func:`to_numbers` made of it.

    >>> from_numbers("square", [1.0])
    square(bonus=True)
    """
    entry = _ENTRIES[name]
    return entry.factory(*(type(parameter.default)(number)
                           for parameter, number in zip(entry.parameters, numbers, strict=True)))
