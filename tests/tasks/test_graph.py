"""Graph classification through the engine: splits, patience, late bonuses, kills, ranks, records and pages."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
import safetensors.torch
import torch
from torch.utils.data import random_split

from encouraging.commands import dry_run
from encouraging.data import Clock
from encouraging.engine import RunDir
from encouraging.engine.distributed import World
from encouraging.engine.records import read_records
from encouraging.errors import DataError, RecipeError
from encouraging.judge.metric_book import MetricBook
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task
from encouraging.tasks.graph import Options, split_of
from graph_toys import RECIPE, stars_and_rings, train_on
from task_laws import assert_close_weights, assert_same_bits, call, page_words, train, train_with_kills
from two_ranks import on_two_ranks


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "toys.toml"
    path.write_text(RECIPE)
    return path


@pytest.mark.parametrize(("count", "sizes"), [(1113, (890, 111, 112)), (4110, (3288, 411, 411))])
@pytest.mark.parametrize("seed", [0, 1, 49])
def test_the_split_of_a_seed_is_the_one_that_torch_draws_after_it(count, sizes, seed):
    """As the authors make it: the global seed is set, then random_split is called."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        expected = [list(part.indices) for part in random_split(range(count), sizes)]
    assert [numbers.tolist() for numbers in split_of(count, Options(), seed).values()] == expected


@pytest.mark.parametrize(("name", "late", "paper"), [("proteins", 27, (72.32, 72.76)), ("nci1", 132, (70.53, 71.04))])
def test_the_recipes_have_the_settings_of_the_paper(name, late, paper):
    whole = read_recipe(name)
    assert whole.seeds == tuple(range(50))
    train = whole.stages_of("ce")[0].train
    assert (train.optimizer, train.lr, train.weight_decay, train.batch_size) == ("adam", 5e-4, 1e-4, 128)
    assert (train.monitor, train.patience, train.conclude_on, train.epochs) == ("val_accuracy", 50, "best", 100_000)
    assert whole.options == {}
    assert {arm: config.bonus_from_epoch for arm, config in whole.arms.items()} == {"ce": 1, "el": 1, "el_late": late}
    assert whole.arms["el"].params == whole.arms["el_late"].params == {"log_end": 0.5}
    assert (whole.claims[0].paper["ce"], whole.claims[0].paper["el_late"]) == paper
    sizes = [len(part) for part in split_of({"proteins": 1113, "nci1": 4110}[name], Options(), 0).values()]
    assert whole.overlap == pytest.approx(sizes[2] / sizes[0], abs=5e-4)
    objective = whole.stages_of("el_late")[0].objective
    assert objective.at(Clock(1, late - 1, 0)).curve != objective.at(Clock(1, late, 0)).curve


@pytest.mark.parametrize("arm", ["ce", "el"])
def test_ten_graphs_are_learnt_by_heart(recipe, tmp_path, arm):
    words = ["options.train=0.17", "train.epochs=80", "train.patience=200", "train.batch_size=10",
             "train.weight_decay=0", "train.conclude_on=last", "model_options.dropout=0", "model_options.hidden=64"]
    folder = train(read_recipe(recipe, words), tmp_path, arm)
    final = RunDir(folder).final()
    assert final["train_accuracy"] == 100
    assert final["batch_accuracy"] == 100
    assert final["train_ce"] < 0.05
    assert json.loads((folder / "timing.json").read_text())["samples"] == 80 * 10


def test_the_numbers_are_those_of_the_best_validation_epoch(runs):
    for record in read_records(runs[0]):
        best = max(record.epochs, key=lambda line: line["val_accuracy"])  # the first of equals
        assert record.final["best_epoch"] == best["epoch"]
        assert record.final["best_accuracy"] == best["accuracy"]
        assert record.final["best_val_accuracy"] == best["val_accuracy"]
        kept = safetensors.torch.load_file(runs[0] / "toys" / record.arm / f"seed{record.seed}" / "logits.safetensors")
        accuracy = 100 * (kept["logits"].argmax(1) == kept["labels"]).double().mean().item()
        assert accuracy == pytest.approx(best["accuracy"])
        stopped = [line["epoch"] for line in record.epochs if line["epoch"] - best["epoch"] > 3]
        assert record.final["epochs"] == (stopped[0] if stopped else 6)


def test_the_test_labels_are_those_of_the_split(runs):
    for seed in range(3):
        kept = safetensors.torch.load_file(runs[0] / "toys" / "ce" / f"seed{seed}" / "logits.safetensors")
        numbers = split_of(60, Options(train=0.5, validation=0.25), seed)["test"]
        assert torch.equal(kept["labels"], stars_and_rings().labels[numbers])


def test_the_size_of_what_is_kept_is_known_before(runs, recipe):
    task = build_task("graph", read_recipe(recipe).task_spec("ce"))
    kept = safetensors.torch.load_file(runs[0] / "toys" / "ce" / "seed0" / "logits.safetensors")
    assert task.kept_bytes() == sum(tensor.nbytes for tensor in kept.values())


def test_before_its_bonus_an_arm_is_cross_entropy_bit_for_bit_and_the_records_say_whether_it_began(runs, recipe,
                                                                                                  tmp_path):
    never = train(read_recipe(recipe, ["arms.el_late.bonus_from_epoch=7"]), tmp_path, "el_late")
    assert RunDir(never).final()["bonus"] == {"began": 0.0, "used": 0.0}
    assert (never / "metrics.jsonl").read_bytes() == (runs[0] / "toys/ce/seed0/metrics.jsonl").read_bytes()
    for record in read_records(runs[0]):
        start = {"el": 1, "el_late": 3}.get(record.arm)
        expected = None if start is None else {"began": 100.0 * (record.final["epochs"] >= start),
                                               "used": 100.0 * (record.final["best_epoch"] >= start)}
        assert record.final.get("bonus") == expected
    late, plain = (RunDir(runs[0] / "toys" / arm / "seed0").metrics() for arm in ("el_late", "ce"))
    assert late[:2] == plain[:2]
    assert late[2]["loss"] != plain[2]["loss"]


def test_killed_at_any_instant_it_ends_with_the_same_bits(recipe, runs, tmp_path):
    recipes = [read_recipe(recipe, ["train.checkpoint_seconds=0"])] * 2
    folder = train_with_kills(recipes, (3, 8), tmp_path, "el_late")
    assert json.loads((folder / "timing.json").read_text())["resumed"] == 2
    assert_same_bits(folder, runs[0] / "toys" / "el_late" / "seed0")


def test_two_ranks_give_the_numbers_of_one_process(recipe, tmp_path):
    """Without dropout, whose random numbers each rank draws for itself. The last batch has one graph: the second rank
    has no share of it."""
    words = ("model_options.dropout=0", "train.batch_size=29")
    train_on(World(), recipe, tmp_path / "one", *words)
    on_two_ranks(train_on, recipe, tmp_path / "two", *words)
    assert_close_weights(tmp_path / "two", tmp_path / "one")
    ours, theirs = (RunDir(tmp_path / name).metrics() for name in ("two", "one"))
    for line, expected in zip(ours, theirs, strict=True):
        assert line == pytest.approx(expected, rel=1e-4), expected["epoch"]


def test_batches_cover_the_training_graphs_and_follow_from_seed_and_epoch(recipe):
    spec = read_recipe(recipe).task_spec("ce", 1)
    task, other = build_task("graph", spec), build_task("graph", spec)
    for epoch in (1, 2):
        batches = list(task.source(1).batches(Clock(1, epoch, 0), 0, 0, 1))
        assert [len(batch) for batch in batches] == [4] * 7 + [2]
        assert sorted(torch.cat(batches).tolist()) == sorted(task.split["train"].tolist())
        rest = list(other.source(1).batches(Clock(1, epoch, 0), 1, 0, 1))
        assert [batch.tolist() for batch in rest] == [batch.tolist() for batch in batches[1:]]
        shares = [list(other.source(1).batches(Clock(1, epoch, 0), 0, rank, 2)) for rank in (0, 1)]
        for whole, first, second in zip(batches, *shares, strict=True):
            assert sorted([*first.tolist(), *second.tolist()]) == sorted(whole.tolist())
    orders = [torch.cat(list(task.source(1).batches(Clock(1, epoch, 0), 0, 0, 1))).tolist() for epoch in (1, 2, 3)]
    assert all(a != b for a, b in pairwise(orders))


@pytest.mark.parametrize("kind", ["runs", "records", "by arm"])
def test_pages_name_both_intervals_in_words(runs, tmp_path, kind):
    folder = runs[0]
    if kind != "runs":
        call("collect", folder, "-o", tmp_path / "records", *(["--by-arm"] if kind == "by arm" else []))
        folder = tmp_path / "records"
    call("report", folder, "-o", tmp_path / "page.html")
    text = page_words(tmp_path / "page.html")
    for words in ("on this dataset, interval at", "on other samples like it", "splits in which the bonus began",
                  "test accuracy at the best validation epoch", "Margins", "Energies", "Calibration"):
        assert words in text, words
    call("results", folder, "-o", tmp_path / "results.md")
    page = (tmp_path / "results.md").read_text()
    for words in ("## toys", "on other samples like it", "Nadeau and Bengio", "bonus began, %", "cannot be decided",
                  "One run at a time."):
        assert words in page, words
    assert "on other samples like it" in runs[1]


def test_a_finished_run_is_said_with_the_words_of_the_task(runs):
    """The best epoch is chosen by validation graphs, not by test graphs."""
    assert re.search(r"ce seed 0: test accuracy at the best validation epoch [\d.]+, test accuracy [\d.]+", runs[1])
    assert "best test accuracy" not in runs[1]


def test_a_dry_run_says_that_patience_ends_runs_earlier(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "MINUTE", 0.5)
    said = call("run", recipe, "--dry-run", "--out", tmp_path / "out", "--device", "cpu", "--arm", "ce", "--seeds", "1")
    assert "the most it can take: train.patience = 3 ends a run once its best epoch is more than 3 epochs back" in said


@pytest.mark.parametrize(("override", "words"), [
    ("data=mnist", "mnist is not a dataset of graphs"), ("data=protein", "Did you mean 'proteins'"),
    ("data=nowhere.py:read", "data: 'nowhere.py:read': there is no file nowhere.py"),
    ("options.validation=0.6", "leave no graphs for tests"), ("options.validaton=0.1", "Did you mean 'validation'"),
    ("train.monitor=val_loss", "would choose the worst epoch. Add better = 'lower'"),
    ("model=lsoftmax_cnn", "no network for graphs is called"), ("arms.ce.margin=2", "only image recipes have"),
])
def test_a_recipe_that_cannot_be_is_refused_before_anything_is_read(recipe, override, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        read_recipe(recipe, [override])


@pytest.mark.parametrize(("words", "best"), [
    (["train.monitor=val_loss", "train.better=lower"], "test accuracy at the best validation epoch"),
    (["train.monitor=accuracy"], "best test accuracy"),
])
def test_the_best_epoch_is_named_after_the_graphs_that_choose_it(recipe, words, best):
    whole = read_recipe(recipe, words)
    metrics = build_task("graph", whole.task_spec("ce")).metrics
    assert list(metrics) == list(whole.needs().metrics)
    assert MetricBook(metrics)["best_accuracy"].words == best


def test_too_few_graphs_for_three_parts_are_refused(recipe):
    spec = read_recipe(recipe, ["options.validation=0.01"]).task_spec("ce")
    with pytest.raises(DataError, match="too few for training, validation and tests"):
        build_task("graph", spec)
