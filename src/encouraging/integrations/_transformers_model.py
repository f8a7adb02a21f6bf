"""A model of transformers under a class of its own that sees the labels first, whatever trains it."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..errors import ArgumentError
from ..losses import curve_loss, sigmoid_curve_loss
from ._transformers_loss import CurveLossFunction, FusedLossFunction, HeldLinear

NO_CLASSES = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.nll_loss, F.ctc_loss, F.kl_div,
              F.binary_cross_entropy, torch.ctc_loss)


class Replace(TorchFunctionMode):
    """``F.cross_entropy`` and ``F.binary_cross_entropy_with_logits`` with a curve, for models that call them inside.

    Every other argument is the model's: its ignored label, its reduction, its shifts.
    """

    def __init__(self, loss: CurveLossFunction) -> None:
        super().__init__()
        self.loss, self.replaced = loss, 0
        self.table: dict[Any, Callable[..., Tensor]] = {
            F.cross_entropy: self.cross_entropy, F.binary_cross_entropy_with_logits: self.presence,
            **{function: functools.partial(_refuse, function) for function in NO_CLASSES}}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.table.get(func, func)(*args, **(kwargs or {}))

    def cross_entropy(self, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: None = None,
                      ignore_index: int = -100, reduce: None = None, reduction: str = "mean",
                      label_smoothing: float = 0.0) -> Tensor:
        """As ``F.cross_entropy``."""
        self.replaced += 1
        loss = self.loss
        if (weight is not None and loss.weight is not None) or (label_smoothing and loss.label_smoothing):
            raise ArgumentError("the model has class weights or label smoothing of its own: pass none to with_curve.")
        return curve_loss(input, target, loss.curve, loss.weight_on(input) if weight is None else weight, ignore_index,
                          reduction, label_smoothing or loss.label_smoothing, match_norm=loss.match_norm)

    def presence(self, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: None = None,
                 reduce: None = None, reduction: str = "mean", pos_weight: Tensor | None = None) -> Tensor:
        """As ``F.binary_cross_entropy_with_logits``."""
        self.replaced += 1
        if weight is None and pos_weight is None and reduction == "mean":
            return self.loss.of_presence(input, target)
        return sigmoid_curve_loss(input, target, self.loss.curve, weight, reduction, pos_weight)


def _refuse(function: Any, *_: Any, **__: Any) -> Tensor:
    raise ArgumentError(
        f"this model computes its loss with {function.__name__} (a regression, or a loss of log-probabilities): a "
        "curve replaces cross_entropy and binary_cross_entropy_with_logits. Compute the loss of its logits with "
        "encouraging.curve_loss, or with Trainer(compute_loss_func=loss_func(curve)).")


class CurveModel:
    """What :func:`~encouraging.integrations.transformers.with_curve` adds to the class of a model."""

    curve_loss: CurveLossFunction
    _curve_base: type[nn.Module]  # the model's own class
    _curve_path: str  # "loss_function", "inside" or "fused"
    _curve_warned: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._curve_base(*args, **kwargs)  # type(model).from_pretrained(...) gives a model without a curve

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _empty, (self._curve_base,), self.__dict__

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "forward" and "fused_lm_head" in _argument_names(value):
            value = MethodType(_without_fused_lm_head(value), self)
        super().__setattr__(name, value)


def curved_class(base: type[nn.Module]) -> type[Any]:
    """The class of models like ``base`` with a curve, under the same name."""
    own: Any = base.__dict__.get("_curve_base", base)
    return _curved_class(own)


@functools.cache
def _curved_class(base: type[nn.Module]) -> type[Any]:
    signature = inspect.signature(base.forward)
    names = [name for name in signature.parameters if name != "self"]
    places = {name: place for place, name in enumerate(names)
              if "label" in name or name in ("start_positions", "end_positions")}
    if not places:
        raise ArgumentError(f"{base.__name__} takes no labels, so that it has no loss of its own. Compute the loss of "
                            "its logits with encouraging.curve_loss.")

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        labelled = kwargs.get("shift_labels") is not None
        for name, place in places.items():
            if kwargs.get(name) is not None or (len(args) > place and args[place] is not None):
                labelled = True
        if not labelled:
            if self.training and torch.is_grad_enabled() and not self._curve_warned:
                _warn(self)
            return base.forward(self, *args, **kwargs)
        if self._curve_path == "inside":
            return _inside(self, base, args, kwargs)
        if self._curve_path == "fused" and self.training:
            return _fused(self, base, args, kwargs)
        return base.forward(self, *args, **kwargs)

    # Not functools.wraps: accelerate unwraps a forward pass down to the last __wrapped__.
    forward.__signature__ = signature  # type: ignore[attr-defined]
    forward.__doc__ = base.forward.__doc__
    contents = {"_curve_base": base, "forward": forward, "__module__": base.__module__,
                "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (CurveModel, base), contents)


def _empty(base: type[nn.Module]) -> Any:
    """A model without contents, for copies and pickles."""
    return object.__new__(curved_class(base))


def _warn(model: Any) -> None:
    model._curve_warned = True
    warnings.warn(
        f"{type(model).__name__} has the curve {model.curve_loss.curve!r} and is trained without labels: the curve is "
        "not used. Trainer keeps labels to itself for label_smoothing_factor (pass label_smoothing to with_curve "
        "instead) and for compute_loss_func (pass loss_func(curve) of encouraging.integrations.transformers).",
        UserWarning, stacklevel=3)


def _inside_eagerly(model: Any, base: type[nn.Module], args: Any, kwargs: Any) -> Any:
    with Replace(model.curve_loss) as mode:
        outputs = base.forward(model, *args, **kwargs)
    with_loss = isinstance(outputs, tuple) or outputs.get("loss") is not None
    if with_loss and not mode.replaced:
        raise ArgumentError(
            f"{base.__name__} computes its loss without cross_entropy, and the curve cannot be put there. Compute the "
            "loss of its logits with encouraging.curve_loss, or with Trainer(compute_loss_func=loss_func(curve)).")
    return outputs


def _inside(model: Any, base: type[nn.Module], args: Any, kwargs: Any) -> Any:
    """The model's own forward pass with its cross-entropies replaced.

    A compiler replaces ``nn.CrossEntropyLoss()`` by itself, before a mode can see it: the model then runs uncompiled.
    """
    if torch.compiler.is_compiling():
        return torch.compiler.disable(_inside_eagerly)(model, base, args, kwargs)  # type: ignore[no-untyped-call]
    return _inside_eagerly(model, base, args, kwargs)


def _fused(model: Any, base: type[nn.Module], args: Any, kwargs: Any) -> Any:
    """The model's own forward pass, where the output layer holds the hidden states back. No logits are returned."""
    layer = model.get_output_embeddings()
    if model.curve_loss.layer is not layer:  # resize_token_embeddings makes a new one
        model.curve_loss.layer = layer = held_layer(model, layer)
    if getattr(model, "_is_replica", False):
        raise ArgumentError("fused=True under nn.DataParallel: the replicas share one loss. Start one process per GPU "
                            "(torchrun, accelerate launch), or call with_curve without fused=True.")
    layer.held = True
    try:
        outputs = base.forward(model, *args, **kwargs)
        received = layer.received
    finally:
        layer.held, layer.received = False, None
    if isinstance(outputs, tuple):
        return tuple(one for one in outputs if one is not received)
    return type(outputs)(**{name: value for name, value in outputs.items() if name != "logits"})


def held_layer(model: Any, layer: Any) -> HeldLinear:
    """The output layer as one that can hold back; refused where it is more than a plain linear layer."""
    if type(layer) not in (nn.Linear, HeldLinear) or "forward" in layer.__dict__:
        raise ArgumentError(
            f"fused=True with an output layer of {type(layer)}: expected a plain nn.Linear, without an "
            "adapter, quantization or offloading. Call with_curve without fused=True, or leave the layer as it is.")
    layer.__class__ = HeldLinear
    layer.held, layer.received, layer.version = False, None, 0
    return layer  # type: ignore[no-any-return]


def set_curve(model: Any, loss: CurveLossFunction, path: str) -> None:
    """Change the class of ``model``, in place."""
    kind = curved_class(type(model))
    if path == "fused":
        assert isinstance(loss, FusedLossFunction)
        loss.layer = held_layer(model, model.get_output_embeddings())
    elif type(layer := model.get_output_embeddings()) is HeldLinear:
        layer.__class__ = nn.Linear  # type: ignore[assignment]
        for name in ("held", "received", "version"):
            del layer.__dict__[name]
    model.__class__ = kind
    model.curve_loss, model._curve_path, model._curve_warned = loss, path, False
    if path != "inside":
        model.loss_function = loss


def _argument_names(function: Any) -> tuple[str, ...]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return () if code is None else code.co_varnames


def _without_fused_lm_head(patched: Any) -> Callable[..., Any]:
    """TRL's forward pass, which can return log-probabilities in place of the loss, without that."""

    def forward(self: Any, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        if fused_lm_head and torch.is_grad_enabled():
            raise ArgumentError(
                "TRL's trainer computes cross-entropy from log-probabilities of its own, and the curve is not used. "
                "Take the model's loss: class CurveSFTTrainer(ModelLoss, SFTTrainer), with ModelLoss of "
                "encouraging.integrations.transformers.")
        return patched(*args, fused_lm_head=fused_lm_head, **kwargs)

    forward.__signature__ = inspect.signature(getattr(patched, "__func__", patched))  # type: ignore[attr-defined]
    return forward
