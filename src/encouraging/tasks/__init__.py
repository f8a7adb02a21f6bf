"""Tasks by name: data, model, loss and metric behind the protocol that the engine trains."""

from __future__ import annotations

import contextlib
import difflib
import importlib
from typing import Any

from ..errors import RecipeError
from .objective import Lesson, Objective
from .setting import Conclusion, Setting

# Module and class, imported only when a recipe names them: some need libraries that are optional.
TASKS = {"image": ("image", "ImageTask")}


def build_task(kind: str, setting: Setting) -> Any:
    """The task of that kind, with its data read."""
    return _module(kind)[1](setting)


def check_task(kind: str, options: dict[str, Any]) -> None:
    """Refuse an unknown task or option before anything is read."""
    _module(kind)[0].Options(**options)


def option_names() -> list[str]:
    """Every option of every task that could be imported, for the nearest right word."""
    found: set[str] = set()
    for kind in TASKS:
        with contextlib.suppress(ImportError):
            found |= set(_module(kind)[0].Options.model_fields)
    return sorted(found)


def _module(kind: str) -> tuple[Any, Any]:
    if kind not in TASKS:
        near = difflib.get_close_matches(kind, TASKS, n=1)
        raise RecipeError(f"no task is called {kind!r}; there are {', '.join(TASKS)}."
                          + (f" Did you mean {near[0]!r}?" if near else ""))
    name, cls = TASKS[kind]
    module = importlib.import_module(f".{name}", __name__)
    return module, getattr(module, cls)


__all__ = ["TASKS", "Conclusion", "Lesson", "Objective", "Setting", "build_task", "check_task", "option_names"]
