"""Curves by name, for recipes and the command line."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from ..errors import CurveError
from ._bonus import Aggressive, Conservative, CrossEntropy, Normal, Poly, Power, encouraging
from ._curve import Curve
from ._focal import Focal, HaltedFocal
from ._square import Square

_NAMED: dict[str, Callable[..., Curve]] = {
    curve.name: curve
    for curve in (CrossEntropy, Normal, Conservative, Aggressive, Power, Poly, Focal, HaltedFocal, Square)
} | {"encouraging": encouraging}


def names() -> list[str]:
    """Every name that :func:`by_name` knows."""
    return sorted(_NAMED)


def by_name(name: str, **params: Any) -> Curve:
    """The curve of that name with those parameters; an unknown word is answered with the nearest right one.

    >>> by_name("encouraging", log_end=1.0)
    normal(eps=1e-05)
    >>> by_name("focal", gama=1.0)
    Traceback (most recent call last):
    encouraging.errors.CurveError: focal has no parameter 'gama'; it takes gamma. Did you mean 'gamma'?
    """
    if name not in _NAMED:
        raise CurveError(f"no curve is called {name!r}; there are {', '.join(names())}.{_nearest(name, _NAMED)}")
    known = list(inspect.signature(_NAMED[name]).parameters)
    for param in params:
        if param not in known:
            takes = ", ".join(known) or "none"
            raise CurveError(f"{name} has no parameter {param!r}; it takes {takes}.{_nearest(param, known)}")
    return _NAMED[name](**params)


def _nearest(word: str, words: Any) -> str:
    near = difflib.get_close_matches(str(word), list(words), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
