"""Turn pydantic's validation errors into one sentence: the key, what came, what was expected, the nearest word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from ..errors import did_you_mean


def explain(error: ValidationError, where: Sequence[Any],
            allowed_keys: Callable[[tuple[Any, ...]], Sequence[str]]) -> str:
    """The first fault of a validation in words; ``allowed_keys`` returns the keys of the table at a path."""
    fault = error.errors()[0]
    path = (*where, *fault["loc"])
    key = ".".join(str(part) for part in path)
    if fault["type"] == "extra_forbidden":
        allowed = allowed_keys(path[:-1])
        return f"{key}: unknown key." + (did_you_mean(path[-1], allowed) or f" There are {', '.join(allowed)}.")
    if fault["type"] == "missing":
        return f"{key}: this key is required and missing{_misspelt(error, path, allowed_keys)}"
    if fault["type"] in ("model_type", "dict_type"):
        return f"{key} = {fault['input']!r}: expected a table, as in {path[-1]} = {{ key = value }}."
    if fault["type"] == "tuple_type":
        table = f" A list of tables is written [[{path[-1]}]]." if isinstance(fault["input"], dict) else ""
        return f"{key} = {fault['input']!r}: expected a list, as in {path[-1]} = [...].{table}"
    message = fault["msg"].removeprefix("Value error, ")
    message += "" if message.endswith((".", "?")) else "."
    if fault["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key} = {fault['input']!r}: {message[0].lower()}{message[1:]}"


def _misspelt(error: ValidationError, missing: tuple[Any, ...],
              allowed_keys: Callable[[tuple[Any, ...]], Sequence[str]]) -> str:
    """The end of the sentence about a missing key: an unknown key beside it may be this one, misspelt."""
    beside = error.errors()[0]["loc"][:-1]
    for fault in error.errors():
        if fault["type"] == "extra_forbidden" and fault["loc"][:-1] == beside:
            unknown = fault["loc"][-1]
            return f", and {unknown!r} is an unknown key.{did_you_mean(unknown, allowed_keys(missing[:-1]))}"
    return "."
