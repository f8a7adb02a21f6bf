"""The losses of single classes as modules: each class by itself, and squared errors.

Annotations are evaluated here, as in ``torch.nn``: libraries that wrap a loss (fastai) read them from its instances,
where the names of this file are not known.
"""

from typing import Never

from torch import Tensor, nn

from ..curves import Curve
from ..curves._curve import check_curve
from ..losses import mirror_mse_loss, sigmoid_curve_loss
from ..ops.reduction import Divisor, check_divisor
from ..presence import check_alpha
from ..targets import check_buffer, check_flag, check_link, check_reduction
from ._arguments import changed, defaults_of, refuse_unknown


class SigmoidCurveLoss(nn.Module):
    """:func:`sigmoid_curve_loss` as a module; ``weight`` and ``pos_weight`` are buffers.

    Args:
        curve, weight, reduction, pos_weight, alpha, negative_curve: As in :func:`sigmoid_curve_loss`.
        divisor: What the mean divides by. One that changes from batch to batch is passed to the call:
            ``loss(input, target, divisor=count)``.

    Raises:
        SignatureError: An argument is not known.
        ArgumentError, DtypeError, ShapeError: An argument cannot be used.

    >>> from encouraging import curves
    >>> SigmoidCurveLoss(curves.focal(2.0), alpha=0.25)
    SigmoidCurveLoss(curve=focal(gamma=2.0), alpha=0.25)
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(self, curve: Curve, *, weight: Tensor | None = None, reduction: str = "mean",
                 pos_weight: Tensor | None = None, alpha: float | None = None, negative_curve: Curve | None = None,
                 divisor: Divisor = None, **unknown: Never) -> None:
        refuse_unknown(self, unknown)
        super().__init__()
        check_curve(curve)
        check_curve(curve if negative_curve is None else negative_curve)
        check_reduction(reduction)
        check_divisor(divisor, reduction)
        check_alpha(alpha)
        self.curve, self.reduction, self.alpha, self.divisor = curve, reduction, alpha, divisor
        self.negative_curve = negative_curve
        for name, factor in (("weight", weight), ("pos_weight", pos_weight)):
            check_buffer(name, factor)
            self.register_buffer(name, factor)

    def forward(self, input: Tensor, target: Tensor, *, divisor: Divisor = None) -> Tensor:
        return sigmoid_curve_loss(input, target, self.curve, self.weight, self.reduction, self.pos_weight,
                                  alpha=self.alpha, negative_curve=self.negative_curve,
                                  divisor=self.divisor if divisor is None else divisor)

    def extra_repr(self) -> str:
        return ", ".join([f"curve={self.curve!r}", *changed(self, defaults_of(SigmoidCurveLoss))])


class MirrorMSELoss(nn.Module):
    """:func:`mirror_mse_loss` as a module.

    Args:
        bonus, link, reduction: As in :func:`mirror_mse_loss`.
        divisor: What the mean divides by; as in :class:`SigmoidCurveLoss`, also an argument of the call.

    Raises:
        SignatureError: An argument is not known.
        ArgumentError, DtypeError, ShapeError: An argument cannot be used.

    >>> MirrorMSELoss(link="sigmoid")
    MirrorMSELoss(link='sigmoid')
    """

    def __init__(self, *, bonus: bool = True, link: str = "softmax", reduction: str = "mean",
                 divisor: Divisor = None, **unknown: Never) -> None:
        refuse_unknown(self, unknown)
        super().__init__()
        check_reduction(reduction)
        check_divisor(divisor, reduction)
        check_flag("bonus", bonus)
        check_link(link)
        self.bonus, self.link, self.reduction, self.divisor = bonus, link, reduction, divisor

    def forward(self, input: Tensor, target: Tensor, *, divisor: Divisor = None) -> Tensor:
        return mirror_mse_loss(input, target, bonus=self.bonus, link=self.link, reduction=self.reduction,
                               divisor=self.divisor if divisor is None else divisor)

    def extra_repr(self) -> str:
        return ", ".join(changed(self, defaults_of(MirrorMSELoss)))
