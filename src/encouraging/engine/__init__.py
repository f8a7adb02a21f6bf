"""Train a task, survive whatever happens, and leave records that can be judged anywhere."""

from .checkpoint import load_weights
from .run import Order, execute
from .run_dir import RunDir
from .settings import Train
from .signals import Interrupted, Stopper
from .task import Conclusion, Task

__all__ = ["Conclusion", "Interrupted", "Order", "RunDir", "Stopper", "Task", "Train", "execute", "load_weights"]
