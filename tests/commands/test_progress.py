"""What a person sees of a training whose length nobody knows beforehand."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from encouraging.commands.progress import ProgressDisplay
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
    job = Job(read_recipe("proteins"), "ce", 0, str(Path("out")))
    said = seen(job, ("epoch", LINE), ("progress", WITHIN), terminal=terminal)
    assert "epoch 13" in said
    assert "3 of 50 epochs since the best" in said
    assert "10000" not in said
    assert "left" not in said


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
