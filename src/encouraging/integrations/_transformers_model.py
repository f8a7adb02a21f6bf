"""A model of transformers gets a class of its own, which sees the labels first, whichever trainer is used."""

from __future__ import annotations

import functools
import inspect
import sys
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
from ._transformers_loss import CurveLossFunction, FusedLossFunction, HeldLinear, Holding

NO_CLASSES = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.nll_loss, F.ctc_loss, F.kl_div,
              F.binary_cross_entropy, torch.ctc_loss)


class Replace(TorchFunctionMode):
    """``F.cross_entropy`` and ``F.binary_cross_entropy_with_logits`` with a curve, for models that call them inside.

    Every other argument is the model's: its ignored label, its reduction, its shifts.
    """

    def __init__(self, loss: CurveLossFunction) -> None:
        super().__init__()
        self.loss = loss
        self.table: dict[Any, Callable[..., Tensor]] = {
            F.cross_entropy: self.cross_entropy, F.binary_cross_entropy_with_logits: self.presence,
            **{function: functools.partial(_refuse, function) for function in NO_CLASSES}}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.table.get(func, func)(*args, **(kwargs or {}))

    def cross_entropy(self, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: None = None,
                      ignore_index: int = -100, reduce: None = None, reduction: str = "mean",
                      label_smoothing: float = 0.0) -> Tensor:
        """As ``F.cross_entropy``."""
        loss = self._used(weight is not None, label_smoothing != 0)
        return curve_loss(input, target, loss.curve, loss.weight_on(input) if weight is None else weight, ignore_index,
                          reduction, label_smoothing or loss.label_smoothing, match_norm=loss.match_norm)

    def presence(self, input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: None = None,
                 reduce: None = None, reduction: str = "mean", pos_weight: Tensor | None = None) -> Tensor:
        """As ``F.binary_cross_entropy_with_logits``."""
        loss = self._used(weight is not None, False)
        loss.check_presence(input, target)
        return sigmoid_curve_loss(input, target, loss.curve, loss.weight_on(input) if weight is None else weight,
                                  reduction, pos_weight)

    def _used(self, own_weight: bool, own_smoothing: bool) -> CurveLossFunction:
        loss = self.loss
        loss.mark_used()
        if (own_weight and loss.weight is not None) or (own_smoothing and loss.label_smoothing):
            raise ArgumentError("the model has class weights or label smoothing of its own: pass none to with_curve.")
        return loss


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
        super().__setattr__(name, MethodType(_watched(value, self), self) if name == "forward" else value)


def curved_class(base: type[nn.Module]) -> type[Any]:
    """The class of models like ``base`` with a curve, under the same name."""
    original: Any = base.__dict__.get("_curve_base", base)
    return _curved_class(original)


@functools.cache
def _curved_class(base: type[nn.Module]) -> type[Any]:
    signature = inspect.signature(base.forward)
    positions = _label_positions(base)
    if not positions:
        raise ArgumentError(f"{base.__name__} takes no labels, so that it has no loss of its own. Compute the loss of "
                            "its logits with encouraging.curve_loss.")

    own_forward = base.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        labelled = kwargs.get("shift_labels") is not None
        for name, position in positions.items():
            if kwargs.get(name) is not None or (len(args) > position and args[position] is not None):
                labelled = True
        if not labelled:
            if self.training and torch.is_grad_enabled() and not self._curve_warned:
                _warn(self)
            return own_forward(self, *args, **kwargs)
        before = self.curve_loss.reset()
        if self._curve_path == "inside":
            outputs = _inside(self, own_forward, args, kwargs)
        elif self._curve_path == "fused" and self.training:
            outputs = _fused(self, own_forward, args, kwargs)
        else:
            outputs = own_forward(self, *args, **kwargs)
        if not self.curve_loss.called_since(before) and not getattr(self, "_is_replica", False):
            _check_loss(outputs, f"{base.__name__} computes its loss without cross_entropy or its loss_function")
        return outputs

    # Not functools.wraps: accelerate unwraps a forward pass down to the last __wrapped__.
    forward.__signature__ = signature  # type: ignore[attr-defined]
    forward.__doc__ = base.forward.__doc__
    contents = {"_curve_base": base, "forward": forward, "__module__": base.__module__,
                "__qualname__": base.__qualname__, "__doc__": base.__doc__}
    return type(base.__name__, (CurveModel, base), contents)


def _label_positions(base: type[nn.Module]) -> dict[str, int]:
    """The label arguments of a forward pass and their positions. A forward pass without labels that passes on its
    ``**kwargs`` takes the labels of the class that it extends."""
    passes_positional = True  # whether the classes so far pass on their positional arguments, too
    for ancestor in base.__mro__:
        if "forward" not in ancestor.__dict__:
            continue
        signature = inspect.signature(ancestor.__dict__["forward"])
        parameters = [parameter for name, parameter in signature.parameters.items() if name != "self"]
        positions = {parameter.name: position if passes_positional else sys.maxsize
                     for position, parameter in enumerate(parameters)
                     if "label" in parameter.name or parameter.name in ("start_positions", "end_positions")}
        if positions or not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return positions
        passes_positional = passes_positional and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
    return {}


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


def _check_loss(outputs: Any, because: str, with_gradient: bool = False) -> None:
    """Refuse a loss that was computed without the curve."""
    loss = outputs[0] if isinstance(outputs, tuple) and outputs else getattr(outputs, "loss", outputs)
    if isinstance(loss, Tensor) and loss.ndim == 0 and (loss.requires_grad or not with_gradient):
        raise ArgumentError(f"{because}: the curve would not be used. Compute the loss of the logits with "
                            "encouraging.curve_loss, or with Trainer(compute_loss_func=loss_func(curve)).")


def _inside_eagerly(model: Any, own_forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with Replace(model.curve_loss):
        return own_forward(model, *args, **kwargs)


def _inside(model: Any, own_forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The model's own forward pass with its cross-entropies replaced.

    A compiler replaces ``nn.CrossEntropyLoss()`` by itself, before a mode can see it: the model then runs uncompiled.
    """
    if torch.compiler.is_compiling():
        return torch.compiler.disable(_inside_eagerly)(model, own_forward, args, kwargs)  # type: ignore[no-untyped-call]
    return _inside_eagerly(model, own_forward, args, kwargs)


def _fused(model: Any, own_forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The model's own forward pass with an output layer that returns its hidden states. No logits are returned."""
    layer = model.get_output_embeddings()
    if model.curve_loss.layer is not layer:  # resize_token_embeddings makes a new one
        model.curve_loss.layer = layer = held_layer(layer)
    if getattr(model, "_is_replica", False):
        raise ArgumentError("fused=True under nn.DataParallel: the replicas share one loss. Start one process per GPU "
                            "(torchrun, accelerate launch), or call with_curve without fused=True.")
    # A checkpoint around the model may run it again while its loss is computed.
    holding = layer.holding
    before = holding.held, holding.received, holding.version
    holding.held, holding.received = True, None
    try:
        outputs = own_forward(model, *args, **kwargs)
        received = holding.received
    finally:
        holding.held, holding.received, holding.version = before
    if isinstance(outputs, tuple):
        return tuple(output for output in outputs if output is not received)
    return type(outputs)(**{name: value for name, value in outputs.items() if name != "logits"})


def held_layer(layer: Any) -> HeldLinear:
    """The output layer as one that can return its input; refused where it is not a plain linear layer."""
    if type(layer) not in (nn.Linear, HeldLinear) or "forward" in layer.__dict__:
        raise ArgumentError(
            f"fused=True with an output layer of {type(layer)}: expected a plain nn.Linear, without an "
            "adapter, quantization or offloading. Call with_curve without fused=True, or leave the layer as it is.")
    layer.__class__ = HeldLinear
    layer.holding = Holding()
    return layer  # type: ignore[no-any-return]


def set_curve(model: Any, loss: CurveLossFunction, path: str) -> None:
    """Change the class of ``model``, in place."""
    curved = curved_class(type(model))
    if path == "fused":
        assert isinstance(loss, FusedLossFunction)
        loss.layer = held_layer(model.get_output_embeddings())
    elif type(layer := model.get_output_embeddings()) is HeldLinear:
        layer.__class__ = nn.Linear  # type: ignore[assignment]
        del layer.__dict__["holding"]
    model.__class__ = curved
    model.curve_loss, model._curve_path, model._curve_warned = loss, path, False
    if "forward" in model.__dict__:  # another library has replaced it before
        model.forward = model.__dict__.pop("forward")
    if path != "inside":
        model.loss_function = loss


def _watched(replacement: Any, model: Any) -> Callable[..., Any]:
    """A forward pass that a library has put on ``model``, which must still train with the curve.

    accelerate's calls the one before it. TRL's and Liger's compute cross-entropy by themselves.
    """
    bound = getattr(replacement, "__self__", None) is model
    function = replacement.__func__ if bound else replacement

    @functools.wraps(function)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.curve_loss.reset()
        outputs = function(self, *args, **kwargs) if bound else function(*args, **kwargs)
        if not self.curve_loss.called_since(before) and not getattr(self, "_is_replica", False):
            _check_loss(outputs, "another library has replaced the forward pass of this model with one that computes "
                        "cross-entropy by itself (TRL's SFTTrainer: class CurveSFTTrainer(ModelLoss, SFTTrainer), with "
                        "ModelLoss of encouraging.integrations.transformers; Liger: use_liger_kernel=False and "
                        "fused=True)", with_gradient=True)
        return outputs

    parameters = list(inspect.signature(function).parameters.values())
    if not bound:
        parameters.insert(0, inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY))
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return forward
