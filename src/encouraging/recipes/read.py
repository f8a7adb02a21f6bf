"""Read a recipe: a TOML file, overrides from the command line, and errors that name file, key and nearest word."""

from __future__ import annotations

import copy
import difflib
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ..data import dataset
from ..engine.settings import Train
from ..errors import RecipeError
from ..models import check_model
from ..tasks import Objective, check_task, option_names
from .schema import Arm, Claim, Recipe, Stage


def names() -> list[str]:
    """The recipes that come with the package."""
    folder = resources.files(__package__)
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def read_recipe(name: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name, or in that file, with ``key.path=value`` overrides.

    >>> read_recipe("digits", ["train.epochs=2", "seeds=3"]).train.epochs
    2
    """
    source, text = _find(name)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{source}: not valid TOML: {error}.") from error
    for override in overrides:
        tree = apply_override(tree, override)
    return check_recipe(tree, Path(source).stem, source)


def check_recipe(tree: dict[str, Any], name: str, source: str) -> Recipe:
    """A tree of keys as a recipe, or the first thing that is wrong with it."""
    where: tuple[Any, ...] = ()
    try:
        recipe = Recipe(**{"name": name, **tree})
        where = ("options",)
        check_task(recipe.task, recipe.options)
        for arm in recipe.arms:
            where = ("arms", arm, "train")
            recipe.plan(arm)
        where = ("data",)
        dataset(recipe.data)
        where = ("model",)
        check_model(recipe.model)
    except ValidationError as error:
        raise RecipeError(f"{source}: {_explain(error, where)}") from error
    except ValueError as error:
        raise RecipeError(f"{source}: {'.'.join(where)}: {error}") from error
    except TypeError as error:
        raise RecipeError(f"{source}: {error}") from error
    return recipe


def apply_override(tree: dict[str, Any], override: str) -> dict[str, Any]:
    """Set one key; the value is TOML, or a plain word.

    >>> apply_override({"train": {"lr": 0.1}}, "train.lr=0.05")
    {'train': {'lr': 0.05}}
    """
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise RecipeError(f"--set {override}: expected KEY=VALUE, for example train.epochs=2.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    tree = copy.deepcopy(tree)
    *parents, last = path.strip().split(".")
    here = tree
    for key in parents:
        here = here.setdefault(key, {})
        if not isinstance(here, dict):
            raise RecipeError(f"--set {override}: {key} is {here!r}, not a table that could hold {last}.")
    here[last] = value
    return tree


def _find(name: str | Path) -> tuple[str, str]:
    path = Path(name)
    if path.suffix == ".toml":
        try:
            return str(path), path.read_text()
        except OSError as error:
            raise RecipeError(f"{path}: cannot be read ({error}).") from error
    if str(name) not in names():
        near = difflib.get_close_matches(str(name), names(), n=1)
        raise RecipeError(f"no recipe is called {str(name)!r}; there are {', '.join(names())}, or give the path of a "
                          ".toml file." + (f" Did you mean {near[0]!r}?" if near else ""))
    return f"{name}.toml", (resources.files(__package__) / f"{name}.toml").read_text()


def _explain(error: ValidationError, where: tuple[Any, ...]) -> str:
    """The first fault as one sentence: its key, what came, what was expected, and the nearest right word."""
    fault = error.errors()[0]
    place = (*where, *fault["loc"])
    key = ".".join(str(part) for part in place)
    if fault["type"] == "extra_forbidden":
        word, known = str(place[-1]), _known(place[:-1])
        near = difflib.get_close_matches(word, known, n=1)
        if len(place) == 1 and not near:  # a word that is right one table further down
            near = [f"train.{deeper}" for deeper in difflib.get_close_matches(word, list(Train.model_fields), n=1)]
        return f"{key}: unknown key." + (f" Did you mean {near[0]!r}?" if near else f" There are {', '.join(known)}.")
    if fault["type"] == "missing":
        return f"{key}: this key is needed and absent."
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "value_error":
        return f"{key}: {message}." if key else f"{message}."
    return f"{key} = {fault['input']!r}: {message[0].lower()}{message[1:]}."


def _known(parents: tuple[Any, ...]) -> list[str]:
    """The keys that a table may have."""
    if parents == ("options",):
        return option_names()
    tables: dict[Any, type[BaseModel]] = {"train": Train, "arms": Arm, "claims": Claim, "stage2": Stage,
                                          "objective": Objective}
    model = next((tables[part] for part in reversed(parents) if part in tables), Recipe)
    return list(model.model_fields)
