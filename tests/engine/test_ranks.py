"""Parts of a batch, on one rank or on two: together they are the whole batch, and ranks wait for each other."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from encouraging import curves, sigmoid_curve_loss
from encouraging.engine import RunDir, StagePlan, Train, execute, load_weights
from encouraging.engine.distributed import World
from toy_tasks import PARTS, Blobs, run_spec
from two_ranks import (
    Normed,
    Uneven,
    die_as_leader,
    diverge_alone,
    end_together,
    fail_as_leader,
    gradients,
    lead_twice,
    leave_a_model_behind,
    normed,
    on_two_ranks,
    shared_norm,
    stages,
    statistics,
    wait_for_leader,
)

CE = {"curve": "cross_entropy", "ignore_index": -1}
EL = {"curve": "encouraging", "link": "sigmoid"}
OBJECTIVES = {
    "tokens": {**CE, "divisor": "tokens", "reweight_from_epoch": 1},
    "weights": {**CE, "reweight_from_epoch": 1},
    "unweighted": CE,
    "examples": {**CE, "divisor": "examples"},
    "positives": {**CE, "divisor": "positives"},
    "a number": {**CE, "divisor": 3.0},
    "sigmoid": EL,
    "sigmoid, examples": {**EL, "divisor": "examples"},
    "sigmoid, positives": {**EL, "divisor": "positives"},
}


def divisor_of(name, task):
    """By hand, over the whole batch."""
    target, kept = task.target, task.target != -1
    return {"tokens": kept.sum(), "weights": task.weight[target[kept]].sum(), "unweighted": kept.sum(),
            "examples": kept.any(1).sum(), "positives": (target > 0).sum(), "a number": 3.0,
            "sigmoid": target.numel(), "sigmoid, examples": len(target),
            "sigmoid, positives": (target > 0).sum()}[name]


def expected_gradients(only=None):
    """The loss and gradient of the whole batch with torch's own formula, or the package's for the sigmoid link."""
    found = []
    for name, objective in OBJECTIVES.items():
        task = Uneven(objective, only=only)
        torch.manual_seed(0)
        model = task.build()
        logits = task.logits(model, torch.arange(len(task.x)))
        if task.sigmoid:
            total = sigmoid_curve_loss(logits, task.target, curves.encouraging(), reduction="sum")
        else:
            weight = task.weight if "reweight_from_epoch" in objective else None
            total = F.cross_entropy(logits, task.target, weight, ignore_index=-1, reduction="sum")
        loss = total / max(divisor_of(name, task), 1)
        loss.backward()
        found.append({"loss": loss.item(), **{name: param.grad for name, param in model.named_parameters()}})
    return found


@pytest.fixture(scope="module")
def expected():
    return expected_gradients()


def assert_gradients(found, expected):
    for name, ours, theirs in zip(OBJECTIVES, found, expected, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5), name
        for key in ("weight", "bias"):
            torch.testing.assert_close(ours[key], theirs[key], rtol=1e-4, atol=1e-6, msg=f"{name}: {key}")


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_accumulated_parts_have_the_gradient_of_the_whole_batch(tmp_path, expected, parts):
    """Whatever is divided by; one of four parts has no target at all, and no positive one."""
    assert_gradients(gradients(World(), tmp_path, list(OBJECTIVES.values()), parts), expected)


@pytest.mark.parametrize("parts", [1, 4])
def test_two_ranks_have_the_gradient_of_the_whole_batch(tmp_path, expected, parts):
    for found in on_two_ranks(gradients, tmp_path, list(OBJECTIVES.values()), parts):
        assert_gradients(found, expected)


def test_a_batch_of_one_example_without_targets_leaves_a_rank_with_nothing(tmp_path):
    """It has a loss only where negatives count too, and no gradient is ever 0 / 0."""
    expected = expected_gradients(only=3)
    objectives = list(OBJECTIVES.values())
    for found in (gradients(World(), tmp_path / "one", objectives, 1, 3),
                  *on_two_ranks(gradients, tmp_path / "two", objectives, 1, 3)):
        assert_gradients(found, expected)


def test_every_rank_evaluates_with_the_batch_norm_statistics_of_rank_0(tmp_path):
    (first, second), _ = on_two_ranks(statistics, tmp_path)
    assert first == second
    weights = load_weights(tmp_path)
    assert first[0] == weights["0.1.running_mean"].tolist()


NORMS = {
    "1d": (lambda: nn.BatchNorm1d(4), (5, 4)),
    "1d of sequences": (lambda: nn.BatchNorm1d(4, momentum=None), (5, 4, 3)),
    "2d": (lambda: nn.BatchNorm2d(4, momentum=0.3, eps=0.1), (5, 4, 3, 2)),
    "3d without weights": (lambda: nn.BatchNorm3d(4, affine=False), (5, 4, 3, 2, 2)),
    "without statistics": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (5, 4, 3, 3)),
    "float64": (lambda: nn.BatchNorm1d(4).double(), (5, 4)),
}


def test_a_shared_batch_norm_is_that_of_the_whole_batch():
    """Three rows on one rank and two on the other: output, every gradient and the running statistics."""
    draw = torch.Generator().manual_seed(3)
    cases = []
    for build, shape in NORMS.values():
        norm = build()
        dtype = torch.float64 if any(p.dtype == torch.float64 for p in norm.parameters()) else torch.float32
        cases.append((norm, torch.randn(shape, generator=draw, dtype=dtype) * 2 + 1))
    found = on_two_ranks(shared_norm, cases)
    for number, (name, (build, _)) in enumerate(NORMS.items()):
        layer, whole = nn.Sequential(build()), cases[number][1]
        for _ in range(2):
            x = whole.clone().requires_grad_()
            out = layer(x)
            (out * out.detach().sin()).sum().backward()
        first, second = (part[number] for part in found)
        for key, theirs in {"out": out.detach(), "input": x.grad}.items():
            torch.testing.assert_close(torch.cat([first[key], second[key]]), theirs, rtol=1e-4, atol=1e-5,
                                       msg=f"{name}: {key}")
        for key, theirs in {**{k: p.grad for k, p in layer.named_parameters()}, **dict(layer.named_buffers())}.items():
            for part in (first, second):
                torch.testing.assert_close(part[key], theirs, rtol=1e-4, atol=1e-5, msg=f"{name}: {key}")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_with_batch_norm_two_ranks_equal_one_where_it_is_synchronised(tmp_path, accumulate):
    train = Train(epochs=3, lr=0.1, batch_size=16, accumulate=accumulate, sync_norm=True)
    execute(run_spec(tmp_path / "one", Normed(), (train,)))
    on_two_ranks(normed, tmp_path / "two", train)
    on_two_ranks(normed, tmp_path / "apart", train.model_copy(update={"sync_norm": False}))
    one, two, apart = (load_weights(tmp_path / kind) for kind in ("one", "two", "apart"))
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-5, msg=name)
    assert not torch.allclose(apart["0.1.running_mean"], one["0.1.running_mean"], rtol=1e-3, atol=1e-5)
    for line, expected in zip(*(RunDir(tmp_path / kind).metrics() for kind in ("two", "one")), strict=True):
        assert line == pytest.approx(expected, rel=1e-4)


def test_a_part_starts_anew_on_two_ranks_as_on_one(tmp_path):
    """Also the average of the weights, which each rank keeps for itself, and which is what it evaluates."""
    plans = (StagePlan(Train(epochs=1, lr=0.1, batch_size=16)),
             StagePlan(Train(epochs=2, lr=0.05, batch_size=16, ema=0.5), **PARTS),
             StagePlan(Train(epochs=1, lr=0.05, batch_size=16, ema=0.5), reset=("head",)))
    execute(run_spec(tmp_path / "one", Blobs(dropout=0.0), plans))
    on_two_ranks(stages, tmp_path / "two", plans)
    ours, theirs = load_weights(tmp_path / "two"), load_weights(tmp_path / "one")
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-6)
    for line, expected in zip(*(RunDir(tmp_path / kind).metrics() for kind in ("two", "one")), strict=True):
        assert line == pytest.approx(expected, rel=1e-4)


def test_rank_0_may_evaluate_for_longer_than_a_collective_waits():
    answers = on_two_ranks(wait_for_leader, 3.0, 1.0, 0.2, timeout=1.0)
    assert [answer for answer, _ in answers] == [{"bleu": 27.5}] * 2
    assert all(seconds >= 2.9 for _, seconds in answers)


def test_when_rank_0_fails_the_other_one_says_so_and_ends():
    assert on_two_ranks(fail_as_leader) == ["no reason", "rank 0 has failed; its own message says why."]


def test_when_rank_0_is_silent_the_other_one_gives_up():
    _, said = on_two_ranks(die_as_leader, 0.5)
    assert "rank 0 has shown no sign of life" in said


def test_what_rank_0_said_in_one_run_is_not_its_answer_in_the_next():
    assert on_two_ranks(lead_twice, timeout=10) == [["failed", "fine"]] * 2


def test_a_loss_that_is_bad_on_one_rank_ends_the_run_on_both_with_the_same_words(tmp_path):
    first, second = on_two_ranks(diverge_alone, tmp_path, timeout=20)
    assert first == second
    assert first.startswith("DivergenceError: the loss became NaN, infinite or larger than 10000 at update 9: batch 2")
    assert json.loads((tmp_path / "failed.json").read_text())["kind"] == "DivergenceError"


def test_a_run_that_fails_on_all_ranks_leaves_the_others_alone():
    expected = [("started", "a"), ("done", "a"), ("started", "b"), ("failed", "b"), ("started", "c"), ("done", "c")]
    assert on_two_ranks(end_together, {"b": (0, 1)}, 20.0) == [(expected, "")] * 2


@pytest.mark.parametrize("lone", [0, 1])
def test_a_run_that_fails_on_one_rank_ends_all_of_them_with_its_words(lone):
    """The other one waits in a collective, for as long as that waits for anyone."""
    began = time.monotonic()
    answers = on_two_ranks(end_together, {"b": (lone,)}, 1.0, timeout=600)
    assert time.monotonic() - began < 60
    for events, said in answers:
        assert events == [("started", "a"), ("done", "a"), ("started", "b")]
        assert said.startswith(f"b: rank {lone} has failed")
        assert "Run the same command again to continue" in said
    for rank in {0, lone}:
        assert f"ZeroDivisionError: rank {lone} has no reason" in answers[rank][1]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted where Linux lists them")
def test_no_thread_of_the_collectives_outlives_them():
    """One that is alive when Python ends may abort the process: it holds tensors, which it then lets go of."""
    for names in on_two_ranks(leave_a_model_behind):
        assert not [name for name in names if "gloo" in name]
