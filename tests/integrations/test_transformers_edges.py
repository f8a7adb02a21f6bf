"""Unusual models and labels of transformers: arguments that are handed on, labels of other types, threads."""

from __future__ import annotations

import inspect
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

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


@contextmanager
def eager_switching():
    """Threads take turns after every few bytecodes."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("build", [toys.llama, lambda: toys.bert("MaskedLM")], ids=["called", "inside"])
def test_threads_share_a_model(build):
    """A pass that another thread begins, between the loss of this one and its end, changes nothing here."""
    model = with_curve(build().eval(), EL)
    expected = model(**toys.text()).loss.detach()
    with eager_switching(), ThreadPoolExecutor(3) as pool:
        losses = list(pool.map(lambda _: model(**toys.text()).loss.detach(), range(90)))
    torch.testing.assert_close(torch.stack(losses), expected.expand(90))


def test_threads_share_a_fused_model():
    """Each thread has its own hidden states, also where another one evaluates without labels meanwhile."""
    model = with_curve(toys.llama().train(), EL, fused=True)
    tokens = [torch.randint(toys.VOCABULARY, (2, 3 + step % 4)) for step in range(90)]
    expected = [model(input_ids=one, labels=one).loss.detach() for one in tokens]
    with eager_switching(), ThreadPoolExecutor(3) as pool:
        logits = pool.submit(torch.no_grad()(lambda: [model(input_ids=one).logits for one in tokens]))
        losses = list(pool.map(lambda one: model(input_ids=one, labels=one).loss.detach(), tokens))
    torch.testing.assert_close(losses, expected)
    assert all(one.shape[-1] == toys.VOCABULARY for one in logits.result())


def test_a_thread_begins_while_another_is_in_the_middle_of_its_fused_step():
    model = with_curve(toys.llama().train(), EL, fused=True)
    text = toys.text()
    expected = model(**text).loss.detach()
    inner = []

    def begin_another(*_):
        if not inner:
            inner.append(None)
            with ThreadPoolExecutor(1) as pool:
                inner[0] = pool.submit(lambda: model(**text).loss.detach()).result()

    for module in (model.model, model.lm_head):  # before and after this thread holds its hidden states
        inner.clear()
        handle = module.register_forward_hook(begin_another)
        torch.testing.assert_close(model(**text).loss.detach(), expected)
        torch.testing.assert_close(inner, [expected])
        handle.remove()


def test_fused_labels_of_another_length_are_refused_in_words():
    model = with_curve(toys.llama().train(), EL, fused=True)
    with pytest.raises(ShapeError, match=r"expected one label for each position"):
        model(input_ids=toys.ids(), labels=toys.ids()[:, :-2])
