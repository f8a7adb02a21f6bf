"""Unusual models and labels of transformers: arguments that are handed on, labels of other types, threads."""

from __future__ import annotations

import inspect
import sys
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize("build", [toys.llama, lambda: toys.bert("MaskedLM")], ids=["called", "inside"])
def test_threads_share_a_model(build):
    """A pass that another thread begins, between the loss of this one and its end, changes nothing here."""
    model = with_curve(build().eval(), EL)
    expected = model(**toys.text()).loss.detach()
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(3) as pool:
            losses = list(pool.map(lambda _: model(**toys.text()).loss.detach(), range(90)))
    finally:
        sys.setswitchinterval(switch)
    torch.testing.assert_close(torch.stack(losses), expected.expand(90))


def test_fused_labels_of_another_length_are_refused_in_words():
    model = with_curve(toys.llama().train(), EL, fused=True)
    with pytest.raises(ShapeError, match=r"expected one label for each position"):
        model(input_ids=toys.ids(), labels=toys.ids()[:, :-2])
