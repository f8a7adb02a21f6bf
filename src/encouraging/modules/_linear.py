"""The output layer together with its loss as a module.

Annotations are evaluated here, as in ``torch.nn``: libraries that wrap a loss (fastai) read them from its instances,
where the names of this file are not known.
"""

from typing import Any

from torch import Tensor, nn

from ..curves import Curve
from ..curves._curve import check_curve
from ..losses import linear_curve_loss
from ..ops.linear import check_chunks
from ..ops.reduction import Divisor, check_divisor
from ..targets import (
    check_buffer,
    check_class_weight,
    check_flag,
    check_implementation,
    check_reduction,
    check_smoothing,
    checked_ignore_index,
)
from ._arguments import changed, defaults_of, refuse_unknown


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
