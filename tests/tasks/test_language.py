"""Language models through the engine: learnt by heart, kills, ranks, numbers, records, pages, and `generate`."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from unittest import mock

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch.nn import functional as F

from encouraging.commands.generate import write_text
from encouraging.data import Clock
from encouraging.data.tokens import BytePairs, learn_tokens
from encouraging.data.windows import IGNORED
from encouraging.engine import RunDir
from encouraging.engine.distributed import World
from encouraging.engine.precision import float32_is
from encouraging.engine.records import read_records
from encouraging.engine.weights import load_run_weights
from encouraging.errors import ArgumentError, DataError, RecipeError, RunError
from encouraging.recipes import read_recipe
from encouraging.recipes.writer import Writer, load_writer
from encouraging.tasks import build_task
from language_toys import LINE, RECIPE, lines, train_on
from task_laws import assert_close_weights, assert_same_bits, call, page_words, train, train_with_kills
from two_ranks import on_two_ranks

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "lines.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def by_heart(recipe, tmp_path_factory):
    """Trained on one line until it knows it."""
    words = ["train.epochs=40", "model_options.width=32", "model_options.dropout=0", "train.evaluate_every=40"]
    return train(read_recipe(recipe, words), tmp_path_factory.mktemp("heart"), "el")


def test_a_line_is_learnt_by_heart_and_written_again(by_heart):
    final = RunDir(by_heart).final()
    assert final["accuracy"] > 99
    assert final["bits"] < 0.1
    written = call("generate", by_heart, "--prompt", "abcdefg", "--length", 2 * len(LINE), "--temperature", 0)
    assert written == f"abcdefg{(3 * LINE)[7:2 * len(LINE) + 7]}\n"


def test_the_same_seed_writes_the_same_text_whatever_it_is_started_with(by_heart):
    def text(**keys):
        out = io.StringIO()
        write_text(by_heart, "abc é", out=out, **keys)  # a character that the text does not have
        return out.getvalue()

    assert text(length=30, temperature=2.0, seed=3) == text(length=30, temperature=2.0, seed=3)
    assert text(length=30, temperature=2.0, seed=3)[:20] == text(length=16, temperature=2.0, seed=3)[:20]
    assert text(length=30, temperature=2.0, seed=3) != text(length=30, temperature=2.0, seed=4)
    with pytest.raises(ArgumentError, match="prompt is empty"):
        write_text(by_heart, "")


@pytest.mark.parametrize(("prompt", "keys", "words"), [
    ("abc", {"temperature": -1.0}, "temperature=-1.0: expected a number, 0 or more"),
    ("abc", {"temperature": math.nan}, "temperature=nan: expected a number, 0 or more"),
    ("caf\udce9", {}, r"prompt='caf\udce9': expected text in UTF-8"),
])
def test_generate_refuses_what_it_cannot_use(by_heart, prompt, keys, words):
    with pytest.raises(ArgumentError, match=re.escape(words)):
        write_text(by_heart, prompt, out=io.StringIO(), **keys)


@given(parts=st.lists(st.sampled_from("né中國😀") | st.integers(0, 255), max_size=8))
@example(parts=[0xFF, "😀"])
@example(parts=[0, 0, 0xFF, "中"])
def test_pieces_that_end_within_a_character_give_the_text_of_all_of_them(parts):
    pytest.importorskip("tokenizers")
    tokens = learn_tokens("a", 256)  # the pieces are single bytes
    indices = [index for part in parts
               for index in (tokens.encode(part).tolist() if isinstance(part, str) else [part])]
    with mock.patch("encouraging.recipes.writer.continued", return_value=iter(indices)):
        texts = list(Writer("", torch.nn.Identity(), tokens, 8, CPU).write("a"))
    assert "".join(texts) == tokens.decode(indices)
    assert all(texts)


def test_the_precision_that_the_caller_has_set_holds_between_two_pieces(by_heart):
    with float32_is("tf32"):
        texts = load_writer(by_heart, CPU).write("to be", length=3)
        next(texts)
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"


def test_generate_refuses_what_is_no_language_model(by_heart, tmp_path):
    assert "expected the directory of a finished run" in call("generate", tmp_path, code=2)
    (by_heart / "files" / "tokens.json").rename(tmp_path / "kept")
    try:
        with pytest.raises(RunError, match="expected a finished run of a language model, with its vocabulary in"):
            load_writer(by_heart, CPU)
        (by_heart / "files" / "tokens.json").write_text("{}")
        with pytest.raises(RunError, match="Train the run again"):
            load_writer(by_heart, CPU)
    finally:
        (tmp_path / "kept").replace(by_heart / "files" / "tokens.json")


def test_a_network_of_ones_own_writes_where_its_function_is_found(recipe, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "wide_gpt.py").write_text(
        "from encouraging.models.gpt import GPT\n\ndef net(size, context):\n"
        "    return GPT(size, context, layers=1, width=8, heads=2)\n")
    monkeypatch.chdir(tmp_path / "own")
    folder = train(read_recipe(recipe, ["model=wide_gpt.py:net", "model_options={}", "train.epochs=1"]),
                   tmp_path / "out", "ce")
    assert load_writer(folder, CPU).context == 16
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=r"Start this command in a folder from which wide_gpt.py:net can be found"):
        load_writer(folder, CPU)


def test_killed_at_any_instant_it_ends_with_the_same_bits(recipe, runs, tmp_path):
    recipes = [read_recipe(recipe, ["train.checkpoint_seconds=0"])] * 2
    folder = train_with_kills(recipes, (3, 12), tmp_path, "el")
    assert json.loads((folder / "timing.json").read_text())["resumed"] == 2
    assert_same_bits(folder, runs[0] / "lines" / "el" / "seed0")


def test_two_ranks_give_the_numbers_of_one_process(recipe, tmp_path):
    """Without dropout, whose random numbers each rank draws for itself, and without Adam, which turns the rounding of
    small gradients into updates. The last batch has windows for one rank only."""
    words = ("model_options.dropout=0", "train.batch_size=7", "options.context=17", "train.optimizer=sgd",
             "train.lr=0.3", "train.epochs=1")
    one = train_on(World(), recipe, tmp_path / "one", *words)
    two = on_two_ranks(train_on, recipe, tmp_path / "two", *words)[0]
    assert_close_weights(tmp_path / "two", tmp_path / "one")
    for name in ("bits", "scaled_bits", "accuracy", "ece"):
        assert two[name] == pytest.approx(one[name], rel=1e-3), name
    assert two["gradient_norm_ratio"] == pytest.approx(one["gradient_norm_ratio"], rel=1e-3)
    for line, expected in zip(*(RunDir(tmp_path / name).metrics() for name in ("two", "one")), strict=True):
        assert line == pytest.approx(expected, rel=1e-3), expected["epoch"]


def test_bits_are_the_likelihood_of_the_text_given_half_a_window_at_least(by_heart, recipe):
    """Computed again in another way: one prediction at a time."""
    words = ["model_options.width=32", "model_options.dropout=0"]
    task = build_task("language", read_recipe(recipe, words).task_spec("el"))
    model = task.build().eval()
    model.load_state_dict(load_run_weights(by_heart, model))
    tokens, context = task.scored["test"], task.options.context
    total, right = 0.0, 0
    for place in range(1, len(tokens)):
        first = max(0, (place - 1) // (context // 2) * (context // 2) - context // 2)
        first = min(first, len(tokens) - 1 - context)
        features, weight = model(tokens[None, first:place])
        logits = F.linear(features[0, -1], weight)
        total += float(F.cross_entropy(logits.double(), tokens[place]).detach())
        right += int(logits.argmax() == tokens[place])
    final = RunDir(by_heart).final()
    assert final["bits"] == pytest.approx(total / (len(tokens) - 1) / math.log(2), rel=1e-4)
    assert final["accuracy"] == pytest.approx(100 * right / (len(tokens) - 1))


def test_the_loss_is_the_mean_over_tokens_whatever_empty_rows_there_are(recipe):
    task = build_task("language", read_recipe(recipe).task_spec("el"))
    model, objective = task.build().eval(), task.objective(Clock())
    inputs, labels = next(task.source(1).batches(Clock(), 0, 0, 1))
    loss = task.loss(model, (inputs, labels), objective)
    more = torch.cat([inputs, inputs[:2]]), torch.cat([labels, torch.full_like(labels[:2], IGNORED)])
    again = task.loss(model, more, objective)
    torch.testing.assert_close(again.mean, loss.mean)
    assert int(again.count) == int(loss.count) == labels.numel()


def test_pieces_of_words_are_fewer_tokens_for_the_same_characters(recipe, tmp_path):
    pytest.importorskip("tokenizers")
    words = ["options.vocabulary=280", "train.epochs=30", "model_options.dropout=0", "train.evaluate_every=30"]
    folder = train(read_recipe(recipe, words), tmp_path, "ce")
    final = RunDir(folder).final()
    tokens = learn_tokens(lines()[: int(len(lines()) * 0.8 + 0.5)], 280)
    assert isinstance(tokens, BytePairs)
    test = lines()[int(len(lines()) * 0.9 + 0.5):]
    encoded = tokens.encode(test)
    assert len(encoded) < len(test) / 2
    predicted = len(test) - len(tokens.decode(encoded[:1].tolist()))
    assert final["bits"] == pytest.approx(final["test_loss"] * (len(encoded) - 1) / predicted / math.log(2))
    out = io.StringIO()
    write_text(folder, "abc é", length=20, out=out)  # bytes can write any character
    assert out.getvalue().startswith("abc é")


def test_probes_compare_with_cross_entropy_of_the_same_smoothing(runs):
    ratios = {record.arm: record.final["gradient_norm_ratio"]["ce"] for record in read_records(runs[0])
              if record.seed == 0}
    assert ratios["ce"] == pytest.approx(1, rel=1e-6)
    assert ratios["el_1"] == pytest.approx(1, rel=0.3)  # matched on the logits, not on the weights
    assert ratios["el"] > 1


def test_every_epoch_has_validation_numbers_and_only_the_end_has_test_numbers(runs):
    for record in read_records(runs[0]):
        for line in record.epochs:
            assert {"val_loss", "val_accuracy"} <= line.keys()
            assert not {"bits", "accuracy"} & line.keys()
        assert {"bits", "scaled_bits", "accuracy", "ece", "margin", "temperature"} <= record.final.keys()
        assert ("posterior" in record.final) == (record.arm == "el")  # not where labels are smoothed


@pytest.mark.parametrize("kind", ["runs", "records"])
def test_pages_show_what_runs_write_and_records_hold_no_text(runs, tmp_path, kind):
    folder = runs[0]
    if kind == "records":
        call("collect", folder, "-o", tmp_path / "records")
        folder = tmp_path / "records"
    call("report", folder, "-o", tmp_path / "page.html")
    text = page_words(tmp_path / "page.html")
    for words in ("bits per character", "next token accuracy", "calibration error", "read through the loss that each"):
        assert words in text, words
    assert ("What follows" in text) == ("the beginning of the test text" in text) == (kind == "runs")
    for path in folder.rglob("*.json"):
        if kind == "records":
            assert "abcdefg" not in path.read_text()
    call("results", folder, "-o", tmp_path / "results.md")
    assert "`bits`" in (tmp_path / "results.md").read_text()


def test_the_terminal_shows_bits(runs):
    assert re.search(r"1/6 ce seed 0: bits per character \d", runs[1])
    assert "el beats ce: bits" in runs[1]


@pytest.mark.parametrize(("override", "words"), [
    ("data=mnist", "mnist is no running text"), ("data=tinyshakespear", "Did you mean 'tinyshakespeare'"),
    ("data=nowhere.py:read", "data: 'nowhere.py:read': there is no file nowhere.py"),
    ("options.contxt=9", "Did you mean 'context'"), ("options.vocabulary=99", "256"),
    ("options.test=0.95", "leave no text to train on"),
    ("model=gtp", "Did you mean 'gpt'"), ("model_options.width_=3", "Did you mean 'width'"),
    ("model_options.heads=3", "a width that the heads divide"), ("model_options.dropout=1.5", "below 1"),
    ("arms.ce.margin=2", "a softmax over tokens"), ("arms.ce.divisor=examples", "a mean over tokens"),
    ("train.monitor=bits", 'monitor = "val_loss"'), ("stages=[{sampling='class_balanced'}]", "have no classes"),
])
def test_a_recipe_that_cannot_be_is_refused_before_anything_is_read(recipe, override, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        read_recipe(recipe, [override])


def test_without_the_package_pieces_say_what_to_install(recipe, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(RecipeError, match=r"needs the package tokenizers .*leave options.vocabulary out"):
        build_task("language", read_recipe(recipe, ["options.vocabulary=300"]).task_spec("ce"))
    assert build_task("language", read_recipe(recipe).task_spec("ce")).tokens.size == len(set(LINE)) + 1


@pytest.mark.parametrize("part", ["validation", "test"])
def test_a_part_that_is_one_piece_is_refused_before_the_training(recipe, tmp_path, part):
    """Nothing of it can be predicted: the mean over its predictions was a division by zero."""
    pytest.importorskip("tokenizers")
    (tmp_path / "short_text.py").write_text(
        "def parts():\n    text = 99 * 'to be or not '\n"
        f"    return {{'train': text, 'validation': text, 'test': text, {part!r}: ' not'}}\n")
    words = [f"data={tmp_path / 'short_text.py'}:parts", "options.vocabulary=300"]
    with pytest.raises(DataError, match=f"the {part} part is a single piece"):
        build_task("language", read_recipe(recipe, words).task_spec("ce"))


def test_a_network_that_returns_logits_is_told_what_to_return(recipe, tmp_path):
    (tmp_path / "logit_net.py").write_text(
        "from torch import nn\n\ndef net(size, context):\n    return nn.Embedding(size, size)\n")
    words = [f"model={tmp_path / 'logit_net.py'}:net", "model_options={}"]
    task = build_task("language", read_recipe(recipe, words).task_spec("ce"))
    batch = next(task.source(1).batches(Clock(), 0, 0, 1))
    with pytest.raises(RecipeError, match=r"returned a Tensor for tokens: expected a pair, the features"):
        task.loss(task.build(), batch, task.objective(Clock()))


@pytest.mark.parametrize("name", ["shakespeare", "shakespeare-small"])
def test_the_recipes_train_on_any_text_by_the_command(name, tmp_path):
    (tmp_path / "play").mkdir()
    (tmp_path / "play" / "play.txt").write_text(40 * lines())
    words = [f"data=folder:{tmp_path / 'play'}", "train.max_steps=2", "train.evaluate_every=1", "train.precision=fp32",
             "model_options={layers=1, width=8, heads=2}", "options.context=32"]
    said = call("run", name, "--out", tmp_path / "out", "--device", "cpu", "--seeds", "1", "--arm", "ce_2x",
                *(part for word in words for part in ("--set", word)))
    assert "ce_2x seed 0: bits per character" in said


def test_a_damaged_copy_of_tiny_shakespeare_is_refused(tmp_path):
    assert "input.txt" in call("run", "shakespeare-small", "--data", tmp_path, "--out", tmp_path / "out", code=2)
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("To be")
    said = call("run", "shakespeare-small", "--data", tmp_path, "--out", tmp_path / "out", "--seeds", "1", code=1)
    assert "expected 1115394 bytes, got 5" in said
