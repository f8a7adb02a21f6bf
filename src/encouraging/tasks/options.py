"""Read the ``options`` table of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from ..engine.explain import explain
from ..engine.settings import Frozen
from ..errors import RecipeError

OptionsType = TypeVar("OptionsType", bound=Frozen)


def read_options(kind: type[OptionsType], options: Mapping[str, Any],
                 allowed_keys: Callable[[tuple[Any, ...]], Sequence[str]] | None = None) -> OptionsType:
    """The options of a task.

    Args:
        kind: the class of the task's options.
        options: the table of the recipe.
        allowed_keys: returns the keys of the table at a path, for messages; by default the fields of ``kind``.

    Raises:
        RecipeError: a key is unknown or a value is wrong.
    """
    try:
        return kind(**options)
    except ValidationError as error:
        raise RecipeError(explain(error, ("options",), allowed_keys or (lambda _: list(kind.model_fields)))) from error
