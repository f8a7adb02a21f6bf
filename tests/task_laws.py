"""What the tests of own tasks share: how a run is killed, split over two ranks, and shown."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch._dynamo  # the first optimiser of a process imports it, for a second or more: here it is done beforehand
from typer.testing import CliRunner

from encouraging.cli import app
from encouraging.engine import Interrupted, RunDir, Stopper, checkpoint
from encouraging.engine import run as engine_run
from encouraging.recipes import Recipe
from encouraging.recipes.grid import Job, train_job
from forked import command_on_two_ranks, forkserver
from page_text import PageText


def call(*words: object, code: int = 0) -> str:
    """What a command of ``encouraging`` prints."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


def job_of(recipe: Recipe, out: Path, arm: str, seed: int = 0) -> Job:
    return Job(recipe, arm, seed, str(out), "cpu", threads=1)


def train(recipe: Recipe, out: Path, arm: str, seed: int = 0) -> Path:
    """Train one arm and seed in this process, or continue it; its run directory."""
    return train_to_end(job_of(recipe, out, arm, seed))


class StopsAtOnce(Stopper):
    """As if a signal had come during the first update."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = "SIGTERM"


def train_to_end(job: Job) -> Path:
    train_job(job, lambda line: None)
    return job.folder


def train_stopped(job: Job) -> Path:
    """Train a job that is stopped during its first update, and then to its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_run, "Stopper", StopsAtOnce)
        with pytest.raises(Interrupted, match="A checkpoint was written"):
            train_job(job, lambda line: None)
    return train_to_end(job)


def train_and_die(job: Job, write: int) -> None:
    """Train until a file of a checkpoint, the one of this number, is about to be written; then die of SIGKILL."""
    real, count = checkpoint.write_whole, iter(range(1, 1_000_000))

    def write_or_die(path: Path, content: bytes) -> None:
        if next(count) == write:
            os.kill(os.getpid(), signal.SIGKILL)
        real(path, content)

    checkpoint.write_whole = write_or_die
    train_job(job, lambda line: None)


def train_with_kills(recipes: Sequence[Recipe], writes: Sequence[int], out: Path, arm: str) -> Path:
    """Killed once with each recipe (they differ in how they load data), then trained to the end with the first."""
    context = forkserver()
    for recipe, write in zip(recipes, writes, strict=True):
        process = context.Process(target=train_and_die, args=(job_of(recipe, out, arm), write))
        process.start()
        while is_alive(process.pid):  # join would wait for its loaders too, which notice its death seconds later
            time.sleep(0.01)
        assert not RunDir(job_of(recipe, out, arm).folder).done, "the run ended before it could be killed"
    return train(recipes[0], out, arm)


def is_alive(pid: int | None) -> bool:
    try:
        os.kill(pid or 0, 0)
    except ProcessLookupError:
        return False
    return True


def assert_same_bits(ours: Path, theirs: Path) -> None:
    """Numbers of every epoch, final numbers and weights of two run directories."""
    for name in ("metrics.jsonl", "final.json", "weights.safetensors"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name


def assert_close_weights(ours: Path, theirs: Path) -> None:
    mine, expected = (safetensors.torch.load_file(folder / "weights.safetensors") for folder in (ours, theirs))
    assert mine.keys() == expected.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], expected[name], rtol=1e-4, atol=1e-6)


def run_on_two_ranks(recipe: Path, out: Path, *words: str) -> None:
    """``encouraging run`` with gloo."""
    out.parent.mkdir(parents=True, exist_ok=True)
    command_on_two_ranks(["run", str(recipe), "--out", str(out), "--device", "cpu", "--threads", "1", *words],
                         out.parent / f"{out.name}.log", timeout=250)


def page_words(path: Path) -> str:
    """All words of a report's page, those of tables and of figures included."""
    text = PageText(path.read_text())
    return " ".join([*text.words, *(cell for row in text.cells for cell in row)])
