"""Large checkpoints are written beside the training, whole or not at all; and how fast an epoch goes is told."""

from __future__ import annotations

import signal
import threading
import time

import pytest
import torch

from encouraging.engine import Train, execute, writer
from encouraging.engine.checkpoint import load_checkpoint
from encouraging.engine.pace import Pace
from encouraging.engine.signals import Interrupted
from encouraging.engine.writer import CheckpointWriter
from encouraging.errors import RunError
from toy_tasks import Blobs, assert_same_run, run_spec


def large(value: float) -> dict[str, torch.Tensor]:
    return {"weights": torch.full((writer.LARGE // 4 + 1,), value)}


@pytest.fixture
def slow(monkeypatch):
    """Writing waits until it is let go."""
    go, real = threading.Event(), writer.write_checkpoint

    def wait_and_write(*arguments):
        assert go.wait(20)
        real(*arguments)

    monkeypatch.setattr(writer, "write_checkpoint", wait_and_write)
    return go


def test_a_large_checkpoint_does_not_keep_the_training_waiting_and_is_that_of_its_moment(tmp_path, slow):
    tensors, state = large(1.0), {"step": [1]}
    with CheckpointWriter(tmp_path, "mark") as save:
        save(1, tensors, state)  # would wait for ever if it did not return before the writing
        tensors["weights"].fill_(2.0)
        state["step"].append(2)
        assert not list(tmp_path.iterdir())
        slow.set()
    found = load_checkpoint(tmp_path, "mark", pytest.fail)
    assert found is not None
    assert (found.tensors["weights"] == 1).all()
    assert found.state["step"] == [1]


def test_one_checkpoint_is_written_at_a_time_in_their_order(tmp_path, slow):
    slow.set()
    with CheckpointWriter(tmp_path, "mark") as save:
        for step in (1, 2, 3):
            save(step, large(float(step)), {})
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["checkpoint-000000002.json",
                                                                     "checkpoint-000000003.json"]


def test_a_full_disk_is_said_by_the_next_checkpoint_or_at_the_end(tmp_path, monkeypatch):
    def full(*_):
        raise RunError("the disk is full")

    monkeypatch.setattr(writer, "write_checkpoint", full)
    save = CheckpointWriter(tmp_path, "mark")
    save(1, large(1.0), {})
    with pytest.raises(RunError, match="the disk is full"):
        save(2, large(1.0), {})
    with pytest.raises(RunError, match="the disk is full"), save:
        save(3, large(1.0), {})
    save.wait()  # it was said once


def test_a_run_whose_checkpoints_are_written_beside_it_ends_with_the_same_bits(tmp_path, monkeypatch):
    execute(run_spec(tmp_path / "whole"))
    monkeypatch.setattr(writer, "LARGE", 0)
    threads = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda self: (threads.append(self.name), start(self))[1])
    execute(run_spec(tmp_path / "beside"))
    assert any(name.startswith("checkpoint") for name in threads)
    assert_same_run(tmp_path / "beside", tmp_path / "whole")


def test_a_run_that_is_stopped_in_its_last_evaluation_has_written_what_it_says(tmp_path, monkeypatch):
    """Its directory is free for another process from then on, and a full disk must still be told."""
    class Stopped(Blobs):
        def predict(self, model, final, rank, world):
            if final:
                signal.raise_signal(signal.SIGTERM)
            return super().predict(model, final, rank, world)

    def slowly(*arguments):
        time.sleep(0.2)
        real(*arguments)

    real = writer.write_checkpoint
    monkeypatch.setattr(writer, "write_checkpoint", slowly)
    monkeypatch.setattr(writer, "LARGE", 0)
    with pytest.raises(Interrupted, match="in the final evaluation"):
        execute(run_spec(tmp_path, Stopped()))
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


def test_the_pace_is_that_of_the_updates_after_the_first(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told = []
    pace = Pace(Train(epochs=3, lr=0.1, batch_size=8, evaluate_every=2), told.append, evaluation=10.0)
    pace.start_epoch()
    for batch in range(1, 6):
        now[0] += 100.0 if batch == 1 else 0.5  # the loaders start before the first batch
        pace(1, 2, batch, 50, batch)
    assert [detail["batch"] for detail in told] == [2, 4]
    assert told[-1]["examples_per_second"] == pytest.approx(16)
    # 46 batches of this epoch and 50 of the next at 2 per second; evaluations of the second epoch and of the last.
    assert told[-1]["seconds_left"] == pytest.approx(96 / 2 + 20)
    steps = Pace(Train(max_steps=10, lr=0.1, batch_size=8, accumulate=2), told.append)
    for batch in (2, 4, 6):
        now[0] += 1
        steps(1, 1, batch, 50, batch // 2)
    assert told[-1]["seconds_left"] == pytest.approx((10 - 3) * 2 / 2)
    assert told[-1]["batches"] == 20  # the updates end before the epoch does
    # After the first of 3.4 epochs: 95 batches at 10 per second, and an evaluation at the end of each epoch.
    long = Pace(Train(max_steps=135, lr=0.1, batch_size=8), told.append, evaluation=10.0, speed=10.0)
    long.evaluate(1, 1, 40, 40)
    assert told[-1]["seconds_left"] == pytest.approx(95 / 10 + 4 * 10)
    long.evaluate(1, 4, 40, 135)
    assert told[-1]["seconds_left"] == pytest.approx(10)
    steps.evaluate(1, 1, 50, 10)
    assert told[-1]["evaluating"]
    assert told[-1]["seconds_left"] is None  # nobody knows yet how long an evaluation takes


def test_a_run_tells_how_far_an_epoch_is(tmp_path):
    from dataclasses import replace

    told = []
    spec = run_spec(tmp_path, Blobs(delay=0.15), stages=(Train(epochs=2, lr=0.1, batch_size=16),))
    execute(replace(spec, on_progress=told.append))
    assert [detail["epoch"] for detail in told if "evaluating" in detail] == [1, 2, 2]  # and once more at the end
    told = [detail for detail in told if "evaluating" not in detail]
    assert told
    assert all(1 <= detail["batch"] <= detail["batches"] == 7 for detail in told)
    assert all(0 < detail["examples_per_second"] < 16 / 0.15 + 1 for detail in told)
