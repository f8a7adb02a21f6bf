"""The data that a recipe names, checked before anything is read."""

from __future__ import annotations

from collections.abc import Collection

from ..data import dataset
from ..errors import DataError, RecipeError
from ..plugins import is_reference, load_function
from .spec import TaskSpec


def check_data(spec: TaskSpec, readers: Collection[str], parts: tuple[str, ...],
               refusal: str) -> list[tuple[str, tuple[str, ...]]]:
    """The dataset that a spec names, with its ``parts``, as :class:`~encouraging.engine.Needs` has it; an empty list
    for ``folder:PATH`` and ``module:function``.

    Raises:
        RecipeError: No dataset has this name, its reader is none of ``readers`` (``refusal`` says what it is not), or
            the function cannot be loaded.
    """
    if is_reference(spec.data):
        load_function(spec.data, spec.folder, "data")
        return []
    if spec.data.startswith("folder:"):
        return []
    try:
        facts = dataset(spec.data)
    except DataError as error:
        raise RecipeError(f"{error} Your own are folder:PATH or module:function.", "data") from error
    if facts.reader not in readers:
        raise RecipeError(f"{spec.data} {refusal}", "data")
    return [(spec.data, parts)]
