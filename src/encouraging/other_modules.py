"""The losses as modules that are not an ``nn.CrossEntropyLoss``: each class by itself, squared errors, and the output
layer together with its loss.

Annotations are evaluated here, as in ``torch.nn``: libraries that wrap a loss (fastai) read them from its instances,
where the names of this file are not known.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Never

from torch import Tensor, nn

from .curves import Curve
from .curves._curve import check_curve
from .errors import SignatureError, did_you_mean
from .losses import linear_curve_loss, mirror_mse_loss, sigmoid_curve_loss
from .ops.linear import check_chunks
from .ops.reduction import Divisor, check_divisor
from .presence import check_alpha
from .targets import (
    check_buffer,
    check_class_weight,
    check_flag,
    check_implementation,
    check_link,
    check_reduction,
    check_smoothing,
    checked_ignore_index,
)

__all__ = ["LinearCurveLoss", "MirrorMSELoss", "SigmoidCurveLoss"]


def keywords(module: type[nn.Module]) -> list[str]:
    """The arguments that a module takes by keyword alone."""
    return [parameter.name for parameter in inspect.signature(module).parameters.values()
            if parameter.kind == parameter.KEYWORD_ONLY]


def defaults_of(function: Callable[..., object]) -> dict[str, Any]:
    """The arguments of a module or a function that have defaults."""
    return {parameter.name: parameter.default for parameter in inspect.signature(function).parameters.values()
            if parameter.default is not parameter.empty}


def changed(module: nn.Module, defaults: Mapping[str, Any], given: Mapping[str, Any] = MappingProxyType({})
            ) -> list[str]:
    """What the repr of a module says of its arguments: those that differ from their defaults. They are attributes of
    the module or in ``given``."""
    values = {name: given[name] if name in given else getattr(module, name, default)
              for name, default in defaults.items()}
    return [f"{name}=({len(value)} classes)" if isinstance(value, Tensor) and value.ndim == 1 else
            f"{name}=({'x'.join(map(str, value.shape))} numbers)" if isinstance(value, Tensor) and value.ndim else
            f"{name}={value!r}"
            for name, value in values.items() if isinstance(value, Tensor) or value != defaults[name]]


def refuse_unknown(module: nn.Module, unknown: Iterable[str], passed_on: Iterable[str] = (),
                   hints: Mapping[str, str] = MappingProxyType({})) -> None:
    """Refuse arguments that a module does not have; ``passed_on`` are those that it has without naming them, and
    ``hints`` what to use instead of some."""
    for word in sorted(unknown):
        allowed = list(dict.fromkeys([*keywords(type(module)), *passed_on]))
        raise SignatureError(f"{type(module).__name__} has no argument {word!r}; it takes {', '.join(allowed)}."
                             + hints.get(word, did_you_mean(word, allowed)))


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


class LinearCurveLoss(nn.Linear):
    """The output layer and its loss in one module, in chunks of rows: :func:`linear_curve_loss`.

    Called with a target it returns the loss; called without one, the logits. The class weight is ``class_weight``,
    because ``weight`` is the layer's.

    Args:
        in_features: Width of the hidden states.
        out_features: Number of classes.
        curve: Any of :mod:`encouraging.curves`.
        bias: Whether the layer has one.
        class_weight: One number per class.
        device, dtype: Of the layer's parameters.
        **arguments: ``ignore_index``, ``reduction``, ``label_smoothing``, ``match_norm``, ``divisor``,
            ``chunk_bytes``, ``accumulate`` and ``impl`` of :func:`linear_curve_loss`.

    Raises:
        SignatureError: An argument is not known.
        ArgumentError, DtypeError, ShapeError: An argument cannot be used.

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
        passed_on = _defaults_passed_on()
        refuse_unknown(self, arguments.keys() - passed_on.keys(), passed_on,
                       {"weight": " The weights of classes are class_weight."})
        every = {**passed_on, **arguments}
        check_reduction(every["reduction"])
        check_smoothing(every["label_smoothing"])
        check_divisor(every["divisor"], every["reduction"])
        check_flag("match_norm", every["match_norm"])
        check_implementation(every["impl"])
        check_chunks(every["chunk_bytes"], every["accumulate"])
        checked_ignore_index(every["ignore_index"])
        check_buffer("class_weight", class_weight)
        if class_weight is not None:
            check_class_weight(class_weight, out_features, "class_weight")
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
        return ", ".join([super().extra_repr(), f"curve={self.curve!r}",
                          *changed(self, {"class_weight": None, **_defaults_passed_on()}, self.arguments)])


def _defaults_passed_on() -> dict[str, Any]:
    """The arguments of ``linear_curve_loss`` that its module passes on as they were given."""
    defaults = defaults_of(linear_curve_loss)
    return {name: default for name, default in defaults.items() if name not in ("bias", "class_weight")}
