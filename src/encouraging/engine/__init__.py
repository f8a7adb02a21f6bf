"""Train a task, survive whatever happens, and leave records that can be judged anywhere."""

from .checkpoint import load_weights
from .run import RunSpec, execute
from .run_dir import RunDir
from .settings import StagePlan, Train
from .signals import Interrupted, Stopper
from .task import Conclusion, Loss, Metric, Needs, ParameterGroup, Predictions, Task

__all__ = [
    "Conclusion", "Interrupted", "Loss", "Metric", "Needs", "ParameterGroup", "Predictions", "RunDir", "RunSpec",
    "StagePlan", "Stopper", "Task", "Train", "execute", "load_weights",
]
