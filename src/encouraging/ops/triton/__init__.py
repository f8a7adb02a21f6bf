"""The losses as Triton kernels: at the price of reading the logits once and writing their gradient once.

Importing this room imports Triton; everything else in the package asks :mod:`encouraging.ops.dispatch` first.
"""

from .op import hard_loss, loss_and_gradient_, rows_loss
from .plan import Plan, plan, use_plan
from .stats import Stats

__all__ = ["Plan", "Stats", "hard_loss", "loss_and_gradient_", "plan", "rows_loss", "use_plan"]
