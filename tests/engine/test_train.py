"""The loop: the same numbers as a plain one, whatever the batches are made of."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from encouraging.data import Clock, GraphBatch
from encouraging.engine import Metric, RunDir, StagePlan, Train, execute, load_weights
from encouraging.engine.compiled import Compiled
from encouraging.engine.ema import Average
from encouraging.engine.graph import _map_leaves
from encouraging.engine.meter import DeviceMeter, HostMeter
from encouraging.engine.random_state import seed_everything
from encouraging.errors import RunError
from toy_tasks import PARTS, Blobs, Words, run_spec


def test_the_engine_is_a_plain_loop(tmp_path):
    plan = (Train(epochs=3, lr=0.1, momentum=0.9, batch_size=16),)
    execute(run_spec(tmp_path, Blobs(dropout=0.0), plan))

    seed_everything(0)
    task = Blobs(dropout=0.0)
    model = task.build()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for epoch in (1, 2, 3):
        for x, y in task.batches(Clock(1, epoch), 0, 0, 1):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y, label_smoothing=task.objective(Clock(1, epoch))).backward()
            optimizer.step()
    found = load_weights(tmp_path)
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


def test_batches_need_not_be_tensors_and_a_metric_may_need_the_whole_set(tmp_path):
    plan = (Train(epochs=30, lr=0.05, optimizer="adam", monitor="f1"),)
    final = execute(run_spec(tmp_path, Words(), plan))
    assert final["best_f1"] > 0.9
    lines = RunDir(tmp_path).metrics()
    assert final["f1"] == lines[-1]["f1"]
    assert final["best_f1"] == max(line["f1"] for line in lines)


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_accumulated_gradients_are_those_of_the_whole_batch(tmp_path, accumulate):
    """100 examples in batches of 40: two of the three parts are full and the last is not."""
    whole = (Train(epochs=1, lr=0.1, batch_size=40 * accumulate),)
    parts = (Train(epochs=1, lr=0.1, batch_size=40, accumulate=accumulate),)
    execute(run_spec(tmp_path / "whole", Blobs(batch_size=40 * accumulate, dropout=0.0), whole))
    execute(run_spec(tmp_path / "parts", Blobs(batch_size=40, dropout=0.0), parts))
    ours, theirs = load_weights(tmp_path / "parts"), load_weights(tmp_path / "whole")
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name])
    losses = [RunDir(tmp_path / kind).metrics()[0]["loss"] for kind in ("whole", "parts")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_early_stopping_waits_for_more_than_its_patience(tmp_path):
    class Falling(Blobs):
        metrics = (Metric("val_accuracy", "validation accuracy", primary=True),)

        def evaluate(self, predictions):
            self.count = getattr(self, "count", 0) + 1
            return {"val_accuracy": {1: 1.0, 2: 5.0}.get(self.count, 3.0)}

    plan = (Train(epochs=50, lr=0.01, monitor="val_accuracy", patience=4),)
    final = execute(run_spec(tmp_path, Falling(), plan))
    assert (final["best_epoch"], final["best_val_accuracy"], final["epochs"]) == (2, 5.0, 7)


def test_an_unknown_monitor_is_answered_with_what_is_measured(tmp_path):
    with pytest.raises(RunError, match=r"train.monitor = 'bleu': the task measures .*accuracy"):
        execute(run_spec(tmp_path, stages=(Train(epochs=1, lr=0.1, monitor="bleu"),)))


def test_the_second_stage_has_a_new_head_on_the_old_features(tmp_path):
    one = (Train(epochs=2, lr=0.1),)
    two = (*one, StagePlan(Train(epochs=2, lr=0.1), **PARTS))
    execute(run_spec(tmp_path / "one", stages=one))
    final = execute(run_spec(tmp_path / "two", stages=two))
    before, after = load_weights(tmp_path / "one"), load_weights(tmp_path / "two")
    assert torch.equal(before["0.0.weight"], after["0.0.weight"])
    assert not torch.equal(before["1.weight"], after["1.weight"])
    first = json.loads((tmp_path / "one" / "final.json").read_text())
    assert final["stage1"]["accuracy"] == first["accuracy"]


def test_frozen_statistics_do_not_move_in_the_second_stage(tmp_path):
    class Normed(Blobs):
        def build(self):
            return nn.Sequential(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16)), nn.Linear(16, 3))

    one = Train(epochs=1, lr=0.1)
    means = {}
    moving = one.model_copy(update={"freeze_norm": False})
    for name, second in {"none": (), "frozen": (one,), "moving": (moving,)}.items():
        execute(run_spec(tmp_path / name, Normed(), (one, *(StagePlan(train, **PARTS) for train in second))))
        means[name] = load_weights(tmp_path / name)["0.1.running_mean"]
    assert torch.equal(means["none"], means["frozen"])
    assert not torch.equal(means["none"], means["moving"])


def test_the_average_of_the_weights_is_what_is_evaluated(tmp_path):
    seen = {}

    class Watches(Blobs):
        def predict(self, model, *how):
            seen["evaluated"] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            return super().predict(model, *how)

    execute(run_spec(tmp_path, Watches(dropout=0.0), (Train(epochs=1, lr=0.1, ema=0.5, batch_size=16),)))
    seed_everything(0)
    task = Blobs(dropout=0.0)
    model = task.build()
    average = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in task.batches(Clock(), 0, 0, 1):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        average = {name: 0.5 * old + 0.5 * model.state_dict()[name] for name, old in average.items()}
    for name, tensor in average.items():
        torch.testing.assert_close(seen["evaluated"][name], tensor)


def test_a_weight_that_two_layers_share_is_averaged_once():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    nn.init.zeros_(first.weight)
    average = Average(nn.Sequential(first, second), 0.9)
    nn.init.ones_(first.weight)
    average.update()
    torch.testing.assert_close(average.model[0].weight, torch.full((2, 2), 0.1))
    assert average.model[1].weight is average.model[0].weight


@pytest.mark.parametrize("settings", [{"max_steps": 10}, {"precision": "bf16"}, {"clip_norm": 1e-3}])
def test_other_settings_do_what_they_say(tmp_path, settings):
    final = execute(run_spec(tmp_path, stages=(Train(epochs=4, lr=0.1, batch_size=16, **settings),)))
    assert final["steps"] == (10 if "max_steps" in settings else 28)
    moved = load_weights(tmp_path)
    seed_everything(0)
    start = Blobs().build().state_dict()
    distance = math.sqrt(sum((moved[name] - start[name]).square().sum().item() for name in start))
    assert (distance < 28 * 0.1 * 1e-3 * 1.01) == ("clip_norm" in settings)


def test_every_record_has_what_the_papers_cost_table_has(tmp_path):
    execute(run_spec(tmp_path, stages=(Train(epochs=2, lr=0.1),)))
    timing = json.loads((tmp_path / "timing.json").read_text())
    assert {"device", "peak_memory_mib", "seconds", "epochs", "samples", "threads", "torch"} <= timing.keys()
    assert timing["samples"] == 200
    assert timing["counted"] == "samples"
    text = (tmp_path / "final.json").read_text()
    assert "seconds" not in text
    assert str(tmp_path) not in text
    assert all(line["grad_norm"] > 0 for line in RunDir(tmp_path).metrics())


@pytest.mark.parametrize("losses", [[1.0, 2.0], [1.0, math.nan, 2.0], [1.0, 2.0, 1e9], [1.0, -math.inf]])
def test_both_meters_agree(losses):
    host, device = HostMeter(1e4, ["correct"]), DeviceMeter(1e4, torch.device("cpu"), ["correct"])
    for number, loss in enumerate(losses):
        for meter in (host, device):
            meter.add(torch.tensor(loss), 4, torch.tensor(2.0) if number else None, {"correct": number})
    assert host.bad() == device.bad()
    torch.testing.assert_close(host.sums(), device.sums(), equal_nan=True)


def test_norms_of_skipped_updates_do_not_count():
    host, device = HostMeter(1e4, skip_infinite=True), DeviceMeter(1e4, torch.device("cpu"), skip_infinite=True)
    for meter in (host, device):
        for norm in (3.0, math.inf, math.nan, 5.0):
            meter.add(torch.tensor(1.0), 4, torch.tensor(norm), {})
    assert host.sums().tolist() == device.sums().tolist() == [16.0, 16.0, 8.0, 2.0, 4.0]


def test_an_update_that_fp16_skips_leaves_the_gradient_norm_of_its_epoch_finite(tmp_path, monkeypatch):
    """The first scales are too large for 16 bits."""
    monkeypatch.setattr(torch.amp.GradScaler.__init__, "__defaults__", ("cuda", 2.0**21, 2.0, 0.5, 2000, True))
    execute(run_spec(tmp_path, Blobs(), (Train(epochs=2, lr=0.1, precision="fp16", clip_norm=100.0),)))
    lines = RunDir(tmp_path).metrics()
    assert all(0 < line["grad_norm"] < 10 for line in lines)


def test_a_tree_of_tensors_is_mapped_leaf_by_leaf():
    leaves: list[int] = []
    _map_leaves([{"a": (1, 2)}, [3]], leaves.append)
    assert leaves == [1, 2, 3]


def test_a_batch_may_be_a_named_tuple():
    batch = GraphBatch(*torch.arange(4.0))
    (doubled,) = _map_leaves([batch], lambda tensor: 2 * tensor)
    assert isinstance(doubled, GraphBatch)
    assert [tensor.item() for tensor in doubled] == [0, 2, 4, 6]


def test_tensorboard_gets_every_epoch(tmp_path):
    pytest.importorskip("tensorboard", reason="the tracking extra is not installed")
    execute(run_spec(tmp_path, stages=(Train(epochs=2, lr=0.1),), tracker="tensorboard"))
    assert list((tmp_path / "tensorboard").glob("events.*"))


def test_compiled_models_learn_the_same_and_the_last_batch_of_an_epoch_is_not_compiled_for(tmp_path, monkeypatch):
    """100 examples in batches of 40: two are compiled for, the one of 20 runs as it is."""
    plan = (Train(epochs=2, lr=0.1, batch_size=40),)
    execute(run_spec(tmp_path / "plain", Blobs(batch_size=40, dropout=0.0), plan))
    shapes = []

    def compiled(model, dynamic):
        def fast(x):
            shapes.append((len(x), dynamic))
            return model(x)
        return fast

    monkeypatch.setattr(torch, "compile", compiled)
    for asked, count in ((True, 4), ("cuda", 0)):
        plan = (Train(epochs=2, lr=0.1, batch_size=40, compile=asked),)
        execute(run_spec(tmp_path / str(asked), Blobs(batch_size=40, dropout=0.0), plan))
        assert shapes == [(40, False)] * count
        shapes.clear()
        ours, theirs = load_weights(tmp_path / str(asked)), load_weights(tmp_path / "plain")
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_compiled_model_has_what_its_model_has_and_takes_what_it_takes(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, dynamic: lambda *given, **named: ("fast", given, named))
    plain = nn.Module()
    plain.forward = lambda *given, **named: ("plain", given, named)
    plain.vocabulary = 7
    model = Compiled(plain)
    assert model.vocabulary == 7
    with pytest.raises(AttributeError, match="nothing"):
        _ = model.nothing
    x = torch.zeros(4, 3)
    assert [model(given)[0] for given in (x[:2], x, x[:2], x[:3, :2], "words")] == ["fast", "fast", "plain", "fast",
                                                                                    "fast"]
    assert model() == ("fast", (), {})
    assert model(x, y=1) == ("fast", (x,), {"y": 1})


@given(epochs=st.integers(0, 30), every=st.integers(1, 6), all_from=st.none() | st.integers(1, 20),
       first=st.integers(0, 12), count=st.integers(-1, 15))
def test_evaluations_are_counted_as_they_are_made(epochs, every, all_from, first, count):
    train = Train(epochs=epochs, lr=0.1, evaluate_every=every, evaluate_all_from=all_from)
    made = sum(train.evaluates(epoch) for epoch in range(first, first + count))
    assert train.evaluations(first, first + count) == made + 1  # there is always one at the end


def test_the_time_left_of_a_training_without_an_end_takes_no_time():
    """It is asked for in every epoch. A range of a million epochs took longer than many an epoch."""
    train = Train(epochs=10**15, lr=0.1, evaluate_every=3)
    assert train.evaluations(1, 10**15) == 1 + (10**15 - 1) // 3
