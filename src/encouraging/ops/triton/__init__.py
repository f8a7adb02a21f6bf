"""The losses as Triton kernels: at the price of reading the logits once and writing their gradient once.

Importing this package imports Triton; everything else asks :mod:`encouraging.ops.dispatch` first.
"""

from .autograd import hard_loss, loss_and_gradient_, repeated_loss, rows_loss
from .matching import norm_ratio
from .mse_autograd import mse_loss, repeated_mse_loss
from .sigmoid_autograd import lie_as_read, repeated_sigmoid_loss, sigmoid_loss
from .soft_autograd import soft_loss
from .stats import Stats
from .tiling import Tiling, tiling_for, use_tiling

__all__ = ["Stats", "Tiling", "hard_loss", "lie_as_read", "loss_and_gradient_", "mse_loss", "norm_ratio",
           "repeated_loss", "repeated_mse_loss", "repeated_sigmoid_loss", "rows_loss", "sigmoid_loss", "soft_loss",
           "tiling_for", "use_tiling"]
