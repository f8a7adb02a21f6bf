"""``--dry-run`` says what would be done and does nothing; the display shows speed and time left."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from encouraging.commands import dry_run
from encouraging.commands.dry_run import stage_seconds, updates
from encouraging.commands.progress import ProgressDisplay
from encouraging.data import DATASETS
from encouraging.engine import Train
from encouraging.engine.sweep import Event
from encouraging.recipes import read_recipe, rehearsal
from encouraging.recipes.grid import Job
from encouraging.recipes.rehearsal import Rehearsal, rehearse
from encouraging.tasks import StageSpec
from task_laws import call
from tiny_files import write_imagenet

MEASURED = Rehearsal(60, 1000, 100.0, 3.0, 10, 30)


def test_it_prints_runs_time_and_disk_and_writes_nothing(tmp_path):
    said = call("run", "digits", "--dry-run", "--out", tmp_path / "out", "--device", "cpu", "--seeds", "2")
    for words in ("5 arms, 2 seeds: 10 runs, of which 0 are finished", "el_1_matched", "380",
                  "training ce for up to 60 s, to measure its speed; nothing of it is kept", "images/s",
                  "per run", "one run after another", "on the disk", "free"):
        assert words in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_figures")
def test_finished_runs_are_not_counted_again(tmp_path):
    run = ["run", "digits", "--out", tmp_path, "--device", "cpu", "--arm", "ce", "--set", "train.epochs=1"]
    call(*run, "--seeds", "1")
    said = call(*run, "--seeds", "2", "--dry-run")
    assert "1 arm, 2 seeds: 2 runs, of which 1 is finished" in said
    said = call(*run, "--seeds", "1", "--dry-run")
    assert "all of them are finished: there is nothing to train" in said
    assert "to measure its speed" not in said


def test_a_misspelt_metric_of_a_claim_is_refused(tmp_path):
    said = call("run", "digits", "--dry-run", "--out", tmp_path, "--device", "cpu", "--set",
                'claims=[{metric="acuracy", arm="el_1", beats="ce"}]', code=2)
    assert "Did you mean 'accuracy'?" in said


def test_missing_data_is_named_with_its_size_and_nothing_is_measured(tmp_path):
    said = call("run", "imagenet-resnet50", "--dry-run", "--data", tmp_path, "--out", tmp_path / "out")
    assert "3 arms, 5 seeds: 15 runs" in said
    assert "imagenet/train" in said
    assert "145 GB" in said
    assert "images/s" not in said


def test_images_in_files_and_arms_that_only_evaluate(tmp_path, monkeypatch):
    monkeypatch.setattr(dry_run, "MINUTE", 1.0)
    write_imagenet(tmp_path, broken=False)
    more = ["--set", "options.train_size=32", "--set", "options.test_resize=36", "--set", "model=resnet20"]
    said = call("run", "imagenet-resnet50", "--dry-run", "--data", tmp_path, "--out", tmp_path / "out", *more,
                "--set", "train.batch_size=5", "--set", "train.workers=0")
    assert "images/s" in said
    assert "(20 training and 8 test images; as shipped 1281167 and 50000, 145 GB)" in said
    assert "360" in said  # updates: 4 of 5 images in each of 90 epochs
    said = call("run", "imagenet-ood", "--dry-run", "--data", tmp_path, "--out", tmp_path / "out", *more)
    assert "inaturalist2018 is not in" in said


def test_a_whole_set_of_images_is_called_so_and_a_part_of_it_alone_is_counted(tmp_path, monkeypatch):
    write_imagenet(tmp_path, broken=False)
    assert dry_run._size_words("imagenet", ("test",), tmp_path) == "8 test images; as shipped 50000, 145 GB"
    monkeypatch.setitem(dry_run.DATASETS, "imagenet", replace(DATASETS["imagenet"], images=(20, 8)))
    assert dry_run._size_words("imagenet", ("train", "test"), tmp_path) == \
        "20 training and 8 test images, 145 GB as shipped"


def test_the_time_of_a_stage_follows_from_its_examples():
    stage = StageSpec(Train(epochs=10, lr=0.1, batch_size=30, accumulate=2))
    assert updates(stage, MEASURED) == 10 * 17  # 34 batches, two per update
    assert stage_seconds(stage, MEASURED) == pytest.approx(10 * (1000 / 100 + 3))
    short = StageSpec(Train(epochs=10, max_steps=17, lr=0.1, batch_size=30, accumulate=2))
    assert stage_seconds(short, MEASURED) == pytest.approx(1000 / 100 + 3)
    rarely = StageSpec(Train(max_steps=17 * 6, evaluate_every=4, lr=0.1, batch_size=30, accumulate=2))
    assert stage_seconds(rarely, MEASURED) == pytest.approx(6 * 1000 / 100 + 2 * 3)  # after the fourth, and at the end


def test_a_rehearsal_stops_in_time_and_knows_the_size_of_a_checkpoint():
    recipe = read_recipe("digits", ["train.epochs=100000", "train.ema=0.9"])
    found = rehearse(recipe, "ce", torch.device("cpu"), None, 1.5)
    assert found.took < 6
    assert found.examples == 1216  # 1200 training digits in batches of 64
    model = 4 * sum(param.numel() for param in recipe_model(recipe).parameters())
    assert found.checkpoint > 3 * model  # weights, their average, momentum, the best epoch's
    assert found.run_bytes > 2 * found.checkpoint


@pytest.mark.parametrize("updates_done", [1, 2, 3, 30])
def test_the_speed_is_that_of_updates_however_few(updates_done):
    now = time.monotonic()
    clock = rehearsal._Clock(now - updates_done, now)
    clock.stamps = [(now - updates_done + step, step) for step in range(1, updates_done + 1)]
    clock.at.step = updates_done
    trainer = SimpleNamespace(device=torch.device("cpu"), train=Train(epochs=1, lr=0.1, batch_size=4))
    assert rehearsal._speed(clock, trainer) == pytest.approx(4, rel=0.2)  # one update per second


def test_nothing_is_begun_that_would_not_end_in_time(monkeypatch):
    """Updates of 15 seconds."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = rehearsal._Clock(0.0, 40.0)
    now[0] = 15.0
    assert clock.stop() is None
    now[0] = 30.0
    assert clock.stop() is not None  # the next one would end after 45
    clock.end = 60.0
    assert clock.has_time()
    now[0] = 50.0
    assert not clock.has_time()


def recipe_model(recipe):
    from encouraging.models import build_model

    return build_model(recipe.model, 10, 1)


def test_under_torchrun_it_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "it measures one process" in call("run", "digits", "--dry-run", "--device", "cpu", code=2)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_display_shows_images_per_second_and_the_time_left(terminal, monkeypatch):
    monkeypatch.setattr("encouraging.commands.progress.PRINT_EVERY", 0.0)
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=200)
    job = Job(read_recipe("imagenet-resnet50"), "ce", 0, str(Path("out")))
    detail = {"stage": 1, "epoch": 3, "batch": 2500, "batches": 5005, "step": 12510, "examples_per_second": 2310.4,
              "seconds_left": 40_000.0}
    with ProgressDisplay(console, 1) as display:
        display(Event(job, "started"))
        display(Event(job, "progress", detail))
        if terminal:
            assert display.progress.tasks[-1].completed == pytest.approx(2 + 2500 / 5005)
            display.progress.refresh()
    assert "batch 2500/5005, 2310 images/s, 11 h 7 min left" in text.getvalue()
