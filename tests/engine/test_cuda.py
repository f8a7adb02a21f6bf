"""On a GPU: a recorded update teaches what an eager one does, and what cannot be recorded still runs."""

from __future__ import annotations

import json
import math
import signal

import pytest
import torch

from encouraging.data import ResidentSource
from encouraging.engine import Interrupted, Loss, RunDir, RunSpec, Train, execute, graph, load_weights
from encouraging.errors import DivergenceError
from encouraging.tasks import ObjectiveConfig, StageSpec, TaskSpec, build_task
from encouraging.tasks.image import ImageTask

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
CUDA = torch.device("cuda")


def spec(train, objective=None):
    return TaskSpec("digits", "digits_mlp", (StageSpec(train, objective=objective or ObjectiveConfig()),), 0, CUDA)


def run(folder, *, objective=None, make=None, **train):
    it = spec(Train(**{"epochs": 4, "lr": 0.05, "momentum": 0.9, "batch_size": 256, **train}), objective)
    make = make or (lambda: build_task("image", it))
    config = {"recipe": "x", "train": it.stages[0].train.model_dump(mode="json")}
    final = execute(RunSpec(make, it.stages, RunDir(folder), config, 0, CUDA))
    return final, json.loads((folder / "timing.json").read_text())["cuda_graph"]


@pytest.mark.parametrize("settings", [
    {}, {"optimizer": "adam", "momentum": 0.0, "lr": 1e-3}, {"optimizer": "rmsprop", "lr": 1e-4},
    {"optimizer": "rmsprop_tf", "lr": 1e-3}, {"clip_norm": 0.5, "ema": 0.9}, {"accumulate": 2}, {"precision": "bf16"},
    {"schedule": "cosine", "nesterov": True}, {"compile": "cuda"}, {"compile": True, "precision": "bf16"},
])
def test_a_recorded_update_is_the_eager_one(tmp_path, settings):
    recorded, how = run(tmp_path / "graph", **settings)
    eager, _ = run(tmp_path / "eager", cuda_graph=False, **settings)
    assert how == "recorded"
    tolerance = 0.05 if settings.get("precision") == "bf16" else 1e-3
    assert recorded["train_loss"] == pytest.approx(eager["train_loss"], rel=tolerance)
    ours, theirs = load_weights(tmp_path / "graph"), load_weights(tmp_path / "eager")
    for name in ours:
        torch.testing.assert_close(ours[name].float(), theirs[name].float(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("settings", [
    {"curve": "encouraging", "log_end": 1.0}, {"curve": "encouraging", "label_smoothing": 0.1}, {"margin": 2},
    {"curve": "encouraging", "log_end": 1.0, "match_norm": True}, {"loss": "mse", "link": "sigmoid", "bonus": True},
    {"curve": "focal", "bonus_from_epoch": 3, "reweight_from_epoch": 2},
])
def test_every_kind_of_arm_can_be_recorded(tmp_path, settings):
    final, how = run(tmp_path, objective=ObjectiveConfig(**settings))
    assert how == "recorded"
    assert math.isfinite(final["train_loss"])


def test_what_cannot_be_recorded_runs_eagerly_and_says_why(tmp_path):
    class Asks(ImageTask):
        def loss(self, model, batch, objective):
            loss = super().loss(model, batch, objective)
            return Loss(loss.mean * (1 if loss.mean.item() > -1e9 else 0), loss.count, loss.sums)

    it = spec(Train(epochs=1, lr=0.1, batch_size=256))
    final, how = run(tmp_path, make=lambda: Asks(it))
    assert "could not be recorded" in how
    assert math.isfinite(final["train_loss"])


def test_dropout_goes_on_after_a_recording_that_failed(tmp_path):
    """In this run, and in the next one of the same process."""
    class Dropped(ImageTask):
        def build(self):
            model = super().build()
            return torch.nn.Sequential(model, torch.nn.Dropout(0.1).to(CUDA))

        def loss(self, model, batch, objective):
            loss = super().loss(model, batch, objective)
            return Loss(loss.mean * (1 if loss.mean.item() > -1e9 else 0), loss.count, loss.sums)

    stream = torch.cuda.current_stream()
    it = spec(Train(epochs=2, lr=0.1, batch_size=256))
    finals = []
    for name in ("first", "second"):
        final, how = run(tmp_path / name, make=lambda: Dropped(it), epochs=2, lr=0.1, momentum=0.0)
        assert how.startswith("could not be recorded: ")
        assert ".item()" in how or "capturing" in how, how  # the reason, not what it led to
        finals.append(final)
    assert finals[0] == finals[1]
    assert torch.cuda.current_stream() == stream


class Lengths:
    """A source whose batches have many sizes, as those of sequences have."""

    def __init__(self, source: ResidentSource):
        self.source, self.length = source, source.length

    def batches(self, clock, start, rank, world):
        for number, batch in enumerate(self.source.batches(clock, start, rank, world)):
            yield tuple(column[: len(column) - number % 7] for column in batch)


def test_a_bounded_number_of_shapes_is_recorded_and_the_rest_runs_eagerly(tmp_path, monkeypatch):
    """Seven shapes, three recordings: the weights are those of a run without any."""
    class Varied(ImageTask):
        def source(self, stage):
            return Lengths(super().source(stage))

    recorded = []
    record = graph.Replay._record

    def counted(self, key, *rest):
        recorded.append(key)
        return record(self, key, *rest)

    monkeypatch.setattr(graph, "MOST", 3)
    monkeypatch.setattr(graph.Replay, "_record", counted)
    settings = {"epochs": 6, "batch_size": 64}
    for name, on in (("graph", True), ("eager", False)):
        it = spec(Train(**{"lr": 0.05, "momentum": 0.9, "cuda_graph": on, **settings}))
        _, how = run(tmp_path / name, make=lambda it=it: Varied(it), cuda_graph=on, **settings)
        assert how == "recorded" or not on
    assert len(recorded) == len(set(recorded)) == 3
    ours, theirs = load_weights(tmp_path / "graph"), load_weights(tmp_path / "eager")
    for layer in ours:
        torch.testing.assert_close(ours[layer], theirs[layer], rtol=1e-3, atol=1e-4)


class Signals:
    """A source that asks the run to stop in its third epoch."""

    def __init__(self, source: ResidentSource):
        self.source, self.length = source, source.length

    def batches(self, clock, start, rank, world):
        if clock.epoch == 3:
            signal.raise_signal(signal.SIGTERM)
        return self.source.batches(clock, start, rank, world)


def test_a_run_on_a_gpu_resumes(tmp_path):
    class Stops(ImageTask):
        def source(self, stage):
            return Signals(super().source(stage))

    it = spec(Train(epochs=4, lr=0.05, momentum=0.9, batch_size=256))
    with pytest.raises(Interrupted):
        run(tmp_path / "a", make=lambda: Stops(it))
    resumed, _ = run(tmp_path / "a")
    whole, _ = run(tmp_path / "b")
    assert resumed["train_loss"] == pytest.approx(whole["train_loss"], rel=1e-3)


def test_a_nan_is_found_at_the_end_of_the_epoch_and_named(tmp_path):
    class Poisoned(ImageTask):
        def loss(self, model, batch, objective):
            loss = super().loss(model, batch, objective)
            return Loss(loss.mean * torch.where((batch[0] == 700).any(), torch.nan, 1.0), loss.count, loss.sums)

    it = spec(Train(epochs=4, lr=0.05, momentum=0.9, batch_size=256, shuffle=False))
    with pytest.raises(DivergenceError, match=r"update 3: batch 3 of 5 in epoch 1"):
        run(tmp_path, make=lambda: Poisoned(it))
