"""The losses as modules that are not an ``nn.CrossEntropyLoss``: each class by itself, squared errors, and the output
layer together with its loss.

Annotations are evaluated here, as in ``torch.nn``: libraries that wrap a loss (fastai) read them from its instances,
where the names of this file are not known.
"""

import inspect
from typing import Any

from torch import Tensor, nn

from .curves import Curve
from .curves._curve import check_curve
from .errors import ArgumentError, did_you_mean
from .losses import linear_curve_loss, mirror_mse_loss, sigmoid_curve_loss
from .ops.reduction import Divisor, check_divisor
from .targets import (
    check_alpha,
    check_buffer,
    check_implementation,
    check_link,
    check_reduction,
    check_smoothing,
    checked_ignore_index,
)

__all__ = ["LinearCurveLoss", "MirrorMSELoss", "SigmoidCurveLoss"]


class SigmoidCurveLoss(nn.Module):
    """:func:`sigmoid_curve_loss` as a module; ``weight`` and ``pos_weight`` are buffers.

    Args:
        curve, weight, reduction, pos_weight, alpha, negative_curve: As in :func:`sigmoid_curve_loss`.
        divisor: What the mean divides by. One that changes from batch to batch is passed to the call:
            ``loss(input, target, divisor=count)``.

    Raises:
        ArgumentError, DtypeError, ShapeError: An argument cannot be used.

    >>> from encouraging import curves
    >>> SigmoidCurveLoss(curves.focal(2.0), alpha=0.25)
    SigmoidCurveLoss(curve=focal(gamma=2.0), alpha=0.25)
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(self, curve: Curve, *, weight: Tensor | None = None, reduction: str = "mean",
                 pos_weight: Tensor | None = None, alpha: float | None = None, negative_curve: Curve | None = None,
                 divisor: Divisor = None) -> None:
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
        parts = [f"curve={self.curve!r}"]
        parts += [f"alpha={self.alpha}"] if self.alpha is not None else []
        parts += [f"negative_curve={self.negative_curve!r}"] if self.negative_curve is not None else []
        parts += [f"divisor={self.divisor!r}"] if self.divisor is not None else []
        return ", ".join(parts + ([f"reduction={self.reduction!r}"] if self.reduction != "mean" else []))


class MirrorMSELoss(nn.Module):
    """:func:`mirror_mse_loss` as a module.

    Args:
        bonus, link, reduction: As in :func:`mirror_mse_loss`.
        divisor: What the mean divides by; as in :class:`SigmoidCurveLoss`, also an argument of the call.

    Raises:
        ArgumentError, DtypeError, ShapeError: An argument cannot be used.

    >>> MirrorMSELoss(link="sigmoid")
    MirrorMSELoss(bonus=True, link='sigmoid', reduction='mean')
    """

    def __init__(self, *, bonus: bool = True, link: str = "softmax", reduction: str = "mean",
                 divisor: Divisor = None) -> None:
        super().__init__()
        check_reduction(reduction)
        check_divisor(divisor, reduction)
        check_link(link)
        self.bonus, self.link, self.reduction, self.divisor = bonus, link, reduction, divisor

    def forward(self, input: Tensor, target: Tensor, *, divisor: Divisor = None) -> Tensor:
        return mirror_mse_loss(input, target, bonus=self.bonus, link=self.link, reduction=self.reduction,
                               divisor=self.divisor if divisor is None else divisor)

    def extra_repr(self) -> str:
        return f"bonus={self.bonus}, link={self.link!r}, reduction={self.reduction!r}"


class LinearCurveLoss(nn.Linear):
    """The output layer and its loss in one module, in chunks of rows: :func:`linear_curve_loss`.

    Called with a target it returns the loss; called without one, the logits. The class weight is ``class_weight``,
    because ``weight`` is the layer's.

    Args:
        in_features: Width of the hidden states.
        out_features: Number of classes.
        curve: What is taught at which confidence.
        bias: Whether the layer has one.
        class_weight: One number per class.
        device, dtype: Of the layer's parameters.
        **arguments: ``ignore_index``, ``reduction``, ``label_smoothing``, ``match_norm``, ``divisor``,
            ``chunk_bytes``, ``accumulate`` and ``impl`` of :func:`linear_curve_loss`.

    Raises:
        ArgumentError, DtypeError, ShapeError: An argument is not known, or cannot be used.

    >>> import torch
    >>> from encouraging import curves
    >>> layer, hidden = LinearCurveLoss(2, 3, curves.normal()), torch.ones(4, 2)
    >>> layer(hidden).shape
    torch.Size([4, 3])
    >>> layer(hidden, torch.tensor([0, 1, 2, 0])).shape
    torch.Size([])
    """

    curve: Curve
    class_weight: Tensor | None

    def __init__(self, in_features: int, out_features: int, curve: Curve, *, bias: bool = False,
                 class_weight: Tensor | None = None, device: Any = None, dtype: Any = None, **arguments: Any) -> None:
        check_curve(curve)
        passed_by_module = ("hidden", "weight", "target", "curve", "bias", "class_weight")
        allowed = [name for name in inspect.signature(linear_curve_loss).parameters if name not in passed_by_module]
        for name in sorted(arguments.keys() - set(allowed)):
            hint = " The weights of classes are class_weight." if name == "weight" else did_you_mean(name, allowed)
            raise ArgumentError(f"{name}={arguments[name]!r}: expected one of {', '.join(allowed)}.{hint}")
        check_reduction(arguments.get("reduction", "mean"))
        check_smoothing(arguments.get("label_smoothing", 0.0))
        check_divisor(arguments.get("divisor"), arguments.get("reduction", "mean"))
        check_implementation(arguments.get("impl", "auto"))
        checked_ignore_index(arguments.get("ignore_index", -100))
        check_buffer("class_weight", class_weight)
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        self.curve, self.arguments = curve, arguments
        self.register_buffer("class_weight", class_weight)

    def forward(self, input: Tensor, target: Tensor | None = None, *, divisor: Divisor = None) -> Tensor:
        if target is None:
            return super().forward(input)
        arguments = self.arguments if divisor is None else {**self.arguments, "divisor": divisor}
        return linear_curve_loss(input, self.weight, target, self.curve, self.bias, class_weight=self.class_weight,
                                 **arguments)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, curve={self.curve!r}"
