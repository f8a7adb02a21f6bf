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
        return f"{key}: this key is required and missing."
    message = fault["msg"].removeprefix("Value error, ")
    message += "" if message.endswith((".", "?")) else "."
    if fault["type"] == "value_error":
        return f"{key}: {message}" if key else message
    return f"{key} = {fault['input']!r}: {message[0].lower()}{message[1:]}"
