"""The losses of transformers' heads with any curve: what a model's ``loss_function`` computes, argument by argument."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..curves import Curve
from ..curves._curve import check_curve
from ..errors import ArgumentError, ShapeError
from ..losses import curve_loss, linear_curve_loss, sigmoid_curve_loss
from ..targets import check_class_weight, check_flag, check_smoothing

Items = Tensor | int | None
IGNORED = -100


class CurveLossFunction:
    """The ``loss_function`` of a model with a curve, made by ``with_curve``.

    It is called with the arguments of transformers' own function of the same head. A model with this attribute can be
    copied and pickled, and its state dict has no further keys. ``used`` says whether the last forward pass with labels
    has computed this loss.
    """

    used = True
    latest: object = None  # a new object for every call: another thread may reset ``used`` before it is read

    def __init__(self, curve: Curve, head: str, label_smoothing: float = 0.0, weight: Tensor | None = None,
                 match_norm: bool = False) -> None:
        check_curve(curve)
        check_smoothing(label_smoothing)
        if weight is not None:
            check_class_weight(weight, None)
        check_flag("match_norm", match_norm)
        self.curve, self.head, self.label_smoothing, self.match_norm = curve, head, label_smoothing, match_norm
        self.weight = None if weight is None else weight.detach().clone()

    def __repr__(self) -> str:
        weight = "" if self.weight is None else f", weight of {len(self.weight)} classes"
        return (f"{type(self).__name__}({self.curve!r}, {self.head!r}, label_smoothing={self.label_smoothing}"
                f"{weight}, match_norm={self.match_norm})")

    def reset(self) -> object:
        """Before a forward pass. Returns what :meth:`called_since` needs after it."""
        self.used = False
        return None if torch.compiler.is_compiling() else self.latest

    def mark_used(self) -> None:
        """Note that the loss is being computed."""
        self.used = True
        if not torch.compiler.is_compiling():
            self.latest = object()

    def called_since(self, before: object) -> bool:
        """Whether the loss has been computed since the reset."""
        return self.used or (not torch.compiler.is_compiling() and self.latest is not before)

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor | None:
        self.mark_used()
        loss: Tensor | None = getattr(self, self.head)(*args, **kwargs)
        return loss

    def causal_lm(self, logits: Tensor, labels: Tensor | None, vocab_size: int | None = None,
                  num_items_in_batch: Items = None, ignore_index: int = IGNORED, shift_labels: Tensor | None = None,
                  **_: Any) -> Tensor:
        """Every position predicts the next token. ``shift_labels`` are aligned with the logits already."""
        return self.of_labels(logits, next_tokens(labels, shift_labels, ignore_index), num_items_in_batch, ignore_index)

    def masked_lm(self, logits: Tensor, labels: Tensor, vocab_size: int | None = None, num_items_in_batch: Items = None,
                  ignore_index: int = IGNORED, **_: Any) -> Tensor:
        """Every position predicts its own token."""
        return self.of_labels(logits, labels, num_items_in_batch, ignore_index)

    def tokens(self, logits: Tensor, labels: Tensor, config: Any = None, num_items_in_batch: Items = None,
               ignore_index: int = IGNORED, **_: Any) -> Tensor:
        """One class per token."""
        return self.of_labels(logits, labels, num_items_in_batch, ignore_index)

    def classes(self, labels: Tensor, pooled_logits: Tensor, config: Any, num_items_in_batch: Items = None,
                ignore_index: int = IGNORED, **_: Any) -> Tensor:
        """One class per example, or several where ``config.problem_type`` says so or the labels are not integers."""
        if config.problem_type is None:  # transformers' own rule, which it writes into the config too
            single_label = labels.dtype in (torch.long, torch.int)
            config.problem_type = ("regression" if config.num_labels == 1 else
                                   "single_label_classification" if single_label else "multi_label_classification")
        check_problem(config)
        labels = labels.to(pooled_logits.device)
        if config.problem_type == "multi_label_classification":
            return self.of_presence(pooled_logits, labels)
        return self.of_labels(pooled_logits, labels, num_items_in_batch, ignore_index, precise=False)

    def answers(self, start_logits: Tensor, end_logits: Tensor, start_positions: Tensor | None,
                end_positions: Tensor | None, num_items_in_batch: Items = None, **_: Any) -> Tensor | None:
        """Where the answer starts and ends; a position outside the input does not count."""
        if start_positions is None or end_positions is None:
            return None
        outside = start_logits.shape[1]
        start, end = (self.of_labels(logits, positions.reshape(-1).to(logits.device).clamp(0, outside),
                                     num_items_in_batch, outside, precise=False)
                      for logits, positions in ((start_logits, start_positions), (end_logits, end_positions)))
        return (start + end) / 2

    def of_labels(self, logits: Tensor, labels: Tensor, num_items_in_batch: Items = None, ignore_index: int = IGNORED,
                  precise: bool = True) -> Tensor:
        """The mean over labels, or the sum over ``num_items_in_batch``; ``precise`` is in float32 at least."""
        labels = labels.to(logits.device).reshape(-1)
        with in_float32(logits) if precise else nullcontext():
            return curve_loss(logits.reshape(-1, logits.shape[-1]), labels, self.curve, self.weight_on(logits),
                              ignore_index, label_smoothing=self.label_smoothing, match_norm=self.match_norm,
                              divisor=as_divisor(num_items_in_batch, logits))

    def of_probabilities(self, logits: Tensor, probabilities: Tensor, num_items_in_batch: Items = None) -> Tensor:
        """The mean over rows of probabilities, or their sum over ``num_items_in_batch``."""
        rows = (-1, logits.shape[-1])
        with in_float32(logits):
            return curve_loss(logits.reshape(rows), probabilities.reshape(rows), self.curve, self.weight_on(logits),
                              label_smoothing=self.label_smoothing, match_norm=self.match_norm,
                              divisor=as_divisor(num_items_in_batch, logits))

    def of_presence(self, logits: Tensor, present: Tensor, num_items_in_batch: Items = None) -> Tensor:
        """Every class on its own."""
        self.check_presence(logits, present)
        return sigmoid_curve_loss(logits, present, self.curve, self.weight_on(logits),
                                  divisor=as_divisor(num_items_in_batch, logits))

    def check_presence(self, logits: Tensor, present: Tensor) -> None:
        """Refuse what has no meaning for several labels per example."""
        if present.shape != logits.shape:
            raise ShapeError(f"labels are {present.dtype} of shape {tuple(present.shape)} for the logits "
                             f"{tuple(logits.shape)} of a multi-label problem: expected one 0 or 1 for each logit. For "
                             "one class per example pass labels.long() and set "
                             "config.problem_type='single_label_classification'.")
        if self.label_smoothing or self.match_norm:
            raise ArgumentError(f"label_smoothing={self.label_smoothing}, match_norm={self.match_norm} for a "
                                "multi-label problem: expected neither. They belong to one label per example.")

    def weight_on(self, logits: Tensor) -> Tensor | None:
        """The class weights beside the logits; moved once, where the model has moved."""
        if self.weight is not None and self.weight.device != logits.device:
            self.weight = self.weight.to(logits.device)
        return self.weight


class FusedLossFunction(CurveLossFunction):
    """The same for a causal language model whose output layer and loss are one operation.

    While a model trains, ``layer`` returns its input, the hidden states. The model passes them to this function instead
    of logits, and the loss is computed from them and the layer's weight.
    """

    layer: HeldLinear
    chunk_bytes: int | None = None

    def causal_lm(self, logits: Tensor, labels: Tensor | None, vocab_size: int | None = None,
                  num_items_in_batch: Items = None, ignore_index: int = IGNORED, shift_labels: Tensor | None = None,
                  **rest: Any) -> Tensor:
        """The loss of hidden states where the layer returned them, else that of logits."""
        held = self.layer.holding.received
        if held is None:
            return super().causal_lm(logits, labels, vocab_size, num_items_in_batch, ignore_index, shift_labels)
        if logits is not held or self.layer.was_written():
            raise ArgumentError(
                "this model changes its logits between the output layer and the loss (a cap, a scale, a mask or "
                "another type): fused=True computes the loss of the layer's own logits. Call with_curve without "
                "fused=True.")
        if type(self.layer.weight).__name__ == "DTensor":
            raise ArgumentError("the output layer is sharded by itself: with fused=True its weight is needed after its "
                                "forward pass. Shard it together with the model (fully_shard(model)), not alone.")
        target = next_tokens(labels, shift_labels, ignore_index).to(held.device)
        if target.numel() != held.shape[:-1].numel():
            raise ShapeError(f"labels of shape {tuple(target.shape)} for hidden states of shape {tuple(held.shape)}: "
                             f"expected one label for each position, {tuple(held.shape[:-1])}.")
        target = target.reshape(held.shape[:-1])
        with in_float32(held):
            return linear_curve_loss(held, self.layer.weight, target, self.curve, self.layer.bias, self.weight_on(held),
                                     ignore_index, label_smoothing=self.label_smoothing, match_norm=self.match_norm,
                                     divisor=as_divisor(num_items_in_batch, held), chunk_bytes=self.chunk_bytes)


class Holding(threading.local):
    """The hidden states that an output layer has returned in the forward pass of this thread. Copies and pickles are
    empty."""

    held = False
    received: Tensor | None = None
    version = 0  # of the tensor that was received: writing into it counts it up

    def __reduce__(self) -> Any:
        return Holding, ()


class HeldLinear(torch.nn.Linear):
    """An output layer that returns its input while it is held, and remembers what it has returned."""

    holding: Holding

    def forward(self, input: Tensor) -> Tensor:
        if not self.holding.held:
            return super().forward(input)
        if self.holding.received is not None:
            raise ArgumentError("this model calls its output layer more than once per step: fused=True computes one "
                                "loss. Call with_curve without fused=True.")
        self.holding.received = input
        if not torch.compiler.is_compiling():
            self.holding.version = input._version
        return input

    def was_written(self) -> bool:
        """Whether something has changed what the layer returned, in place; a compiler cannot tell."""
        received = self.holding.received
        return received is not None and not torch.compiler.is_compiling() and received._version != self.holding.version


def next_tokens(labels: Tensor | None, shift_labels: Tensor | None, ignore_index: int = IGNORED) -> Tensor:
    """What every position predicts: the next label, and nothing at the last position."""
    if shift_labels is not None:
        return shift_labels
    if labels is None:
        raise ArgumentError("labels and shift_labels are None: expected one of them.")
    return F.pad(labels, (0, 1), value=ignore_index)[..., 1:]


def as_divisor(items: Items, logits: Tensor) -> Tensor | int | None:
    """transformers' ``num_items_in_batch`` as the losses take it; DataParallel passes it with a dimension."""
    return items.to(logits.device).reshape(()) if isinstance(items, Tensor) else items


def in_float32(logits: Tensor) -> AbstractContextManager[Any]:
    """Under autocast a loss of 16-bit logits is computed and returned in float32, without a float32 copy of them."""
    if logits.dtype.itemsize >= 4 or logits.device.type == "meta" or torch.is_autocast_enabled(logits.device.type):
        return nullcontext()
    return torch.autocast(logits.device.type, logits.dtype)


def check_problem(config: Any) -> None:
    """Refuse a problem without classes."""
    if config.problem_type == "regression":
        raise ArgumentError(
            f"config.problem_type='regression' with {config.num_labels} outputs: a curve is about the probability of a "
            "class. Leave the model's own loss, or set num_labels and problem_type for a classification.")
