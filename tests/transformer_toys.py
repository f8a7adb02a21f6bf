"""Tiny models of Hugging Face transformers with random weights, and batches for them. Nothing is downloaded."""

from __future__ import annotations

from typing import Any

import torch
import transformers as hf
from torch import Tensor

VOCABULARY, WIDTH, TOKENS, CLASSES = 40, 16, 9, 3
BODY = {"hidden_size": WIDTH, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": VOCABULARY}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def llama(**how: Any) -> Any:
    return hf.LlamaForCausalLM(hf.LlamaConfig(**BODY, **SPECIAL, num_key_value_heads=1, **how))


def gpt2(**how: Any) -> Any:
    return hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=1, n_embd=WIDTH, n_head=2, vocab_size=VOCABULARY, **SPECIAL, **how))


def qwen(**how: Any) -> Any:
    return hf.Qwen2ForCausalLM(hf.Qwen2Config(**BODY, num_key_value_heads=1, **how))


def mixtral() -> Any:
    """A mixture of experts, whose own loss has an auxiliary part."""
    return hf.MixtralForCausalLM(hf.MixtralConfig(**BODY, num_key_value_heads=1, num_local_experts=2,
                                                  output_router_logits=True, router_aux_loss_coef=0.5))


def granite() -> Any:
    return hf.GraniteForCausalLM(hf.GraniteConfig(**BODY, num_key_value_heads=1, logits_scaling=2.0))


def bert(head: str, **how: Any) -> Any:
    classes = 2 if head == "QuestionAnswering" else CLASSES
    return getattr(hf, f"BertFor{head}")(hf.BertConfig(**BODY, max_position_embeddings=32, num_labels=classes, **how))


def distilbert(head: str) -> Any:
    return getattr(hf, f"DistilBertFor{head}")(hf.DistilBertConfig(dim=WIDTH, hidden_dim=24, n_layers=1, n_heads=2,
                                                                   vocab_size=VOCABULARY, num_labels=CLASSES))


def modernbert() -> Any:
    return hf.ModernBertForMaskedLM(hf.ModernBertConfig(**BODY, **SPECIAL, cls_token_id=0, sep_token_id=1))


def qwen_head(head: str, **how: Any) -> Any:
    config = hf.Qwen2Config(**BODY, num_key_value_heads=1, num_labels=CLASSES, pad_token_id=2, **how)
    return getattr(hf, f"Qwen2For{head}")(config)


def t5() -> Any:
    return hf.T5ForConditionalGeneration(hf.T5Config(
        d_model=WIDTH, d_kv=8, d_ff=24, num_layers=1, num_heads=2, vocab_size=VOCABULARY, decoder_start_token_id=0))


def bart() -> Any:
    return hf.BartForConditionalGeneration(hf.BartConfig(
        d_model=WIDTH, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=24, decoder_ffn_dim=24, vocab_size=VOCABULARY, max_position_embeddings=32))


def vit(**how: Any) -> Any:
    return hf.ViTForImageClassification(hf.ViTConfig(
        hidden_size=WIDTH, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4,
        num_labels=CLASSES, **how))


def segformer() -> Any:
    return hf.SegformerForSemanticSegmentation(hf.SegformerConfig(
        num_encoder_blocks=1, depths=[1], sr_ratios=[1], hidden_sizes=[8], patch_sizes=[3], strides=[2],
        num_attention_heads=[1], mlp_ratios=[1], decoder_hidden_size=8, num_labels=CLASSES))


def prophetnet() -> Any:
    """Takes the loss of log-probabilities."""
    return hf.ProphetNetForConditionalGeneration(hf.ProphetNetConfig(
        hidden_size=WIDTH, encoder_ffn_dim=24, decoder_ffn_dim=24, num_encoder_layers=1, num_decoder_layers=1,
        num_encoder_attention_heads=2, num_decoder_attention_heads=2, vocab_size=VOCABULARY, ngram=2,
        max_position_embeddings=32))


def ids(seed: int = 0, rows: int = 2) -> Tensor:
    return torch.randint(3, VOCABULARY, (rows, TOKENS), generator=generator(seed))


def text(seed: int = 0) -> dict[str, Tensor]:
    """A batch with ignored labels."""
    tokens = ids(seed)
    labels = tokens.clone()
    labels[0, :3] = -100
    return {"input_ids": tokens, "labels": labels}


def token_classes() -> dict[str, Tensor]:
    labels = torch.randint(CLASSES, (2, TOKENS), generator=generator(1))
    labels[1, 4:] = -100
    return {"input_ids": ids(), "labels": labels}


def one_class() -> dict[str, Tensor]:
    return {"input_ids": ids(rows=4), "labels": torch.tensor([0, 2, 1, 2])}


def some_classes() -> dict[str, Tensor]:
    return {"input_ids": ids(), "labels": torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])}


def answer() -> dict[str, Tensor]:
    """The second answer ends outside the input, which does not count."""
    return {"input_ids": ids(), "start_positions": torch.tensor([2, 5]), "end_positions": torch.tensor([4, 30])}


def images() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(4, 3, 8, 8, generator=generator()), "labels": torch.tensor([0, 2, 1, 2])}


def pixels() -> dict[str, Tensor]:
    labels = torch.randint(CLASSES, (2, 8, 8), generator=generator(1))
    labels[0, 0] = 255
    return {"pixel_values": torch.randn(2, 3, 8, 8, generator=generator()), "labels": labels}


def step(model, batch, **how):
    """Loss, gradients and outputs, with the same dropout every time."""
    model.zero_grad()
    torch.manual_seed(0)
    outputs = model(**batch, **how)
    outputs.loss.backward()
    return outputs.loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_same(found, expected, rtol=1e-5, atol=1e-6):
    torch.testing.assert_close(found[0], expected[0], rtol=rtol, atol=atol)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=atol, msg=name)
