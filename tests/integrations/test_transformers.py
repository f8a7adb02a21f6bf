"""Models of transformers with any curve: their own loss at cross-entropy, whichever way they compute it; refusals."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
import transformers as hf
from torch._dynamo.utils import counters
from torch.nn import functional as F

import transformer_toys as toys
from encouraging import curve_loss, curves, sigmoid_curve_loss
from encouraging.errors import ArgumentError, DtypeError, ShapeError, TargetError
from encouraging.integrations.transformers import with_curve
from transformer_toys import assert_same, step

EL = curves.encouraging(log_end=0.5)
CALLED = {  # models that call their loss_function
    "llama": (toys.llama, toys.text), "gpt2": (toys.gpt2, toys.text), "mixtral": (toys.mixtral, toys.text),
    "granite": (toys.granite, toys.text), "modernbert": (toys.modernbert, toys.text),
    "qwen classes": (lambda: toys.qwen_head("SequenceClassification"), toys.one_class),
    "qwen labels": (lambda: toys.qwen_head("SequenceClassification", problem_type="multi_label_classification"),
                    toys.some_classes),
    "qwen tokens": (lambda: toys.qwen_head("TokenClassification"), toys.token_classes),
    "qwen answers": (lambda: toys.qwen_head("QuestionAnswering"), toys.answer), "vit": (toys.vit, toys.images),
}
INSIDE = {  # models that compute cross-entropy in their forward pass
    "bert masked": (lambda: toys.bert("MaskedLM"), toys.text),
    "bert classes": (lambda: toys.bert("SequenceClassification"), toys.one_class),
    "bert labels": (lambda: toys.bert("SequenceClassification"), toys.some_classes),
    "bert tokens": (lambda: toys.bert("TokenClassification"), toys.token_classes),
    "bert answers": (lambda: toys.bert("QuestionAnswering"), toys.answer),
    "distilbert masked": (lambda: toys.distilbert("MaskedLM"), toys.text),
    "t5": (toys.t5, toys.text), "bart": (toys.bart, toys.text), "segformer": (toys.segformer, toys.pixels),
}
ALL = CALLED | INSIDE


@pytest.mark.parametrize("items", [None, 7, torch.tensor(7)], ids=["mean", "int", "tensor"])
@pytest.mark.parametrize("name", ALL)
def test_cross_entropy_is_the_models_own_loss(name, items):
    build, batch = ALL[name]
    model = build().train()
    how = {"num_items_in_batch": items} if items is not None and takes_anything(model) else {}
    ours = with_curve(copy.deepcopy(model), curves.cross_entropy())
    assert_same(step(ours, batch(), **how), step(model, batch(), **how))
    assert list(ours.state_dict()) == list(model.state_dict())


def takes_anything(model) -> bool:
    """Whether Trainer passes num_items_in_batch to this model."""
    return any(p.kind == p.VAR_KEYWORD for p in inspect.signature(model.forward).parameters.values())


@pytest.mark.parametrize("name", ALL)
def test_the_curve_reaches_the_loss_and_the_predictions_stay(name):
    build, batch = ALL[name]
    model = build().eval()
    ours = with_curve(copy.deepcopy(model), EL)
    with torch.no_grad():
        own, found = model(**batch()), ours(**batch())
        assert abs(found.loss - own.loss) > 0.01
        key = "start_logits" if "answers" in name else "logits"
        torch.testing.assert_close(found[key], own[key])


def shifted(labels):
    return F.pad(labels, (0, 1), value=-100)[:, 1:].reshape(-1)


@pytest.mark.parametrize("how", [{"label_smoothing": 0.2}, {"match_norm": True}, {},
                                 {"weight": torch.rand(toys.VOCABULARY, generator=toys.generator())}], ids=str)
@pytest.mark.parametrize(("build", "target"), [(toys.llama, shifted), (lambda: toys.bert("MaskedLM"), torch.flatten)],
                         ids=["llama", "bert"])
def test_every_argument_means_what_it_means_in_curve_loss(build, target, how):
    model = with_curve(build().eval(), EL, **how)
    outputs = model(**toys.text())
    expected = curve_loss(outputs.logits.flatten(0, 1), target(toys.text()["labels"]), EL, **how)
    torch.testing.assert_close(outputs.loss, expected)


def test_shift_labels_are_taken_as_they_are():
    model, batch = with_curve(toys.llama().eval(), EL), toys.text()
    aligned = torch.nn.functional.pad(batch["labels"], (0, 1), value=-100)[:, 1:]
    torch.testing.assert_close(model(**batch, shift_labels=aligned).loss, model(**batch).loss)


@pytest.mark.parametrize("name", ["llama", "bert labels", "vit"])
def test_labels_of_several_classes_are_sigmoids_and_others_a_softmax(name):
    build, batch = ALL[name]
    outputs = with_curve(build().eval(), EL)(**batch())
    labels = batch()["labels"]
    expected = {"llama": lambda: curve_loss(outputs.logits.flatten(0, 1), shifted(labels), EL),
                "bert labels": lambda: sigmoid_curve_loss(outputs.logits, labels, EL),
                "vit": lambda: curve_loss(outputs.logits, labels, EL)}[name]()
    torch.testing.assert_close(outputs.loss, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "modernbert", "qwen tokens", "bert masked"])
def test_16_bit_models_have_the_type_of_their_own_loss(name, dtype):
    build, batch = ALL[name]
    model = build().to(dtype).eval()
    found, own = with_curve(copy.deepcopy(model), curves.cross_entropy())(**batch()).loss, model(**batch()).loss
    assert found.dtype == own.dtype
    torch.testing.assert_close(found, own, rtol=2e-2, atol=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert with_curve(build().eval(), EL)(**batch()).loss.dtype == torch.float32


@pytest.mark.parametrize("name", ["llama", "bert tokens"])
def test_labels_that_are_all_ignored_give_nan_and_no_gradient_as_before(name):
    build, batch = ALL[name]
    empty = batch() | {"labels": torch.full_like(batch()["labels"], -100)}
    loss, gradients = step(with_curve(build().train(), EL), empty)
    assert loss.isnan()
    assert all(not gradient.any() for gradient in gradients.values())


@pytest.mark.parametrize("name", ["llama", "bert masked"])
def test_a_label_outside_the_vocabulary_is_refused(name):
    build, batch = ALL[name]
    with pytest.raises(TargetError, match="40"):
        with_curve(build(), EL)(**batch() | {"labels": torch.full_like(batch()["labels"], toys.VOCABULARY)})


@pytest.mark.parametrize("name", ["llama", "bert classes"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
                         ids=["deepcopy", "pickle"])
def test_a_copy_has_the_curve_and_weights_of_its_own(name, copied):
    build, batch = ALL[name]
    model = with_curve(build().eval(), EL, weight=torch.ones(3 if "bert" in name else toys.VOCABULARY))
    twin = copied(model)
    torch.testing.assert_close(twin(**batch()).loss, model(**batch()).loss)
    assert type(twin) is type(model)
    assert repr(twin.curve_loss) == repr(model.curve_loss)
    assert "conservative(log_end=0.5)" in repr(model.curve_loss)
    with torch.no_grad():
        next(twin.parameters()).zero_()
    assert next(model.parameters()).any()


@pytest.mark.parametrize("name", ["llama", "bert classes"])
def test_a_saved_model_is_loaded_with_its_own_loss_until_the_curve_is_set_again(name, tmp_path):
    build, batch = ALL[name]
    model = build().eval()
    own = model(**batch()).loss
    with_curve(model, EL).save_pretrained(tmp_path)
    assert hf.AutoConfig.from_pretrained(tmp_path).architectures == [type(build()).__name__]
    for kind in (type(build()), type(model)):
        loaded = kind.from_pretrained(tmp_path)
        torch.testing.assert_close(loaded(**batch()).loss, own)
        torch.testing.assert_close(with_curve(loaded, EL)(**batch()).loss, model(**batch()).loss)


@pytest.mark.parametrize("name", ["llama", "bert classes"])
def test_a_curve_can_be_replaced(name):
    build, batch = ALL[name]
    model = build().eval()
    expected = with_curve(copy.deepcopy(model), curves.focal(2.0))(**batch()).loss
    found = with_curve(with_curve(with_curve(model, EL), EL), curves.focal(2.0))(**batch()).loss
    torch.testing.assert_close(found, expected)


def test_a_resized_vocabulary_has_the_loss_of_all_its_logits():
    for fused in (False, True):
        model = with_curve(toys.llama(), EL, fused=fused)
        model.resize_token_embeddings(toys.VOCABULARY + 5, mean_resizing=False)
        loss, _ = step(model, toys.text())
        logits = model.eval()(**toys.text()).logits
        assert logits.shape[-1] == toys.VOCABULARY + 5
        torch.testing.assert_close(loss, curve_loss(logits.flatten(0, 1), shifted(toys.text()["labels"]), EL))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", ["llama", "bert masked", "bert classes"])
def test_compiled_models_have_the_same_loss(name):
    build, batch = ALL[name]
    model = with_curve(build().eval(), EL)
    expected = model(**batch()).loss
    whole = name == "llama"  # a model with cross-entropy inside runs uncompiled
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=whole)
    torch.testing.assert_close(compiled(**batch()).loss, expected)


def test_the_body_of_a_model_with_cross_entropy_inside_compiles_once():
    model = with_curve(toys.bert("SequenceClassification").eval(), EL)
    expected = model(**toys.one_class()).loss
    torch._dynamo.reset()
    counters.clear()
    model.base_model.compile(backend="aot_eager")
    for _ in range(3):
        torch.testing.assert_close(model(**toys.one_class()).loss, expected)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize(("build", "words"), [
    (lambda: toys.bert("SequenceClassification", problem_type="regression"), "regression"),
    (lambda: toys.vit(problem_type="regression"), "regression"),
    (lambda: hf.BertModel(hf.BertConfig(**toys.BODY)), "no labels"),
    (lambda: hf.YolosForObjectDetection(hf.YolosConfig(**toys.BODY | {"vocab_size": None}, image_size=[16, 16],
                                                       num_detection_tokens=2)), "ForObjectDetectionLoss"),
], ids=["bert", "vit", "no head", "detection"])
def test_models_without_a_loss_over_classes_are_refused(build, words):
    with pytest.raises(ArgumentError, match=words):
        with_curve(build(), EL)


def test_a_loss_that_is_no_cross_entropy_is_refused_in_the_first_step():
    with pytest.raises(ArgumentError, match="nll_loss"):
        with_curve(toys.prophetnet(), EL)(**toys.text())
    one = hf.BertForSequenceClassification(hf.BertConfig(**toys.BODY, num_labels=2))
    one.config.problem_type = None
    one = with_curve(one, EL)
    one.config.problem_type = "regression"
    with pytest.raises(ArgumentError, match="mse_loss"):
        one(input_ids=toys.ids(), labels=torch.zeros(2, 2))


class HandMade(hf.BertForMaskedLM):
    """Computes its loss by hand, where nothing can be replaced."""

    def forward(self, input_ids=None, labels=None, **kwargs):
        outputs = super().forward(input_ids=input_ids, **kwargs)
        loss = -outputs.logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None]).mean()
        return hf.modeling_outputs.MaskedLMOutput(loss=loss, logits=outputs.logits)


def test_a_loss_made_by_hand_is_not_trained_silently():
    with pytest.raises(ArgumentError, match="without cross_entropy"):
        with_curve(HandMade(hf.BertConfig(**toys.BODY)), EL)(**toys.text())


class Fused(hf.LlamaForCausalLM):
    """Knows its loss_function, and leaves it out in training, as Liger's forward passes do."""

    def forward(self, input_ids=None, labels=None, **kwargs):
        logits = self.lm_head(self.model(input_ids=input_ids).last_hidden_state)
        if self.training:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        else:
            loss = self.loss_function(logits, labels, vocab_size=toys.VOCABULARY)
        return hf.modeling_outputs.CausalLMOutput(loss=loss, logits=logits)


def test_a_loss_function_that_is_not_called_is_not_trained_silently():
    model = with_curve(Fused(toys.llama().config), EL)
    assert model.eval()(**toys.text()).loss < 10
    with pytest.raises(ArgumentError, match="the curve would not be used"):
        model.train()(**toys.text())


def own_loss(logits, labels, **kwargs):
    return logits.sum()


def test_a_loss_function_of_the_users_own_is_refused():
    model = toys.llama()
    model.loss_function = own_loss
    with pytest.raises(ArgumentError, match="own_loss"):
        with_curve(model, EL)


@pytest.mark.parametrize(("arguments", "error", "words"), [
    ({"curve": "encouraging"}, DtypeError, "curve"), ({"label_smoothing": 2.0}, ArgumentError, "label_smoothing"),
    ({"match_norm": "no"}, ArgumentError, "match_norm='no'"), ({"weight": [1.0]}, DtypeError, "weight is list"),
    ({"weight": torch.ones(2, 2)}, ShapeError, r"weight has shape \(2, 2\): expected \(C,\)"),
    ({"chunk_bytes": 100}, ArgumentError, "fused"),
    ({"model": torch.nn.Linear(2, 2)}, DtypeError, "PreTrainedModel"),
])
def test_wrong_arguments_are_refused(arguments, error, words):
    with pytest.raises(error, match=words):
        with_curve(**{"model": toys.llama(), "curve": EL} | arguments)


def test_a_weight_of_another_length_is_refused():
    with pytest.raises(ShapeError, match="40"):
        with_curve(toys.llama(), EL, weight=torch.ones(7))(**toys.text())
