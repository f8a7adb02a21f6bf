"""Train a task, resume it after any interruption, and write records that can be judged anywhere.

Names are imported on first use, so that code that only judges numbers does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

_HOME = {
    name: home
    for home, names in {
        "checkpoint": ("load_weights",),
        "metric": ("Metric",),
        "run": ("RunSpec", "execute"),
        "run_dir": ("RunDir",),
        "settings": ("StagePlan", "Train"),
        "signals": ("Interrupted", "Stopper"),
        "task": ("Conclusion", "Loss", "Needs", "ParameterGroup", "Predictions", "Task"),
    }.items()
    for name in names
}

if TYPE_CHECKING:
    from .checkpoint import load_weights as load_weights
    from .metric import Metric as Metric
    from .run import RunSpec as RunSpec
    from .run import execute as execute
    from .run_dir import RunDir as RunDir
    from .settings import StagePlan as StagePlan
    from .settings import Train as Train
    from .signals import Interrupted as Interrupted
    from .signals import Stopper as Stopper
    from .task import Conclusion as Conclusion
    from .task import Loss as Loss
    from .task import Needs as Needs
    from .task import ParameterGroup as ParameterGroup
    from .task import Predictions as Predictions
    from .task import Task as Task
else:  # hidden from type checkers, which would take it as a promise that every attribute exists

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        return value


__all__ = [
    "Conclusion", "Interrupted", "Loss", "Metric", "Needs", "ParameterGroup", "Predictions", "RunDir", "RunSpec",
    "StagePlan", "Stopper", "Task", "Train", "execute", "load_weights",
]
