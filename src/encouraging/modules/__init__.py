"""The losses as modules: they store the arguments of the functions and call them."""

from ._curve_loss import Arguments, CurveLoss
from ._elementwise import MirrorMSELoss, SigmoidCurveLoss
from ._ldam import LDAMLoss
from ._linear import LinearCurveLoss
from ._named import EncouragingLoss, FocalLoss, HaltedFocalLoss, PolyLoss

__all__ = ["Arguments", "CurveLoss", "EncouragingLoss", "FocalLoss", "HaltedFocalLoss", "LDAMLoss", "LinearCurveLoss",
           "MirrorMSELoss", "PolyLoss", "SigmoidCurveLoss"]
