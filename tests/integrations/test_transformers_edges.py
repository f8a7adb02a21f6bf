"""Unusual models and labels of transformers: forward passes that hand on their arguments, labels of other types."""

from __future__ import annotations

import inspect

import pytest
import torch
import transformers as hf

import transformer_toys as toys
from encouraging import curves
from encouraging.errors import ShapeError
from encouraging.integrations.transformers import with_curve
from transformer_toys import assert_same, step

EL = curves.encouraging(log_end=0.5)


class HandsOn(hf.LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


class HandsOnByName(hf.BertForMaskedLM):
    def forward(self, input_ids, **kwargs):
        return super().forward(input_ids, **kwargs)


@pytest.mark.parametrize(("kind", "own"), [(HandsOn, toys.llama), (HandsOnByName, lambda: toys.bert("MaskedLM"))],
                         ids=["all", "by name"])
def test_a_forward_pass_that_hands_its_labels_on_has_the_curve(kind, own):
    plain = own().eval()
    extended = kind(plain.config).eval()
    extended.load_state_dict(plain.state_dict())
    with_curve(plain, EL), with_curve(extended, EL)
    assert_same(step(extended, toys.text()), step(plain, toys.text()))
    if kind is HandsOn:
        names = list(inspect.signature(hf.LlamaForCausalLM.forward).parameters)[1:]
        arguments = [toys.text().get(name) for name in names[:names.index("labels") + 1]]
        torch.testing.assert_close(extended(*arguments).loss, plain(**toys.text()).loss)


@pytest.mark.parametrize("build", [lambda: toys.bert("SequenceClassification"),
                                   lambda: toys.qwen_head("SequenceClassification")], ids=["inside", "called"])
def test_class_indices_are_no_multi_label_problem(build):
    """transformers takes labels of 8 bits for a multi-label problem, where binary cross-entropy then refuses them."""
    batch = toys.one_class()
    with pytest.raises(ShapeError, match=r"uint8 of shape.*labels\.long\(\)"):
        with_curve(build(), EL)(**batch | {"labels": batch["labels"].to(torch.uint8)})
