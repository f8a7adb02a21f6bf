"""Translation through the engine: learnt by heart, kills, ranks, averages, probes, records, pages, and `translate`."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys

import pytest
import safetensors.torch
import torch
from typer.testing import CliRunner

import encouraging.data.pieces as pieces_module
from encouraging.cli import app
from encouraging.commands.translate import translate_lines
from encouraging.data import Clock
from encouraging.data.pieces import PAD
from encouraging.engine import RunDir
from encouraging.engine.distributed import World
from encouraging.engine.records import read_records
from encouraging.errors import RecipeError, RunError
from encouraging.metrics import bleu_of_counts
from encouraging.recipes import read_recipe
from encouraging.recipes.translator import load_translator
from encouraging.tasks import build_task
from encouraging.tasks.token_loss import can_fuse, token_loss
from task_laws import assert_close_weights, assert_same_bits, call, page_words, train, train_with_kills
from translation_toys import RECIPE, TEN, numbers, train_on, write_multi30k
from two_ranks import on_two_ranks

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "numbers.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def by_heart(recipe, tmp_path_factory):
    """Trained on ten sentences until it knows them."""
    words = [f"data={recipe.parent / 'ten.py'}:ten_pairs", "train.epochs=90", "train.lr=0.01", "model_options.width=32",
             "model_options.hidden=64", "model_options.dropout=0", "options.vocabulary=150", "options.beam=1",
             "train.conclude_on=last", "train.batch_size=128", "train.evaluate_every=90"]
    (recipe.parent / "ten.py").write_text("from translation_toys import ten_pairs\n__all__ = ['ten_pairs']\n")
    return train(read_recipe(recipe, words), tmp_path_factory.mktemp("ten"), "el_ls")


def test_ten_sentence_pairs_are_learnt_by_heart_and_translated_back_greedily(by_heart):
    final = RunDir(by_heart).final()
    assert final["bleu"] == pytest.approx(100)
    assert final["test_accuracy"] == 100
    assert (by_heart / "files" / "translations.txt").read_text().splitlines() == [target for _, target in TEN]


def test_translate_needs_only_the_run_and_answers_every_line(by_heart):
    """Also an empty one, and with any number of sentences at once."""
    lines = [TEN[3][0], "", f"  {TEN[9][0]} ", TEN[6][0]]
    result = CliRunner().invoke(app, ["translate", str(by_heart), "--device", "cpu"], input="\n".join(lines) + "\n")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [TEN[3][1], "", TEN[9][1], TEN[6][1]]
    for beam, at_once in ((1, 1), (4, 2), (5, 100)):
        out = io.StringIO()
        assert translate_lines(by_heart, beam=beam, at_once=at_once, lines=io.StringIO("\n".join(lines)), out=out) == 4
        assert out.getvalue().splitlines() == [TEN[3][1], "", TEN[9][1], TEN[6][1]]


def test_translate_refuses_what_is_no_run_of_translation(by_heart, tmp_path):
    assert "expected the directory of a finished run" in call("translate", tmp_path, code=2)
    (by_heart / "files" / "pieces.json").rename(tmp_path / "kept")
    try:
        with pytest.raises(RunError, match=r"expected a finished run of translation, with its vocabulary in"):
            load_translator(by_heart, CPU)
    finally:
        (tmp_path / "kept").rename(by_heart / "files" / "pieces.json")


def test_a_network_of_ones_own_translates_where_its_function_is_found(recipe, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thin_net.py").write_text(
        "from encouraging.models.transformer import Transformer\n\ndef net(source_size, target_size, share):\n"
        "    return Transformer(source_size, target_size, layers=1, width=8, heads=2, hidden=8, share=share)\n")
    monkeypatch.chdir(tmp_path / "own")
    words = ["model=thin_net.py:net", "model_options={share='all'}", "train.epochs=1", "train.conclude_on=last"]
    folder = train(read_recipe(recipe, words), tmp_path / "out", "ce_ls")
    assert list(load_translator(folder, CPU).translate([""])) == [""]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match=r"Start this command in a folder from which thin_net.py:net can be found"):
        load_translator(folder, CPU)


def test_killed_at_any_instant_it_ends_with_the_same_bits(recipe, runs, tmp_path):
    recipes = [read_recipe(recipe, ["train.checkpoint_seconds=0"])] * 2
    folder = train_with_kills(recipes, (3, 12), tmp_path, "el_ls")
    assert json.loads((folder / "timing.json").read_text())["resumed"] == 2
    assert_same_bits(folder, runs[0] / "numbers" / "el_ls" / "seed0")
    assert (folder / "files" / "translations.txt").read_bytes() == \
        (runs[0] / "numbers/el_ls/seed0/files/translations.txt").read_bytes()


def test_two_ranks_give_the_numbers_of_one_process(recipe, tmp_path):
    """Without dropout, whose random numbers each rank draws for itself. Some batches have one pair: the second rank has
    only empty pairs then."""
    words = ("model_options.dropout=0", "train.batch_size=30", "options.lengths=3")
    one = train_on(World(), recipe, tmp_path / "one", *words)
    two = on_two_ranks(train_on, recipe, tmp_path / "two", *words)[0]
    assert_close_weights(tmp_path / "two", tmp_path / "one")
    assert (two["bleu"], two["test_loss"]) == pytest.approx((one["bleu"], one["test_loss"]), rel=1e-3)
    assert two["gradient_norm_ratio"] == pytest.approx(one["gradient_norm_ratio"], rel=1e-3)
    said = [(tmp_path / name / "files" / "translations.txt").read_text() for name in ("two", "one")]
    assert said[0] == said[1]
    ours, theirs = (RunDir(tmp_path / name).metrics() for name in ("two", "one"))
    for line, expected in zip(ours, theirs, strict=True):
        assert line == pytest.approx(expected, rel=1e-3), expected["epoch"]
    samples = [json.loads((tmp_path / name / "timing.json").read_text())["samples"] for name in ("two", "one")]
    assert samples[0] == samples[1]


def test_the_last_model_is_the_mean_of_the_last_epochs_files(runs):
    folder = runs[0] / "numbers" / "ce_ls" / "seed0"
    files = sorted(folder.glob("epoch-*.safetensors"))
    assert [path.name for path in files] == [f"epoch-{epoch:06d}.safetensors" for epoch in (2, 3, 4)]
    epochs = [safetensors.torch.load_file(path) for path in files]
    kept = safetensors.torch.load_file(folder / "weights.safetensors")
    assert kept.keys() == epochs[0].keys()
    for name, tensor in kept.items():
        mean = torch.stack([epoch[name].double() for epoch in epochs]).mean(0)
        torch.testing.assert_close(tensor, mean.float(), rtol=0, atol=1e-7)


def test_the_loss_is_the_mean_over_tokens_whatever_the_batches_are_padded_with(recipe):
    """Empty pairs, longer padding and the order of the rows change nothing."""
    task = build_task("translation", read_recipe(recipe).task_spec("ce_ls"))
    model = task.build().eval()
    source, target = next(task.source(1).batches(Clock(), 0, 0, 1))
    objective = task.objective(Clock())
    loss = task.loss(model, (source, target), objective)
    more = torch.nn.functional.pad(source, (0, 3)), torch.nn.functional.pad(target, (0, 5))
    empty = torch.full_like(more[0][:2], PAD)
    empty[:, 0] = 2
    widened = torch.cat([more[0], empty]), torch.cat([more[1], torch.full_like(more[1][:2], PAD)])
    for other in (more, widened, (source.flip(0), target.flip(0))):
        again = task.loss(model, other, objective)
        torch.testing.assert_close(again.mean, loss.mean)
        assert int(again.count) == int(loss.count) == int((target[:, 1:] != PAD).sum())
    rows = [task.loss(model, (source[i : i + 1], target[i : i + 1]), objective) for i in range(len(source))]
    torch.testing.assert_close(sum(row.sum() for row in rows) / sum(row.count for row in rows), loss.mean)
    assert float(rows[-1].sum().detach()) >= 0


@pytest.mark.parametrize("arm", ["ce_ls", "el_ls", "el_1"])
def test_the_fused_output_layer_gives_the_loss_and_the_gradients_of_the_plain_one(recipe, arm):
    task = build_task("translation", read_recipe(recipe).task_spec(arm))
    objective, draw = task.objective(Clock()), torch.Generator().manual_seed(0)
    assert can_fuse(objective) == (arm != "el_1")  # matched norms need all logits
    hidden = torch.randn(3, 7, 8, generator=draw, requires_grad=True)
    weight = torch.randn(11, 8, generator=draw, requires_grad=True)
    labels = torch.randint(11, (3, 7), generator=draw)  # some are padding
    found = []
    for fused in (True, False):
        loss = token_loss(objective, hidden, weight, labels, fused)
        found.append((loss.mean, loss.count, *torch.autograd.grad(loss.mean, (hidden, weight))))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)
    nothing = token_loss(objective, hidden, weight, torch.full_like(labels, PAD), True)
    assert float(nothing.mean.detach()) == 0
    assert float(nothing.count) == 0


def test_probes_compare_with_cross_entropy_of_the_same_smoothing(runs):
    ratios = {record.arm: record.final["gradient_norm_ratio"]["ce"] for record in read_records(runs[0])
              if record.seed == 0}
    assert ratios["ce_ls"] == pytest.approx(1, rel=1e-6)
    assert ratios["el_ls"] > 1


def test_every_epoch_has_validation_numbers_and_only_the_end_has_test_numbers(runs):
    for record in read_records(runs[0]):
        for line in record.epochs:
            assert {"val_loss", "val_accuracy", "val_bleu"} <= line.keys()
            assert not {"bleu", "test_loss"} & line.keys()
        assert {"bleu", "chrf", "length_ratio", "test_loss", "test_accuracy"} <= record.final.keys()
        assert record.final["bleu"] == pytest.approx(bleu_of_counts(record.diagnosis["translation"]["counts"]))
        said = (runs[0] / "numbers" / record.arm / f"seed{record.seed}" / "files/translations.txt").read_text()
        assert len(said.splitlines()) == len(numbers().test)


def test_the_vocabulary_is_joint_where_embeddings_are_shared_and_a_sides_own_elsewhere(recipe):
    shared = build_task("translation", read_recipe(recipe).task_spec("ce_ls"))
    assert shared.pieces.joint
    assert shared.pieces.size("source") == shared.pieces.size("target")
    for share in ("none", "output"):
        own = build_task("translation", read_recipe(recipe, [f"model_options.share={share}"]).task_spec("ce_ls"))
        assert not own.pieces.joint
        assert own.pieces.size("source") < own.pieces.size("target") < shared.pieces.size("target")
        model = own.build()
        _, weight = model(*(torch.ones(1, 3, dtype=torch.long),) * 2)
        assert weight.shape == (own.pieces.size("target"), 16)
        assert (weight is model.target_embedding.weight) == (share == "output")


@pytest.mark.parametrize("kind", ["runs", "records", "by arm"])
def test_pages_show_the_bootstrap_and_the_sentences_of_runs_and_records_hold_no_text(runs, tmp_path, kind):
    folder = runs[0]
    if kind != "runs":
        call("collect", folder, "-o", tmp_path / "records", *(["--by-arm"] if kind == "by arm" else []))
        folder = tmp_path / "records"
    call("report", folder, "-o", tmp_path / "page.html")
    text = page_words(tmp_path / "page.html")
    for words in ("paired bootstrap", "BLEU beside ce_ls", "signature: nrefs:1", "next piece accuracy",
                  "gradient norm over cross-entropy's of el_ls is over 0.9"):
        assert words in text, words
    reference = numbers().test.target[0]
    assert ("The translations of the first seed that are farthest from their references" in text) == (kind == "runs")
    for path in folder.rglob("*.json"):
        if kind != "runs":
            assert reference not in path.read_text()
    call("results", folder, "-o", tmp_path / "results.md")
    page = (tmp_path / "results.md").read_text()
    for words in ("## numbers", "`bleu`", "`gradient_norm_ratio.ce` of ce_ls is under 1.5"):
        assert words in page, words


def test_the_terminal_shows_bleu(runs):
    assert re.search(r"1/9 ce_ls seed 0: BLEU \d", runs[1])
    assert "el_ls beats ce_ls: bleu" in runs[1]


def test_the_real_layout_of_multi30k_trains_by_the_command(tmp_path):
    """With other sentences: the checksums are those of the real files."""
    root = write_multi30k(tmp_path / "data")
    assert "expected MD5" in call("run", "multi30k-de-en", "--data", root, "--out", tmp_path / "failed", "--device",
                                  "cpu", "--seeds", "1", code=1)
    for path in list((root / "multi30k").iterdir()):  # unzipped files are not the published ones, and not checked
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    small = ["train.epochs=1", "model_options.layers=1", "model_options.width=16", "model_options.hidden=16",
             "options.vocabulary=120", "train.precision=fp32", "train.probe_every=0"]
    said = call("run", "multi30k-de-en", "--data", root, "--out", tmp_path / "out", "--device", "cpu", "--seeds", "1",
                "--arm", "el_1_ls_matched", *(part for word in small for part in ("--set", word)))
    assert "el_1_ls_matched seed 0: BLEU" in said


@pytest.mark.parametrize(("override", "words"), [
    ("data=mnist", "mnist holds no sentences"), ("data=multi30k-de-fr", "Did you mean 'multi30k-de-en'"),
    ("data=nowhere.py:read", "data: 'nowhere.py:read': there is no file nowhere.py"),
    ("model=nowhere.py:build", "model: 'nowhere.py:build': there is no file nowhere.py"),
    ("data=folder:x", "needs source and target"), ("options.vocabulry=9", "Did you mean 'vocabulary'"),
    ("model=transfromer", "Did you mean 'transformer'"), ("model_options.width_=3", "Did you mean 'width'"),
    ("arms.ce_ls.margin=2", "a softmax over pieces"), ("arms.ce_ls.divisor=examples", "a mean over tokens"),
    ("train.monitor=bleu", 'monitor = "val_loss"'), ("stages=[{sampling='class_balanced'}]", "have no classes"),
])
def test_a_recipe_that_cannot_be_is_refused_before_anything_is_read(recipe, override, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        read_recipe(recipe, [override])


def test_what_is_not_translated_cannot_choose_the_best_epoch(recipe):
    with pytest.raises(RecipeError, match="no validation sentence is translated"):
        read_recipe(recipe, ["train.monitor=val_bleu", "options.validated=0"])


def test_a_tokeniser_that_sacrebleu_does_not_have_is_refused_at_the_start(recipe):
    with pytest.raises(RecipeError, match=r"tokenize = '13b': sacrebleu has .* Did you mean '13a'"):
        build_task("translation", read_recipe(recipe, ["options.tokenize=13b"]).task_spec("ce_ls"))


@pytest.mark.parametrize("package", ["tokenizers", "sacrebleu"])
def test_without_the_extra_recipes_are_read_and_training_says_what_to_install(recipe, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.metrics", None)
    pieces_module._learn.cache_clear()
    spec = read_recipe(recipe).task_spec("ce_ls")
    with pytest.raises(RecipeError, match=rf"needs the package {package} .*pip install tokenizers sacrebleu"):
        build_task("translation", spec)


@pytest.mark.parametrize(("name", "layers", "share", "dropout", "lr", "decay", "updates", "batches", "paper"), [
    ("iwslt14-de-en", 6, "none", 0.4, 1e-3, 1e-4, 20_000, 4, (34.03, 35.09, 34.60, 35.50)),
    ("iwslt17-fr-en", 2, "all", 0.3, 5e-4, 1e-3, 100_000, 1, (36.66, 37.14, 37.36, 37.80)),
])
def test_the_recipes_have_the_settings_of_the_paper(name, layers, share, dropout, lr, decay, updates, batches, paper):
    whole = read_recipe(name)
    options = whole.model_options
    assert (options["layers"], options["share"], options["dropout"]) == (layers, share, dropout)
    assert (options["width"], options["heads"], options["hidden"]) == (512, 4, 1024)
    train = whole.stages_of("ce")[0].train
    assert (train.optimizer, train.betas, train.lr, train.weight_decay) == ("adamw", (0.9, 0.98), lr, decay)
    assert (train.schedule, train.warmup_steps, train.clip_norm) == ("inverse_sqrt", 4000, None)
    assert (train.max_steps, train.batch_size, train.accumulate) == (updates, 4096, batches)
    assert (train.conclude_on, train.average_last, train.monitor) == ("average", 10, "val_loss")
    assert (whole.options["beam"], whole.options["length_penalty"], whole.options["most_pieces"]) == (5, 1.0, 200)
    assert options["initial"] == "fairseq"
    claims = {(claim.arm, claim.beats): claim for claim in whole.claims}
    assert claims["el_05", "ce"].paper == {"ce": paper[0], "el_05": paper[2]}
    assert claims["el_05_ls", "ce_ls"].paper == {"ce_ls": paper[1], "el_05_ls": paper[3]}


@pytest.mark.parametrize("name", ["iwslt14-de-en", "iwslt17-fr-en", "multi30k-de-en", "multi30k-fr-en"])
def test_every_translation_recipe_has_all_arms_and_the_claims_about_gradients(name):
    whole = read_recipe(name)
    seen = {arm: (one.params.get("log_end"), one.label_smoothing, one.match_norm) for arm, one in whole.arms.items()}
    assert seen == {"ce": (None, 0, False), "ce_ls": (None, 0.1, False), "el_05": (0.5, 0, False),
                    "el_05_ls": (0.5, 0.1, False), "el_075": (0.75, 0, False), "el_075_ls": (0.75, 0.1, False),
                    "el_1_ls": (1.0, 0.1, False), "el_1_ls_matched": (1.0, 0.1, True)}
    constants = {(claim.arm, claim.over, claim.under) for claim in whole.claims if claim.constant is not None}
    assert constants == {("el_1_ls", 5.0, None), ("el_075_ls", None, 1.7)}
    assert sum(claim.source.startswith("Section 4.2") for claim in whole.claims) == 3
    assert whole.stands_in == name.startswith("multi30k")
