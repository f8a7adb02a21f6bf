"""Causal language models with the output layer and its loss in one: the same loss and gradients without logits."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import transformer_toys as toys
from encouraging import curves
from encouraging.errors import ArgumentError
from encouraging.integrations.transformers import with_curve
from transformer_toys import assert_same, step

EL = curves.encouraging(log_end=0.5)
MODELS = {
    "llama": toys.llama, "tied": lambda: toys.llama(tie_word_embeddings=True), "gpt2": toys.gpt2, "qwen": toys.qwen,
    "experts": toys.mixtral,
}


@pytest.mark.parametrize("how", [{}, {"label_smoothing": 0.1}, {"match_norm": True}, {"chunk_bytes": 2 * 4 * 40}],
                         ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_the_fused_loss_is_the_plain_one(name, how):
    model = MODELS[name]().train()
    plain = with_curve(copy.deepcopy(model), EL, **{key: how[key] for key in how if key != "chunk_bytes"})
    fused = with_curve(model, EL, fused=True, **how)
    for items in ({}, {"num_items_in_batch": torch.tensor(30)}, {"num_items_in_batch": 30}):
        assert_same(step(fused, toys.text(), **items), step(plain, toys.text(), **items))
    assert list(fused.state_dict()) == list(plain.state_dict())


def test_checkpointed_layers_tuples_and_kept_logits():
    plain = with_curve(toys.llama().train(), EL)
    fused = with_curve(copy.deepcopy(plain), EL, fused=True)
    for model in (plain, fused):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    assert_same(step(fused, toys.text()), step(plain, toys.text()))
    tokens, labels = toys.ids(), toys.ids()[:, -4:]
    kept = {"input_ids": tokens, "labels": labels, "logits_to_keep": 4}
    assert_same(step(fused, kept), step(plain, kept))
    loss, *others = fused(**toys.text(), return_dict=False)
    torch.testing.assert_close(loss, plain(**toys.text()).loss)
    assert all(getattr(one, "ndim", 0) != 3 for one in others)


@pytest.mark.parametrize("how", [{}, {"label_smoothing": 0.1}, {"match_norm": True, "chunk_bytes": 320}], ids=str)
def test_a_checkpoint_around_model_and_loss_changes_nothing(how):
    """The loss takes its gradient in the forward pass, in which the checkpoint runs the model again."""
    fused = with_curve(toys.llama().train(), EL, fused=True, **how)
    expected = step(fused, toys.text())
    fused.zero_grad()
    loss = checkpoint(lambda: fused(**toys.text()).loss, use_reentrant=False)
    loss.backward()
    assert_same((loss.detach(), {name: p.grad for name, p in fused.named_parameters()}), expected)
    assert fused.eval()(**toys.text()).logits.shape[-1] == toys.VOCABULARY


class Largest(TorchFunctionMode):
    """The most bytes that one tensor takes, among all that torch functions return."""

    bytes = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.bytes = max(self.bytes, result.untyped_storage().nbytes())
        return result


def test_no_tensor_of_the_size_of_the_logits_exists_in_training():
    logits = 2 * toys.TOKENS * toys.VOCABULARY * 4
    for fused in (False, True):
        model = with_curve(toys.llama().train(), EL, fused=fused, chunk_bytes=3 * 4 * 40 if fused else None)
        with Largest() as largest:
            outputs = model(**toys.text())
        assert (largest.bytes < logits) is fused
        assert (outputs.logits is None) is fused


def test_logits_are_there_again_for_evaluation_and_generation():
    model = with_curve(toys.llama(), EL, fused=True)
    plain = with_curve(copy.deepcopy(model), EL).eval()
    loss = model.train()(**toys.text()).loss
    outputs = model.eval()(**toys.text())
    torch.testing.assert_close(outputs.logits, plain(**toys.text()).logits)
    torch.testing.assert_close(outputs.loss, loss)
    assert type(plain.lm_head) is torch.nn.Linear
    assert model.generate(toys.ids(), max_new_tokens=3, do_sample=False).shape == (2, toys.TOKENS + 3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_models_have_a_loss_in_float32(dtype):
    model = toys.llama().to(dtype).train()
    own, fused = model(**toys.text()).loss, with_curve(copy.deepcopy(model), curves.cross_entropy(), fused=True)
    loss, _ = step(fused, toys.text())
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, own, rtol=1e-2, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert with_curve(toys.llama().train(), EL, fused=True)(**toys.text()).loss.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_model_is_one_graph():
    model = with_curve(toys.llama(), EL, fused=True).train()
    expected = step(model, toys.text())
    torch._dynamo.reset()
    found = step(torch.compile(model, backend="aot_eager", fullgraph=True), toys.text())
    assert_same((found[0], {name.removeprefix("_orig_mod."): g for name, g in found[1].items()}), expected)


class Masked(type(toys.llama())):
    """Writes into its logits."""

    def forward(self, input_ids=None, labels=None, **kwargs):
        logits = self.lm_head(self.model(input_ids=input_ids).last_hidden_state)
        logits[..., 0] = -100.0
        return self.loss_function(logits, labels, vocab_size=40)


class Twice(type(toys.llama())):
    def forward(self, input_ids=None, labels=None, **kwargs):
        hidden = self.model(input_ids=input_ids).last_hidden_state
        return self.loss_function(self.lm_head(self.lm_head(hidden)), labels, vocab_size=40)


@pytest.mark.parametrize(("build", "words"), [
    (toys.granite, "changes its logits"), (lambda: Masked(toys.llama().config), "changes its logits"),
    (lambda: Twice(toys.llama().config), "more than once"),
], ids=["scaled", "masked", "twice"])
def test_models_that_change_their_logits_are_refused_in_the_first_step(build, words):
    model = with_curve(build().train(), EL, fused=True)
    with pytest.raises(ArgumentError, match=words):
        model(**toys.text())
    assert model.lm_head.holding.received is None
    assert not model.lm_head.holding.held


class Adapter(torch.nn.Linear):
    pass


def test_output_layers_that_are_more_than_linear_are_refused():
    model = toys.llama()
    model.lm_head = Adapter(toys.WIDTH, toys.VOCABULARY, bias=False)
    with pytest.raises(ArgumentError, match="Adapter"):
        with_curve(model, EL, fused=True)
    model = with_curve(toys.llama().train(), EL, fused=True)
    model.lm_head = Adapter(toys.WIDTH, toys.VOCABULARY, bias=False)
    with pytest.raises(ArgumentError, match="Adapter"):
        model(**toys.text())
    for build in (lambda: toys.bert("MaskedLM"), toys.t5, toys.vit):
        with pytest.raises(ArgumentError, match="causal language model"):
            with_curve(build(), EL, fused=True)
