"""A user's own function or class by name: ``"module:name"`` or ``"file.py:name"``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from .errors import RecipeError, did_you_mean


def is_reference(name: str) -> bool:
    """Whether a name in a recipe is the user's own object and not one of this package.

    >>> is_reference("mine:build"), is_reference("mnist"), is_reference("folder:images")
    (True, False, False)
    """
    return ":" in name and not name.startswith("folder:")


def load_object(reference: str, folder: str | None = None) -> Any:
    """What ``module:name`` names; modules and files are looked for in the recipe's folder and in this one too."""
    module_name, _, name = reference.rpartition(":")
    module = _load_module(module_name, reference, folder)
    try:
        return getattr(module, name)
    except AttributeError as error:
        raise RecipeError(f"{reference!r}: {module_name} has no {name!r}.{did_you_mean(name, vars(module))}") from error


def _load_module(name: str, reference: str, folder: str | None) -> Any:
    places = [str(Path(place).resolve()) for place in dict.fromkeys([folder or ".", "."])]
    if name.endswith(".py"):
        path = next((Path(place) / name for place in places if (Path(place) / name).is_file()), None)
        if path is None:
            raise RecipeError(f"{reference!r}: there is no file {name} in {' or '.join(places)}.")
        name = path.stem
        places = [str(path.parent.resolve()), *places]
    # At the end, so that nothing installed is hidden, and for good: worker processes import the module by its name.
    sys.path += [place for place in places if place not in sys.path]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise RecipeError(f"{reference!r}: there is no module {name!r} in {' or '.join(places)}, nor installed. "
                          "Expected module:name or file.py:name.") from error
