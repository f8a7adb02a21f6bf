"""``Trainer(compute_loss_func=loss_func(curve))``: the loss of a model's outputs, shifted or not."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.nn import functional as F
from transformers.modeling_outputs import SequenceClassifierOutput

import transformer_toys as toys
from encouraging import curve_loss, curves, sigmoid_curve_loss
from encouraging.errors import ArgumentError
from encouraging.integrations.transformers import loss_func

EL = curves.encouraging(log_end=0.5)
MODELS = {
    "llama": (toys.llama, toys.text), "gpt2": (toys.gpt2, toys.text),
    "bert masked": (lambda: toys.bert("MaskedLM"), toys.text),
    "bert classes": (lambda: toys.bert("SequenceClassification"), toys.one_class),
    "bert labels": (lambda: toys.bert("SequenceClassification"), toys.some_classes),
    "qwen tokens": (lambda: toys.qwen_head("TokenClassification"), toys.token_classes), "vit": (toys.vit, toys.images),
}


class Odd(dict):
    """Outputs of an unknown kind."""


def shifted(labels):
    return F.pad(labels, (0, 1), value=-100)[:, 1:].reshape(-1)


@pytest.mark.parametrize("items", [None, torch.tensor(7)])
@pytest.mark.parametrize("name", MODELS)
def test_loss_func_is_the_loss_of_the_outputs(name, items):
    build, batch = MODELS[name]
    model, batch = build().eval(), batch()
    labels = batch.pop("labels")
    found = pickle.loads(pickle.dumps(loss_func(EL)))(model(**batch), labels, num_items_in_batch=items)
    target = shifted(labels) if name in ("llama", "gpt2") else labels
    logits, divisor = model(**batch).logits, items
    expected = (sigmoid_curve_loss(logits, labels, EL, divisor=divisor) if name == "bert labels" else
                curve_loss(logits.reshape(-1, logits.shape[-1]), target.reshape(-1), EL, divisor=divisor))
    torch.testing.assert_close(found, expected)


def test_loss_func_says_what_it_cannot_know():
    logits, labels = torch.randn(2, 9, 40), toys.ids()
    for outputs in ({"logits": logits}, Odd(logits=logits)):
        with pytest.raises(ArgumentError, match="shift=True"):
            loss_func(EL)(outputs, labels)
    torch.testing.assert_close(loss_func(EL, shift=True)((logits,), labels),
                               curve_loss(logits.flatten(0, 1), shifted(labels), EL))
    with pytest.raises(ArgumentError, match="regression"):
        loss_func(EL)(SequenceClassifierOutput(logits=torch.randn(2, 1)), torch.zeros(2))
    with pytest.raises(ArgumentError, match="no labels"):
        loss_func(EL)(SequenceClassifierOutput(logits=logits), None)


def test_loss_func_takes_mixed_labels_as_probabilities_where_it_is_told():
    logits, labels = torch.randn(4, 3), torch.rand(4, 3).softmax(-1)
    outputs = SequenceClassifierOutput(logits=logits)
    torch.testing.assert_close(loss_func(EL)(outputs, labels), sigmoid_curve_loss(logits, labels, EL))
    torch.testing.assert_close(loss_func(EL, multi_label=False, label_smoothing=0.1)(outputs, labels, 8),
                               curve_loss(logits, labels, EL, label_smoothing=0.1, divisor=8))
    with pytest.raises(ArgumentError, match="regression"):
        loss_func(EL, multi_label=False)(SequenceClassifierOutput(logits=torch.randn(2, 1)), torch.zeros(2, 1))
