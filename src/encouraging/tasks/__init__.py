"""Tasks by name: data, model, loss and metrics behind the protocol that the engine trains."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Protocol, cast

from ..engine import Conclusion, Loss, Metric, Needs, ParameterGroup, Task
from ..errors import RecipeError, did_you_mean
from ..plugins import is_reference, load_object
from .base import BaseTask
from .objective import Objective
from .objective_config import ObjectiveConfig
from .spec import Sampling, StageSpec, TaskSpec

# Module and class, imported only when a recipe names them, because some need optional libraries.
TASKS = {"image": ("image", "ImageTask"), "image_files": ("image_files", "ImageFilesTask"),
         "graph": ("graph", "GraphTask"), "detection": ("detection", "DetectionTask"),
         "translation": ("translation", "TranslationTask"), "language": ("language", "LanguageTask")}


class TaskType(Protocol):
    """A class of tasks: it is created from a spec, which :meth:`check` can check before any data is read."""

    def __call__(self, spec: TaskSpec) -> Task[Any]: ...

    def check(self, spec: TaskSpec) -> Needs: ...


def find_task(kind: str, folder: str | None = None) -> TaskType:
    """The class of tasks that a recipe names: one of :data:`TASKS`, or ``module:Class``."""
    if is_reference(kind):
        task_class = load_object(kind, folder)
        if not inspect.isclass(task_class) or not hasattr(task_class, "check"):
            raise RecipeError(f"{kind!r} is not a class of tasks: expected a subclass of encouraging.tasks.BaseTask.")
        return cast(TaskType, task_class)
    if kind not in TASKS:
        raise RecipeError(f"no task is called {kind!r}; there are {', '.join(TASKS)}, or module:Class for your own."
                          + did_you_mean(kind, TASKS))
    module, name = TASKS[kind]
    return cast(TaskType, getattr(importlib.import_module(f".{module}", __name__), name))


def build_task(kind: str, spec: TaskSpec) -> Task[Any]:
    """Create a task and read its data."""
    return find_task(kind, spec.folder)(spec)


def check_task(kind: str, spec: TaskSpec) -> Needs:
    """Check a spec before any data is read; returns what the task needs."""
    return find_task(kind, spec.folder).check(spec)


__all__ = [
    "TASKS", "BaseTask", "Conclusion", "Loss", "Metric", "Needs", "Objective", "ObjectiveConfig", "ParameterGroup",
    "Sampling", "StageSpec", "Task", "TaskSpec", "TaskType", "build_task", "check_task", "find_task",
]
