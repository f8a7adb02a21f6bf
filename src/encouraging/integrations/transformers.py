"""Any curve as the loss of a model of Hugging Face transformers, whatever trains it.

>>> from transformers import GPT2Config, GPT2LMHeadModel
>>> from encouraging import curves
>>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=16, bos_token_id=0, eos_token_id=0))
>>> with_curve(model, curves.encouraging(log_end=0.5)) is model
True
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.loss.loss_utils import (
    ForCausalLMLoss,
    ForMaskedLMLoss,
    ForQuestionAnsweringLoss,
    ForSequenceClassificationLoss,
    ForTokenClassification,
)

from ..curves import Curve
from ..errors import ArgumentError, DtypeError
from ._transformers_loss import CurveLossFunction, FusedLossFunction, Items, check_problem, next_tokens
from ._transformers_model import CurveModel, set_curve

HEADS = {ForCausalLMLoss: "causal_lm", ForMaskedLMLoss: "masked_lm", ForTokenClassification: "tokens",
         ForSequenceClassificationLoss: "classes", ForQuestionAnsweringLoss: "answers"}
CROSS_ENTROPY_INSIDE = ("ForSemanticSegmentationLoss",)  # functions of transformers that are kept, with a curve inside
ALIGNED = ("MaskedLM", "TokenClassifier", "Seq2SeqLM")  # outputs that are not shifted against their labels

__all__ = ["CurveLossFunction", "LossFunc", "ModelLoss", "loss_func", "with_curve"]


def with_curve(model: Any, curve: Curve, *, label_smoothing: float = 0.0, weight: Tensor | None = None,
               match_norm: bool = False, fused: bool = False, chunk_bytes: int | None = None) -> Any:
    """Give a model of transformers another loss. Weights, names and predictions stay as they are.

    The loss that the model returns for ``labels`` has the curve, in training and in evaluation, under ``Trainer``,
    accelerate, PEFT or a loop of your own. ``curves.cross_entropy()`` is the model's own loss.

    Args:
        model: A ``PreTrainedModel`` with a loss over classes or tokens, or a PEFT model around one. It is changed in
            place. A model that has been changed can be changed again.
        curve: Any of :mod:`encouraging.curves`.
        label_smoothing: The share of every label that is spread over all classes. ``Trainer``'s own
            ``label_smoothing_factor`` takes the labels away from the model and would switch the curve off.
        weight: One number per class. It follows the model to its device and is not part of its state dict. Where the
            caller passes ``num_items_in_batch``, the weighted sum is divided by that number.
        match_norm: Scale every batch so that the gradient on the logits has the norm of cross-entropy's.
        fused: For causal language models: output layer and loss are one operation while the model trains, so that the
            logits exist for a chunk of rows at a time. ``outputs.logits`` is None then.
        chunk_bytes: With ``fused``: the most bytes of logits that may exist at a time, see
            :func:`~encouraging.linear_curve_loss`.

    Returns:
        The same model. Its state dict has the same keys; a model that is loaded again has its own loss again.

    Raises:
        DtypeError: The model is not one of transformers, or is wrapped in DDP, FSDP or ``torch.compile``.
        ArgumentError: The model has no loss that a curve could replace (regression, CTC, object detection, no labels),
            or ``fused`` does not fit it. A loss that cannot be recognised beforehand is refused in the first step.
    """
    inner = _pretrained(model)
    head = _head(inner)
    if head == "classes" or "Classification" in type(inner).__name__:
        _check_config(inner.config)
    if head == "answers" and weight is not None:
        raise ArgumentError("weight for question answering: expected none, the classes are positions in the input.")
    if chunk_bytes is not None and not fused:
        raise ArgumentError("chunk_bytes without fused=True: it limits the logits of the fused output layer.")
    if fused and (head != "causal_lm" or inner.get_output_embeddings() is None):
        raise ArgumentError(f"fused=True for {type(inner).__name__}: expected a causal language model that calls its "
                            "loss_function. Call with_curve without fused=True.")
    kind = FusedLossFunction if fused else CurveLossFunction
    loss = kind(curve, head, label_smoothing, weight, match_norm)
    if isinstance(loss, FusedLossFunction):
        loss.chunk_bytes = chunk_bytes
    if isinstance(inner, CurveModel):
        inner.__dict__.pop("_loss_function", None)
    set_curve(inner, loss, "fused" if fused else "inside" if head == "inside" else "loss_function")
    return model


class LossFunc:
    """The loss of a model's outputs; :func:`loss_func` makes one."""

    def __init__(self, curve: Curve, shift: bool | None, label_smoothing: float, weight: Tensor | None,
                 match_norm: bool, multi_label: bool) -> None:
        self.loss = CurveLossFunction(curve, "masked_lm", label_smoothing, weight, match_norm)
        self.shift, self.multi_label = shift, multi_label

    def __repr__(self) -> str:
        return (f"loss_func({self.loss.curve!r}, shift={self.shift}, label_smoothing={self.loss.label_smoothing}, "
                f"multi_label={self.multi_label})")

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Items = None) -> Tensor:
        """The mean over labels, or their sum over ``num_items_in_batch``."""
        logits = outputs.get("logits") if isinstance(outputs, dict) else outputs[0]
        if labels is None or not isinstance(logits, Tensor):
            missing = "labels" if labels is None else "logits"
            raise ArgumentError(f"there are no {missing}: expected outputs with logits, and the labels that Trainer "
                                "takes from the column 'labels'.")
        labels = labels.to(logits.device)
        if labels.is_floating_point() and labels.shape == logits.shape and (self.multi_label or logits.shape[-1] > 1):
            loss_of = self.loss.of_presence if self.multi_label else self.loss.of_probabilities
            return loss_of(logits, labels, num_items_in_batch)
        if labels.is_floating_point() or logits.shape[-1] == 1:
            raise ArgumentError(f"labels of type {labels.dtype} and shape {tuple(labels.shape)} for logits "
                                f"{tuple(logits.shape)}: a regression has no classes for a curve.")
        shift = self._shifts(outputs, labels) if self.shift is None else self.shift
        return self.loss.of_labels(logits, next_tokens(labels, None) if shift else labels, num_items_in_batch)

    def _shifts(self, outputs: Any, labels: Tensor) -> bool:
        name = type(outputs).__name__
        if labels.ndim == 1 or any(kind in name for kind in ALIGNED):
            return False
        if "CausalLM" not in name:
            raise ArgumentError(f"outputs are a {name}: it does not say whether the labels are the next tokens. Pass "
                                "loss_func(curve, shift=True) for a causal language model, else shift=False.")
        return True


def loss_func(curve: Curve, *, shift: bool | None = None, label_smoothing: float = 0.0, weight: Tensor | None = None,
              match_norm: bool = False, multi_label: bool = True) -> LossFunc:
    """``Trainer(compute_loss_func=loss_func(curve))``: the loss of the model's logits, for models of any kind.

    ``Trainer`` then takes the labels away from the model and hands them to this function, and its
    ``label_smoothing_factor`` has no effect. Prefer :func:`with_curve` wherever it takes the model: it needs no
    ``Trainer``, and models that read their labels (T5, BART) still get them.

    Args:
        curve: Any of :mod:`encouraging.curves`.
        shift: Whether a position predicts the next token. By default that is read from the type of the outputs, such
            as ``CausalLMOutputWithPast``.
        label_smoothing, weight, match_norm: As in :func:`with_curve`.
        multi_label: What floating-point labels of the logits' shape are: True for every class on its own, as in
            transformers, False for probabilities over the classes, as from MixUp or distillation.

    Returns:
        A function of outputs, labels and ``num_items_in_batch``, which can be pickled.
    """
    return LossFunc(curve, shift, label_smoothing, weight, match_norm, multi_label)


class ModelLoss:
    """For trainers with a loss of their own: ``class CurveSFTTrainer(ModelLoss, SFTTrainer)`` takes the model's.

    TRL's ``SFTTrainer`` computes cross-entropy from log-probabilities. It logs entropy and accuracy of the tokens with
    it, which this class leaves out.
    """

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False,
                     num_items_in_batch: Items = None) -> Any:
        """The loss as ``Trainer`` itself computes it."""
        from transformers import Trainer

        return Trainer.compute_loss(self, model, inputs | {"use_cache": False}, return_outputs, num_items_in_batch)


def _pretrained(model: Any) -> Any:
    """The model of transformers, which PEFT may have wrapped."""
    if not isinstance(model, PreTrainedModel) and hasattr(model, "get_base_model"):
        kind = str(getattr(getattr(model, "active_peft_config", None), "peft_type", ""))
        if "PREFIX" in kind and hasattr(model, "_prefix_tuning_forward"):
            raise ArgumentError(f"{type(model).__name__} with prefix tuning computes cross-entropy by itself: the "
                                "curve would not be used. Use another kind of adapter, such as LoRA.")
        model = model.get_base_model()
    sharded = any(kind.__name__ == "FSDPModule" for kind in type(model).__mro__)
    if not isinstance(model, PreTrainedModel) or sharded:
        raise DtypeError(f"model is a {type(model).__name__}: expected a PreTrainedModel of transformers. Call "
                         "with_curve before DistributedDataParallel, FSDP, accelerator.prepare or torch.compile.")
    return model


def _base(model: Any) -> Any:
    return model._curve_base if isinstance(model, CurveModel) else type(model)


def _head(model: Any) -> str:
    """The kind of loss that the model computes through its ``loss_function``; "inside" for one without it."""
    code = getattr(inspect.unwrap(_base(model).forward), "__code__", None)
    if code is None or "loss_function" not in code.co_names:
        return "inside"
    assigned = model.__dict__.get("_loss_function")
    if isinstance(assigned, CurveLossFunction):
        return assigned.head
    function = model.loss_function
    name = getattr(function, "__name__", repr(function))
    for head_function, head in HEADS.items():
        if function is head_function:
            return head
    if name in CROSS_ENTROPY_INSIDE:
        return "inside"
    raise ArgumentError(f"{type(model).__name__} computes its loss with {name}: expected one of "
                        f"{', '.join(known.__name__ for known in HEADS)}. Reset model.loss_function, or compute "
                        "the loss of its logits with encouraging.curve_loss.")


def _check_config(config: Any) -> None:
    check_problem(config)
    if getattr(config, "problem_type", None) is None and config.num_labels == 1:
        raise ArgumentError("the model has one label, which transformers takes for a regression: a curve needs "
                            "classes. Set num_labels, or leave the model's own loss.")
