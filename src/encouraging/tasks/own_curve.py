"""A user's own curve by its name in a recipe: ``curve = "file.py:name"``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ..curves import Curve
from ..errors import RecipeError
from ..plugins import load_object


def own_curve(reference: str, params: Mapping[str, Any], folder: str | None) -> Curve:
    """The curve that ``module:name`` refers to: a curve, or a class or function that makes one of these parameters.

    Raises:
        RecipeError: it is not found, is no curve, or does not take the parameters.
    """
    curve_or_maker = load_object(reference, folder)
    if isinstance(curve_or_maker, Curve):
        if params:
            raise RecipeError(f"{reference!r} is a curve already, which takes no {', '.join(params)}. For parameters "
                              "refer to a class of curves, or to a function that returns one.")
        return curve_or_maker
    if not callable(curve_or_maker):
        raise RecipeError(f"{reference!r} has the type {type(curve_or_maker).__name__}: expected a curve, or a class "
                          "or function that makes one.")
    try:
        inspect.signature(curve_or_maker).bind(**params)
    except TypeError as error:
        raise RecipeError(f"{reference!r} with {', '.join(params) or 'no parameters'}: {error}.") from error
    curve = curve_or_maker(**params)
    if not isinstance(curve, Curve):
        raise RecipeError(f"{reference!r} returned the type {type(curve).__name__}: expected a curve. Make one with "
                          "curves.custom(value, pull) or curves.from_probability(function).")
    return curve
