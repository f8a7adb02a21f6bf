"""What a person sees of a training whose length nobody knows beforehand."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from encouraging.commands.attack_progress import AttackDisplay
from encouraging.commands.progress import ProgressDisplay
from encouraging.commands.time_left import TimeLeft
from encouraging.engine.sweep import Event, run_here
from encouraging.recipes import read_recipe
from encouraging.recipes.grid import Job, jobs_of, train_job
from graph_toys import RECIPE


def seen(job: Job, *events: tuple[str, dict[str, object]], terminal: bool = True) -> str:
    """What stands on the terminal after these events; without one, the lines that were printed."""
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=200)
    with ProgressDisplay(console, 1) as display:
        display(Event(job, "started"))
        for kind, detail in events:
            display(Event(job, kind, detail))
        if terminal:
            console.print(display.progress.get_renderable())
    return text.getvalue()


LINE = {"stage": 1, "epoch": 12, "step": 84, "loss": 0.5, "accuracy": 71.5, "best_epoch": 9}
WITHIN = {"stage": 1, "epoch": 13, "batch": 3, "batches": 7, "step": 87, "examples_per_second": 900.0,
          "batches_per_second": 7.0, "seconds_left": None}


@pytest.mark.parametrize("terminal", [True, False])
def test_with_patience_the_epoch_and_the_patience_used_are_shown_and_no_end(terminal, monkeypatch):
    monkeypatch.setattr("encouraging.commands.progress.PRINT_EVERY", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)  # a pause of a busy machine would make the next line late
    job = Job(read_recipe("proteins"), "ce", 0, str(Path("out")))
    said = seen(job, ("epoch", LINE), ("progress", WITHIN), terminal=terminal)
    assert "epoch 13" in said
    assert "3 of 50 epochs since the best" in said
    assert "10000" not in said
    assert "left" not in said


def test_an_evaluation_is_called_so():
    job = Job(read_recipe("digits"), "ce", 0, str(Path("out")))
    evaluating = {"stage": 1, "epoch": 12, "step": 84, "evaluating": True, "seconds_left": None}
    said = seen(job, ("progress", {**WITHIN, "epoch": 12}), ("progress", evaluating))
    last = [line for line in said.splitlines() if "ce seed 0" in line][-1]
    assert "12/20" in last
    assert "evaluating" in last
    assert "batch" not in last


def test_speeds_below_one_have_two_digits():
    job = Job(read_recipe("digits"), "ce", 0, str(Path("out")))
    assert "0.31 images/s" in seen(job, ("progress", {**WITHIN, "examples_per_second": 0.314}))


TASK = """
from encouraging.tasks import BaseTask, Metric

class Sounds(BaseTask):
    metrics = (Metric("accuracy", "accuracy", primary=True),)
    {examples}
    build = source = loss = predict = evaluate = None
"""
OWN_RECIPE = """
task = "{name}:Sounds"
data = "x"
model = "x"
seeds = 1
train = {{ epochs = 1, lr = 0.1 }}
[arms.ce]
"""


@pytest.mark.parametrize(("name", "examples", "speed"), [("counted", 'examples = "sounds"', "900 sounds/s"),
                                                         ("plain", "", "3 batches/s")])
def test_an_own_task_says_what_its_batches_hold(tmp_path, name, examples, speed):
    (tmp_path / f"{name}.py").write_text(TASK.format(examples=examples))
    (tmp_path / "own.toml").write_text(OWN_RECIPE.format(name=f"{name}.py"))
    job = Job(read_recipe(str(tmp_path / "own.toml")), "ce", 0, str(tmp_path / "out"))
    assert speed in seen(job, ("progress", {**WITHIN, "examples_per_second": 900.0, "batches_per_second": 3.0}))


def test_only_finished_runs_are_counted():
    """Not those that Ctrl-C has stopped."""
    job = Job(read_recipe("digits"), "ce", 0, str(Path("out")))
    for display in (ProgressDisplay, AttackDisplay):
        shown = display(Console(file=io.StringIO(), force_terminal=True), 3)
        for kind, detail in (("stopped", ""), ("failed", ""), ("done", {"accuracy": 1.0, "cells": 1, "seconds": 1.0})):
            shown(Event(job, "started"))
            shown(Event(job, kind, detail))
        assert shown.progress.tasks[0].completed == 1


def test_without_a_terminal_a_run_is_heard_of_when_it_starts_and_now_and_then(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    text = io.StringIO()
    display = ProgressDisplay(Console(file=text, width=80), 2)
    job, other = (Job(read_recipe("digits"), "ce", seed, str(Path("out"))) for seed in (0, 1))
    display(Event(job, "started"))
    assert text.getvalue() == "ce seed 0: started\n"
    for epoch in range(1, 8001):
        now[0] += 1.0
        display(Event(job, "progress", {**WITHIN, "epoch": epoch, "seconds_left": 65.0}))
        display(Event(job, "epoch", {**LINE, "epoch": epoch}))
        if epoch == 29:
            assert text.getvalue().count("\n") == 1
    display(Event(job, "done", {"accuracy": 80.0}))
    display(Event(other, "started"))
    lines = text.getvalue().splitlines()
    assert lines[1] == ("ce seed 0: run 1 of 2, epoch 30, batch 3/7, 900 images/s, 1 min left of this run, about 3 min "
                        "left in all (the epoch before: loss 0.5000, accuracy 71.50)")
    assert len(lines) < 80  # a run of two hours is not heard of every half minute
    assert lines[-1] == "1/2 ce seed 0: accuracy 80.00"


def test_the_time_of_all_runs_follows_from_those_that_ended(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = TimeLeft(4)
    assert clock.seconds is None
    clock.start("a")
    assert clock.seconds is None  # nothing is known yet
    clock.expect("a", 100.0)
    assert clock.seconds == 400.0
    now[0] = 50.0
    assert clock.seconds == 350.0
    now[0] = 60.0
    clock.end("a", done=True)
    clock.start("b")
    assert clock.seconds == 180.0
    clock.start("c")  # side by side
    assert clock.seconds == 90.0
    clock.end("b", done=False)  # a failure says nothing about the others
    assert clock.took == [60.0]
    clock.start("d")
    now[0] = 100.0
    assert clock.seconds == 20.0  # the slowest of those under way


def test_on_a_terminal_the_bar_of_all_runs_has_their_time():
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    display = ProgressDisplay(console, 3)
    job = Job(read_recipe("digits"), "ce", 0, str(Path("out")))
    display(Event(job, "started"))
    display(Event(job, "progress", {**WITHIN, "seconds_left": 600.0}))
    assert display.progress.tasks[0].fields["status"] == "about 30 min left in all"


def test_with_a_limit_of_updates_these_are_counted():
    job = Job(read_recipe("iwslt14-de-en"), "ce", 0, str(Path("out")))
    said = seen(job, ("progress", {**WITHIN, "step": 1200, "seconds_left": 60.0}))
    assert "1200/20000 updates" in said
    assert "1 min left" in said


def test_epochs_of_earlier_stages_count():
    stages = "stages=[{}, {freeze=['body']}]"
    job = Job(read_recipe("digits", [stages, "train.epochs=20", "train.milestones=[5]"]), "ce", 0, str(Path("out")))
    assert "32/40" in seen(job, ("epoch", {**LINE, "stage": 2}))


def test_a_second_stage_with_patience_is_named():
    stages = "stages=[{}, {freeze=['body']}]"
    job = Job(read_recipe("digits", [stages, "train.patience=5"]), "ce", 0, str(Path("out")))
    said = seen(job, ("epoch", {**LINE, "stage": 2}))
    assert "stage 2, epoch 12" in said
    assert "3 of 5 epochs since the best" in said


def test_a_training_tells_its_best_epoch_so_far(tmp_path):
    """And its files do not hold it."""
    (tmp_path / "mine.toml").write_text(RECIPE)
    recipe = read_recipe(tmp_path / "mine.toml", ["seeds=1"])
    job, = jobs_of(recipe, str(tmp_path / "out"), arms=["ce"], device="cpu", threads=1)
    events: list[Event] = []
    run_here([job], train_job, events.append)
    assert [event.detail for event in events if event.kind == "failed"] == []
    lines = [event.detail for event in events if event.kind == "epoch"]
    values = [line["val_accuracy"] for line in lines]
    assert [line["best_epoch"] for line in lines] == [values.index(max(values[: n + 1])) + 1 for n in range(len(lines))]
    assert "best_epoch" not in (job.folder / "metrics.jsonl").read_text()
