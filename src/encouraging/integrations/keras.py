"""Any curve as a loss of Keras 3, on its torch backend.

Keras calls a loss with the labels first, turns labels into floats, keeps the classes on the last axis, and expects
probabilities unless it is told otherwise. The losses here take what ``SparseCategoricalCrossentropy`` and
``CategoricalCrossentropy`` take, and are saved with the model.

>>> import keras
>>> from encouraging.integrations.keras import EncouragingLoss
>>> model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
>>> model.compile("sgd", loss=EncouragingLoss(log_end=0.5, from_logits=True), metrics=["accuracy"])
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, Self, TypedDict, Unpack

try:
    import keras
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] == "tensorflow":  # the backend that Keras takes where nothing else is said
        raise ImportError("Keras could not import its backend, TensorFlow: set KERAS_BACKEND=torch before keras is "
                          "imported.") from error
    raise
import torch
from torch import Tensor

from .. import curves
from ..curves import Curve
from ..curves._catalogue import is_in_catalogue
from ..curves._curve import check_curve
from ..errors import ArgumentError, CurveError
from ..losses import curve_loss
from ..targets import check_smoothing

__all__ = ["CurveLoss", "EncouragingLoss"]


class Arguments(TypedDict, total=False):
    """What both losses take beside their curve."""

    from_logits: bool
    ignore_class: int | None
    label_smoothing: float
    axis: int
    reduction: str | None
    name: str | None
    dtype: Any


@keras.saving.register_keras_serializable("encouraging")
class CurveLoss(keras.losses.Loss):  # type: ignore[misc]
    """:func:`~encouraging.curve_loss` as a loss of Keras.

    Labels are class indices, of the shape of the predictions without their class axis (or with 1 there), or
    probabilities of the shape of the predictions, for instance one-hot or from MixUp.

    Args:
        curve: Any of :mod:`encouraging.curves`. It can be set at any time.
        from_logits: Whether the model returns logits. The default is that of Keras: the model ends in a softmax.
        ignore_class: A label that does not count, such as 255 in segmentation.
        label_smoothing: As in ``keras.losses.CategoricalCrossentropy``, for both kinds of labels.
        axis: The axis of the classes.
        reduction, name, dtype: As in ``keras.losses.Loss``. ``sample_weight`` and ``class_weight`` of ``fit`` work as
            with every loss of Keras.

    Raises:
        ArgumentError: Keras runs on another backend than torch.

    >>> from encouraging import curves
    >>> loss = CurveLoss(curves.cross_entropy())
    >>> round(float(loss([1, 0], [[0.5, 0.5], [0.5, 0.5]])), 4)
    0.6931
    """

    def __init__(self, curve: Curve, *, from_logits: bool = False, ignore_class: int | None = None,
                 label_smoothing: float = 0.0, axis: int = -1, reduction: str | None = "sum_over_batch_size",
                 name: str | None = None, dtype: Any = None) -> None:
        if keras.backend.backend() != "torch":
            raise ArgumentError(f"Keras runs on its {keras.backend.backend()} backend: expected torch, in which the "
                                "curves are written. Set KERAS_BACKEND=torch before keras is imported; for JAX take "
                                "encouraging.integrations.jax.")
        check_curve(curve)
        check_smoothing(label_smoothing)
        for argument, value in (("axis", axis), ("ignore_class", 0 if ignore_class is None else ignore_class)):
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise ArgumentError(f"{argument}={value!r}: expected an integer.")
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.curve, self.from_logits = curve, from_logits
        self.ignore_class = None if ignore_class is None else int(ignore_class)
        self.label_smoothing, self.axis = label_smoothing, int(axis)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """The loss of each example; Keras reduces it."""
        y_true, y_pred = keras.ops.convert_to_tensor(y_true), keras.ops.convert_to_tensor(y_pred)  # lists stay lists
        if not -y_pred.ndim <= self.axis < y_pred.ndim:
            raise ArgumentError(f"axis={self.axis} for predictions of shape {tuple(y_pred.shape)}: expected an integer "
                                f"from {-y_pred.ndim} to {y_pred.ndim - 1}, where the classes are.")
        logits = y_pred if self.from_logits else _log(y_pred)
        logits, classes = logits.movedim(self.axis, 1 if logits.ndim > 1 else 0), y_pred.shape[self.axis]
        if classes == 1:
            raise ArgumentError(f"predictions of shape {tuple(y_pred.shape)} have one class, which is always certain: "
                                "expected one number per class. Let the model end in Dense(2, activation='softmax') "
                                "instead of one sigmoid.")
        soft = y_true.ndim == y_pred.ndim and y_true.shape[self.axis] == classes
        if soft:
            if self.ignore_class is not None:
                raise ArgumentError(f"ignore_class={self.ignore_class} with labels of the predictions' shape "
                                    f"{tuple(y_pred.shape)}: probabilities have no label to ignore. Leave rows out "
                                    "with sample_weight 0, or pass class indices.")
            probabilities = y_true.movedim(self.axis, 1 if y_true.ndim > 1 else 0).to(logits.dtype)
            return self._per_example(logits, probabilities).to(y_pred.dtype)
        labels = (y_true.squeeze(self.axis) if y_true.ndim == y_pred.ndim else y_true).long()
        loss = self._per_example(logits, labels).to(y_pred.dtype)
        if self.ignore_class is not None:
            loss._keras_mask = labels != self.ignore_class  # type: ignore[attr-defined]  # the mean leaves these out
        return loss

    def _per_example(self, logits: Tensor, target: Tensor) -> Tensor:
        ignored = -100 if self.ignore_class is None else self.ignore_class
        return curve_loss(logits, target, self.curve, ignore_index=ignored, reduction="none",
                          label_smoothing=self.label_smoothing)

    def get_config(self) -> dict[str, Any]:
        """What a saved model keeps of its loss. A curve of one's own leaves only the name of its class."""
        # By the catalogue, not by the name: a subclass of a curve inherits the name and has another formula.
        name, params = ((self.curve.name, self.curve.params) if is_in_catalogue(self.curve) else
                        (type(self.curve).__name__, None))
        return {**super().get_config(), "curve": name, "params": params, "from_logits": self.from_logits,
                "ignore_class": self.ignore_class, "label_smoothing": self.label_smoothing, "axis": self.axis}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The loss of a saved model."""
        arguments = {name: value for name, value in config.items() if name not in {"curve", "params"}}
        if config["params"] is None or config["curve"] not in curves.names():
            raise CurveError(f"the model was saved with a curve of one's own ({config['curve']}), which a file cannot "
                             "hold: load it with compile=False and compile it again with the curve.")
        return cls._from_curve(curves.by_name(config["curve"], **config["params"]), arguments)

    @classmethod
    def _from_curve(cls, curve: Curve, arguments: dict[str, Any]) -> Self:
        return cls(curve, **arguments)


@keras.saving.register_keras_serializable("encouraging")
class EncouragingLoss(CurveLoss):
    """:func:`~encouraging.encouraging_loss` as a loss of Keras.

    Args:
        log_end, eps: As in :func:`~encouraging.encouraging_loss`.
        **arguments: As in :class:`CurveLoss`.

    >>> loss = EncouragingLoss(log_end=0.5, from_logits=True)
    >>> round(float(loss([1], [[-1.0, 1.0]])), 4)
    -1.3278
    """

    def __init__(self, *, log_end: float = 0.75, eps: float = 1e-5, **arguments: Unpack[Arguments]) -> None:
        super().__init__(curves.encouraging(log_end, eps), **arguments)

    @classmethod
    def _from_curve(cls, curve: Curve, arguments: dict[str, Any]) -> Self:
        loss = cls(**arguments)
        loss.curve = curve
        return loss


def _log(probabilities: Tensor) -> Tensor:
    """Their logarithms, in float32 at least: float16 has no normal number below 6e-5."""
    p = probabilities.float() if probabilities.dtype.itemsize < 4 else probabilities
    return p.clamp(min=torch.finfo(p.dtype).tiny).log()
