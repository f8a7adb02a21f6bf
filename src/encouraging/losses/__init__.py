"""The losses as functions: over a softmax, of each class by itself, and squared errors of probabilities.

Those that work on rows from end to end come from ``ops``: the fused output layer, and the form that writes its gradient
over the logits.
"""

from ..ops.in_place import curve_loss_and_gradient_
from ..ops.linear import linear_curve_loss
from ..ops.reduction import loss_divisor
from ..ops.stats import LossStats
from ._elementwise import mirror_mse_loss, sigmoid_curve_loss
from ._softmax import (
    curve_loss,
    curve_loss_with_stats,
    encouraging_loss,
    focal_loss,
    halted_focal_loss,
    poly_loss,
)

__all__ = [
    "LossStats", "curve_loss", "curve_loss_and_gradient_", "curve_loss_with_stats", "encouraging_loss", "focal_loss",
    "halted_focal_loss", "linear_curve_loss", "loss_divisor", "mirror_mse_loss", "poly_loss", "sigmoid_curve_loss",
]
