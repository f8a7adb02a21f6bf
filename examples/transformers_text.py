"""A tiny GPT-2 learns a verse by heart, letter by letter: the same Trainer, with cross-entropy and with a curve."""

import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

from encouraging import curves
from encouraging.integrations.transformers import with_curve

VERSE = """Shall I compare thee to a summer's day? Thou art more lovely and more temperate: rough winds do shake the
darling buds of May, and summer's lease hath all too short a date."""
LETTERS = sorted(set(VERSE))
TOKENS = torch.tensor([LETTERS.index(letter) for letter in VERSE]).unfold(0, 32, 4)

for name, curve in {"cross-entropy": curves.cross_entropy(), "encouraging": curves.encouraging(log_end=0.5)}.items():
    set_seed(0)
    config = GPT2Config(vocab_size=len(LETTERS), n_positions=32, n_embd=64, n_layer=2, n_head=2, bos_token_id=None,
                        eos_token_id=None, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    model = with_curve(GPT2LMHeadModel(config), curve)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(folder, max_steps=100, per_device_train_batch_size=32, learning_rate=3e-3,
                                      use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True)
        Trainer(model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in TOKENS]).train()
    with torch.no_grad():
        guesses = model.eval()(input_ids=TOKENS).logits[:, :-1].argmax(-1)
    print(f"{name}: {100 * (guesses == TOKENS[:, 1:]).float().mean():.1f}% of the letters are right")
