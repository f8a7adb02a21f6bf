"""Any curve over a softmax as a module, for every place that takes an ``nn.CrossEntropyLoss``.

Annotations are evaluated here, as in ``torch.nn``: libraries that wrap a loss (fastai) read them from its instances,
where the names of this file are not known.
"""

from typing import Never, TypedDict

from torch import Tensor, nn

from ..curves import Curve
from ..curves._curve import check_curve
from ..losses import curve_loss
from ..ops.reduction import Divisor, check_divisor
from ..targets import (
    check_buffer,
    check_flag,
    check_implementation,
    check_reduction,
    check_smoothing,
    checked_ignore_index,
)
from ._arguments import changed, defaults_of, refuse_unknown


class Arguments(TypedDict, total=False):
    """What every module over a softmax takes beside its curve."""

    weight: Tensor | None
    ignore_index: int
    reduction: str
    label_smoothing: float
    match_norm: bool
    divisor: Divisor
    impl: str


class CurveLoss(nn.CrossEntropyLoss):
    """:func:`curve_loss` as a module, for every place that takes an ``nn.CrossEntropyLoss``.

    Args:
        curve: Any of :mod:`encouraging.curves`.
        weight: One number per class; a buffer, saved and moved with the module.
        ignore_index, reduction, label_smoothing: As in ``nn.CrossEntropyLoss``.
        match_norm: Scale each batch so that the gradient on the logits has the norm of cross-entropy's.
        divisor: What the mean divides by, see :func:`curve_loss`. One that changes from batch to batch is passed to
            the call: ``loss(input, target, divisor=count)``.
        impl: ``"auto"``, ``"reference"`` or ``"triton"``.

    Raises:
        SignatureError: An argument is not known.
        ArgumentError, DtypeError, ShapeError: An argument cannot be used.

    >>> from encouraging import curves
    >>> CurveLoss(curves.focal(1.0), label_smoothing=0.1)
    CurveLoss(curve=focal(gamma=1.0), label_smoothing=0.1)
    """

    curve: Curve

    def __init__(self, curve: Curve, *, weight: Tensor | None = None, ignore_index: int = -100,
                 reduction: str = "mean", label_smoothing: float = 0.0, match_norm: bool = False,
                 divisor: Divisor = None, impl: str = "auto", **unknown: Never) -> None:
        refuse_unknown(self, unknown, Arguments.__annotations__)
        check_curve(curve)
        check_reduction(reduction)
        check_smoothing(label_smoothing)
        check_divisor(divisor, reduction)
        check_flag("match_norm", match_norm)
        check_implementation(impl)
        check_buffer("weight", weight)
        super().__init__(weight=weight, ignore_index=checked_ignore_index(ignore_index), reduction=reduction,
                         label_smoothing=label_smoothing)
        self.curve, self.match_norm, self.divisor, self.impl = curve, match_norm, divisor, impl

    def forward(self, input: Tensor, target: Tensor, *, divisor: Divisor = None) -> Tensor:
        return curve_loss(input, target, self.curve, self.weight, self.ignore_index, self.reduction,
                          self.label_smoothing, match_norm=self.match_norm,
                          divisor=self.divisor if divisor is None else divisor, impl=self.impl)

    def extra_repr(self) -> str:
        return ", ".join([f"curve={self.curve!r}", *changed(self, defaults_of(CurveLoss))])
