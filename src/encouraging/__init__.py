"""Losses that keep teaching a classifier after it gets an example right.

>>> import torch
>>> from encouraging import EncouragingLoss
>>> loss = EncouragingLoss()                      # instead of torch.nn.CrossEntropyLoss()
>>> loss(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))
tensor(-2.1480)
"""

from . import curves
from .losses import (
    curve_loss,
    encouraging_loss,
    focal_loss,
    halted_focal_loss,
    linear_curve_loss,
    mirror_mse_loss,
    poly_loss,
    sigmoid_curve_loss,
)
from .margins import LSoftmaxLinear
from .modules import (
    CurveLoss,
    EncouragingLoss,
    FocalLoss,
    HaltedFocalLoss,
    LDAMLoss,
    LinearCurveLoss,
    MirrorMSELoss,
    PolyLoss,
    SigmoidCurveLoss,
)

__version__ = "0.1.0"

__all__ = [
    "CurveLoss",
    "EncouragingLoss",
    "FocalLoss",
    "HaltedFocalLoss",
    "LDAMLoss",
    "LSoftmaxLinear",
    "LinearCurveLoss",
    "MirrorMSELoss",
    "PolyLoss",
    "SigmoidCurveLoss",
    "__version__",
    "curve_loss",
    "curves",
    "encouraging_loss",
    "focal_loss",
    "halted_focal_loss",
    "linear_curve_loss",
    "mirror_mse_loss",
    "poly_loss",
    "sigmoid_curve_loss",
]
