"""Read a recipe: a TOML file, overrides from the command line, and errors that name file, key and nearest word."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Sequence
from datetime import date, time
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ..engine.explain import explain
from ..engine.records import Record
from ..engine.run_dir import differing
from ..engine.settings import Train
from ..errors import RecipeError, did_you_mean
from ..tasks import ObjectiveConfig, Sampling, find_task
from .claim import Claim
from .monitor import check_monitors
from .schema import Arm, Overrides, Recipe, Stage


def names() -> list[str]:
    """The recipes that come with the package."""
    return list(_names())


@cache
def _names() -> tuple[str, ...]:  # cached, because every record of a folder is compared with them
    folder = resources.files(__package__)
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir()
                        if entry.name.endswith(".toml")))


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
    except RecursionError as error:
        raise RecipeError(f"{source}: has more brackets inside each other than can be read; expected the tables and "
                          "lists of a recipe.") from error
    changed = tree
    for override in overrides:
        changed = apply_override(changed, override)
    recipe = check_recipe(changed, Path(source).stem, source)
    if not overrides or recipe.name in names():  # runs of the package's recipes are compared with the package's files
        return recipe
    return _with_overrides(recipe, tree, source, overrides)


def check_recipe(tree: dict[str, Any], name: str, source: str) -> Recipe:
    """The recipe of a tree of keys.

    Raises:
        RecipeError: names the first key that is wrong.
    """
    where: tuple[Any, ...] = ()
    try:
        recipe = Recipe(**{"name": name, **tree})
        _refuse_dates(tree)
        recipe._folder = str(Path(source).resolve().parent) if _is_users(source) else None
        where = ("task",)
        find_task(recipe.task, recipe._folder)
        for arm in recipe.arms:
            where = ("arms", arm, "train")
            stages = recipe.stages_of(arm)
            where = ("arms", arm, "curve")
            for stage in stages:
                stage.objective.check_own_curve()
            where = ()
            check_monitors(recipe.needs(arm), stages)
    except ValidationError as error:
        raise RecipeError(f"{source}: {_explain(error, where)}") from error
    except ValueError as error:
        key = getattr(error, "key", "") or ".".join(where)
        raise RecipeError(f"{source}: {f'{key}: ' if key else ''}{error}", key) from error
    except TypeError as error:
        raise RecipeError(f"{source}: {error}") from error
    return recipe


def _refuse_dates(value: Any, path: tuple[str, ...] = ()) -> None:
    """Options may hold values of any type; but a run keeps its config as JSON, which has no dates and times."""
    if isinstance(value, date | time):  # a datetime is a date
        raise RecipeError(f"{'.'.join(path)} = {value}: expected no date and no time. Write it as text, in quotes.")
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _refuse_dates(inner, (*path, str(key)))


def _with_overrides(recipe: Recipe, tree: dict[str, Any], source: str, overrides: Sequence[str]) -> Recipe:
    """The recipe with the settings that overrides changed, for its runs to store: the file may be gone or changed when
    they are read. If the file alone is not a valid recipe, there is nothing to compare with."""
    try:
        original = check_recipe(tree, Path(source).stem, source)
    except RecipeError:
        return recipe
    settings = {}
    for arm in recipe.arms:
        if arm in original.arms:
            config = {**original.config(arm, 0), "recipe": recipe.name}
            settings[arm] = tuple((key, new, old) for key, old, new in differing(config, recipe.config(arm, 0)))
    if not any(settings.values()):
        return recipe
    given = tuple(override for override in overrides if override.partition("=")[0].strip() != "seeds")
    file = Path(source).name if _is_users(source) else Path(source).stem
    return recipe.model_copy(update={"overrides": Overrides(file=file, given=given, settings=settings)})


def kept_recipes(records: Iterable[Record]) -> dict[str, Recipe]:
    """The recipes that runs have stored, by name: the files of your own recipes may be gone."""
    recipes: dict[str, Recipe] = {}
    for record in records:
        if record.recipe_tree and record.recipe not in recipes:
            try:
                recipes[record.recipe] = Recipe(**record.recipe_tree)
            except (ValidationError, TypeError) as error:
                raise RecipeError(f"the recipe that a run of {record.recipe} has stored cannot be read: {error}"
                                  ) from error
    return recipes


def apply_override(tree: dict[str, Any], override: str) -> dict[str, Any]:
    """Set one key; the value is TOML, a plain word, or a number that TOML writes otherwise, such as ``.5``. A number in
    the path is an index of a list, counted from 0.

    >>> apply_override({"train": {"lr": 0.1}}, "train.lr=.05")
    {'train': {'lr': 0.05}}
    >>> apply_override({"stages": [{}, {"freeze": ["body"]}]}, "stages.1.freeze=[]")
    {'stages': [{}, {'freeze': []}]}
    """
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        raise RecipeError(f"--set {override}: expected KEY=VALUE, for example train.epochs=2.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text.strip()
        if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value, re.ASCII):
            value = int(value) if value.isdecimal() else float(value)
    tree = copy.deepcopy(tree)
    *parents, last = path.strip().split(".")
    table: Any = tree
    for key, inner in pairwise([*parents, last]):
        table = table[int(key)] if isinstance(table, list) else table.setdefault(key, {})
        if isinstance(table, list) and not (inner.isdecimal() and int(inner) < len(table)):
            raise RecipeError(f"--set {override}: {key} is a list of {len(table)}: expected a number from 0 to "
                              f"{len(table) - 1} after it, or the whole list, as in {key}=[...].")
        if not isinstance(table, dict | list):
            raise RecipeError(f"--set {override}: {key} is {table!r}, not a table that could hold {inner}.")
    table[int(last) if isinstance(table, list) else last] = value
    return tree


def _find(name: str | Path) -> tuple[str, str]:
    path = Path(name)
    if path.suffix == ".toml":
        try:
            text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
            return str(path.absolute() if path.parent == Path() else path), text
        except FileNotFoundError as error:
            raise RecipeError(f"{path}: there is no such file. `encouraging list` shows the recipes that come with the "
                              "package; they are named without .toml.") from error
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"{path}: cannot be read ({error}).") from error
    if str(name) not in names():
        raise RecipeError(f"no recipe is called {str(name)!r}.{did_you_mean(name, names())} `encouraging list` shows "
                          f"all {len(names())} of them; one of your own is given by the path of its .toml file.")
    return f"{name}.toml", (resources.files(__package__) / f"{name}.toml").read_text(encoding="utf-8")


def _is_users(source: str) -> bool:
    """Whether a recipe is from a file of the user's: its source has a folder, those of the package's recipes have none.

    >>> _is_users("digits.toml"), _is_users("experiments/mine.toml")
    (False, True)
    """
    return Path(source).suffix == ".toml" and Path(source).parent != Path()


def _explain(error: ValidationError, where: tuple[Any, ...]) -> str:
    """The first fault as one sentence; an unknown key may also be one that belongs to the table ``train``."""
    sentence = explain(error, where, _allowed_keys)
    fault = error.errors()[0]
    path = (*where, *fault["loc"])
    if fault["type"] == "extra_forbidden" and len(path) == 1 and "Did you mean" not in sentence:
        key_of_train = did_you_mean(path[0], Train.model_fields)
        if key_of_train:
            return f"{path[0]}: unknown key." + key_of_train.replace("'", "'train.", 1)
    return sentence


def _allowed_keys(parents: tuple[Any, ...]) -> list[str]:
    """The keys of the table at a path."""
    tables: dict[Any, type[BaseModel]] = {"train": Train, "arms": Arm, "claims": Claim, "stages": Stage,
                                          "objective": ObjectiveConfig, "sampling": Sampling}
    model = next((tables[part] for part in reversed(parents) if part in tables), Recipe)
    return list(model.model_fields)
