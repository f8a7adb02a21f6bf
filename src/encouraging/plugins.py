"""A user's own function or class by name: ``"module:name"`` or ``"file.py:name"``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import RecipeError, did_you_mean


def is_reference(name: str) -> bool:
    """Whether a name in a recipe is the user's own object and not one of this package.

    >>> is_reference("mine:build"), is_reference("mnist"), is_reference("folder:images")
    (True, False, False)
    """
    return ":" in name and not name.startswith("folder:")


def load_object(reference: str, folder: str | None = None) -> Any:
    """The object that ``module:name`` refers to. Modules and files are also searched in the recipe's folder and in the
    working directory."""
    module_name, _, name = reference.rpartition(":")
    module = _load_module(module_name, reference, folder)
    try:
        return getattr(module, name)
    except AttributeError as error:
        raise RecipeError(f"{reference!r}: {module_name} has no {name!r}.{did_you_mean(name, vars(module))}") from error


def source_file(reference: str, folder: str | None = None) -> Path | None:
    """The user's file that ``reference`` names; None for a module that is installed, or a file that is missing."""
    module_name = reference.rpartition(":")[0]
    name = module_name if module_name.endswith(".py") else f"{module_name.replace('.', '/')}.py"
    return next((path for directory in _folders(folder) if (path := Path(directory) / name).is_file()), None)


def load_function(reference: str, folder: str | None, key: str) -> Any:
    """A user's own function; errors name the ``key`` of the recipe that refers to it."""
    try:
        function = load_object(reference, folder)
    except RecipeError as error:
        raise RecipeError(str(error), key) from error
    if not callable(function):
        raise RecipeError(f"{reference!r} has the type {type(function).__name__}: expected a function.", key)
    return function


def _load_module(name: str, reference: str, folder: str | None) -> ModuleType:
    folders = _folders(folder)
    if name.endswith(".py"):
        path = source_file(reference, folder)
        if path is None:
            raise RecipeError(f"{reference!r}: there is no file {name} in {' or '.join(folders)}.")
        return _load_file(path.resolve())
    if not name or name.startswith("."):
        raise RecipeError(f"{reference!r} names no module: expected module:name or file.py:name.")
    _search_in(folders)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise RecipeError(f"{reference!r}: there is no module {name!r} in {' or '.join(folders)}, nor installed. "
                          "Expected module:name or file.py:name.") from error


def _folders(folder: str | None) -> list[str]:
    """Where a user's modules are searched first: the recipe's folder and the working directory."""
    return list(dict.fromkeys(str(Path(directory).resolve()) for directory in (folder or ".", ".")))


def _load_file(path: Path) -> ModuleType:
    """The file as a module, under the file's name, or under a longer name where another module has that name."""
    for name, loaded in list(sys.modules.items()):
        if getattr(loaded, "__file__", None) == str(path) and name not in ("__main__", "__mp_main__"):
            return loaded
    _search_in([str(path.parent)])
    name = path.stem
    if name.isidentifier() and name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin == str(path):
            return importlib.import_module(name)
    name = f"{name}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _search_in(folders: list[str]) -> None:
    """Append folders to ``sys.path``: at its end, so that they hide nothing installed, and for the rest of the process,
    because worker processes import modules by name."""
    sys.path += [folder for folder in folders if folder not in sys.path]
