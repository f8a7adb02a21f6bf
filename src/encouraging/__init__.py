"""Losses that keep teaching a classifier after it gets an example right.

>>> import torch
>>> from encouraging import EncouragingLoss
>>> loss = EncouragingLoss()                      # instead of torch.nn.CrossEntropyLoss()
>>> loss(torch.tensor([[3.0, 0.0]]), torch.tensor([0]))
tensor(-2.1480)

Importing the package does not import torch: every public name is loaded from its home when it is first used (PEP 562).
A new name is one line in ``_HOME``, and the import below it that type checkers and editors read.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0.dev0"

_HOME = {
    name: home
    for home, names in {
        "losses": (
            "LossStats", "curve_loss", "curve_loss_and_gradient_", "curve_loss_with_stats", "encouraging_loss",
            "focal_loss", "halted_focal_loss", "linear_curve_loss", "loss_divisor", "mirror_mse_loss", "poly_loss",
            "sigmoid_curve_loss",
        ),
        "ops.parallel": ("parallel_curve_loss",),
        "report.comparison": ("compare",),
        "margins": ("LSoftmaxLinear",),
        "modules": (
            "CurveLoss", "EncouragingLoss", "FocalLoss", "HaltedFocalLoss", "LDAMLoss", "LinearCurveLoss",
            "MirrorMSELoss", "PolyLoss", "SigmoidCurveLoss",
        ),
    }.items()
    for name in names
}
_PACKAGES = ("curves", "errors", "links", "losses", "margins", "modules", "ops", "targets", "torch_state")

__all__ = ["__version__", "curves", *_HOME]

if TYPE_CHECKING:
    from . import curves as curves
    from .losses import LossStats as LossStats
    from .losses import curve_loss as curve_loss
    from .losses import curve_loss_and_gradient_ as curve_loss_and_gradient_
    from .losses import curve_loss_with_stats as curve_loss_with_stats
    from .losses import encouraging_loss as encouraging_loss
    from .losses import focal_loss as focal_loss
    from .losses import halted_focal_loss as halted_focal_loss
    from .losses import linear_curve_loss as linear_curve_loss
    from .losses import loss_divisor as loss_divisor
    from .losses import mirror_mse_loss as mirror_mse_loss
    from .losses import poly_loss as poly_loss
    from .losses import sigmoid_curve_loss as sigmoid_curve_loss
    from .margins import LSoftmaxLinear as LSoftmaxLinear
    from .modules import CurveLoss as CurveLoss
    from .modules import EncouragingLoss as EncouragingLoss
    from .modules import FocalLoss as FocalLoss
    from .modules import HaltedFocalLoss as HaltedFocalLoss
    from .modules import LDAMLoss as LDAMLoss
    from .modules import LinearCurveLoss as LinearCurveLoss
    from .modules import MirrorMSELoss as MirrorMSELoss
    from .modules import PolyLoss as PolyLoss
    from .modules import SigmoidCurveLoss as SigmoidCurveLoss
    from .ops.parallel import parallel_curve_loss as parallel_curve_loss
    from .report.comparison import compare as compare
else:  # hidden from type checkers, which would take it as a promise that every attribute exists

    def __getattr__(name):
        """Load a public name, or a package of the library, when it is first used."""
        if name in _HOME:
            value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        elif name in _PACKAGES:
            value = import_module(f".{name}", __name__)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__, *_PACKAGES})
