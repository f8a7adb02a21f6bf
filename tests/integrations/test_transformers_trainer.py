"""What Trainer, accelerate and TRL do with a model that has a curve: accumulation, evaluation, labels they keep."""

from __future__ import annotations

import copy
import functools
import re
import runpy
import types
import warnings
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments
from transformers.modeling_outputs import CausalLMOutput

import transformer_toys as toys
from encouraging import curve_loss, curves
from encouraging.errors import ArgumentError
from encouraging.integrations.transformers import ModelLoss, loss_func, with_curve

EL = curves.encouraging(log_end=0.5)


def lines(count: int = 8) -> list[dict[str, torch.Tensor]]:
    """Texts with different numbers of labels, so that a mean of means is not the mean."""
    examples = []
    for number in range(count):
        tokens = toys.ids(seed=number, rows=1)[0]
        labels = tokens.clone()
        labels[: 1 + number % 6] = -100  # the first token is never predicted, which older versions count
        examples.append({"input_ids": tokens, "labels": labels})
    return examples


def trainer(model, folder, kind=Trainer, func=None, **how):
    arguments = TrainingArguments(
        output_dir=str(folder), report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no", max_steps=2,
        learning_rate=0.1, lr_scheduler_type="constant", optim="sgd", max_grad_norm=0.0, logging_strategy="no",
        dataloader_pin_memory=False, **how)
    return kind(model=model, args=arguments, train_dataset=lines(), eval_dataset=lines(3), compute_loss_func=func)


def trained(model, folder, **how):
    trainer(model, folder, **how).train()
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def assert_close(found, expected):
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("how", [{}, {"fused": True}, {"weight": torch.linspace(0.5, 1.5, toys.VOCABULARY)}],
                         ids=["plain", "fused", "weighted"])
def test_accumulated_steps_are_the_step_of_the_whole_batch(how, tmp_path):
    model = with_curve(toys.llama(), EL, **how)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    whole = trained(copy.deepcopy(model), tmp_path, per_device_train_batch_size=4)
    parts = trained(model, tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=4)
    assert_close(parts, whole)
    assert any((whole[name] - value).abs().max() > 1e-3 for name, value in before.items())


@pytest.mark.parametrize("build", [toys.llama, lambda: toys.bert("MaskedLM")], ids=["llama", "bert"])
def test_trainer_with_loss_func_takes_the_steps_of_the_model_with_the_curve(build, tmp_path):
    model = build()
    one = {"per_device_train_batch_size": 4}
    expected = trained(with_curve(copy.deepcopy(model), EL), tmp_path, **one)
    assert_close(trained(model, tmp_path, func=loss_func(EL), **one), expected)


def test_evaluation_reports_the_loss_of_the_curve(tmp_path):
    model = with_curve(toys.llama(), curves.normal(), fused=True)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    found = trainer(model, tmp_path, per_device_eval_batch_size=3).evaluate()["eval_loss"]
    batch = {key: torch.stack([line[key] for line in lines(3)]) for key in ("input_ids", "labels")}
    target = F.pad(batch["labels"], (0, 1), value=-100)[:, 1:].flatten()
    expected = curve_loss(torch.zeros(len(target), toys.VOCABULARY), target, curves.normal())
    assert found == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("build", [toys.llama, lambda: toys.bert("MaskedLM")], ids=["llama", "bert"])
def test_a_trainer_that_keeps_the_labels_is_reported_once(build, tmp_path):
    with pytest.warns(UserWarning, match="label_smoothing_factor") as told:
        trained(with_curve(build(), EL), tmp_path, label_smoothing_factor=0.1)
    assert len([one for one in told if "the curve is not used" in str(one.message).replace("\n", " ")]) == 1


def test_generation_and_evaluation_without_labels_are_not_reported():
    model = with_curve(toys.llama(), EL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.no_grad():
            assert model.train()(input_ids=toys.ids()).loss is None
        assert model.eval()(input_ids=toys.ids()).loss is None


@pytest.mark.parametrize("build", [toys.llama, lambda: toys.bert("MaskedLM")], ids=["llama", "bert"])
def test_accelerate_wraps_the_forward_pass_and_gives_it_back(build):
    model = with_curve(build(), EL).train()
    torch.manual_seed(0)
    expected = model(**toys.text()).loss.item()
    AcceleratorState._reset_state(reset_partial_state=True)  # a process has one precision, which Trainer has set
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    prepared = accelerator.prepare(model)
    torch.manual_seed(0)
    loss = prepared(**toys.text()).loss
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected, rel=2e-2)
    bare = accelerator.unwrap_model(prepared, keep_fp32_wrapper=False)
    torch.manual_seed(0)
    assert bare(**toys.text()).loss.item() == pytest.approx(expected, rel=1e-5)
    AcceleratorState._reset_state(reset_partial_state=True)


class Adapted(torch.nn.Module):
    """Wraps a model as PEFT does."""

    def __init__(self, model, kind="LORA"):
        super().__init__()
        self.model, self.active_peft_config = model, types.SimpleNamespace(peft_type=f"PeftType.{kind}")

    def get_base_model(self):
        return self.model

    def forward(self, **kwargs):
        return self.model.forward(**kwargs)

    def _prefix_tuning_forward(self):
        raise NotImplementedError


@pytest.mark.parametrize("build", [toys.llama, lambda: toys.bert("MaskedLM")], ids=["llama", "bert"])
def test_a_wrapped_model_has_the_curve_whether_it_was_wrapped_before_or_after(build):
    model = build().eval()
    expected = with_curve(copy.deepcopy(model), EL)(**toys.text()).loss
    before = with_curve(Adapted(copy.deepcopy(model)), EL)
    assert isinstance(before, Adapted)
    for wrapped in (before, Adapted(with_curve(copy.deepcopy(model), EL))):
        torch.testing.assert_close(wrapped(**toys.text()).loss, expected)
    with pytest.raises(ArgumentError, match="prefix tuning"):
        with_curve(Adapted(model, "PREFIX_TUNING"), EL)


class LogProbabilities(Trainer):
    """Patches the forward pass and computes its own loss, as TRL's SFTTrainer does."""

    def __init__(self, model, **how):
        super().__init__(model=model, **how)
        original = model.forward

        @functools.wraps(type(model).forward)
        def patched(self, *args, fused_lm_head=False, labels=None, num_items_in_batch=None, **kwargs):
            if not fused_lm_head:
                return original(*args, labels=labels, num_items_in_batch=num_items_in_batch, **kwargs)
            hidden = self.base_model(*args, **kwargs).last_hidden_state[:, :-1]
            logits = F.linear(hidden, self.get_output_embeddings().weight)
            loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
            return CausalLMOutput(loss=loss)

        model.forward = types.MethodType(patched, model)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        return model(**inputs, fused_lm_head=True).loss


class WithModelLoss(ModelLoss, LogProbabilities):
    pass


@pytest.mark.parametrize("how", [{}, {"fused": True}], ids=["plain", "fused"])
def test_a_trainer_with_log_probabilities_of_its_own_is_refused_and_can_be_mended(how, tmp_path):
    model = with_curve(toys.llama(), EL, **how)
    expected = trained(copy.deepcopy(model), tmp_path)
    with pytest.raises(ArgumentError, match="ModelLoss"):
        trained(copy.deepcopy(model), tmp_path, kind=LogProbabilities)
    late = trainer(toys.llama(), tmp_path, kind=LogProbabilities)
    with_curve(late.model, EL, **how)
    with pytest.raises(ArgumentError, match="ModelLoss"):
        late.train()
    assert_close(trained(model, tmp_path, kind=WithModelLoss), expected)


def test_the_example_learns_its_verse_with_both_losses(capsys):
    example = Path(__file__).parents[2] / "examples" / "transformers_text.py"
    assert len(example.read_text().splitlines()) <= 30
    runpy.run_path(str(example))
    right = re.findall(r"^(\S+): (\S+)% of the letters are right$", capsys.readouterr().out, re.MULTILINE)
    assert [name for name, _ in right] == ["cross-entropy", "encouraging"]
    assert all(float(percent) > 70 for _, percent in right)
