"""Signals, restarts and layers where nobody expects them: a run stopped anywhere ends as an unbroken one does."""

from __future__ import annotations

import math
import signal

import pytest
import torch
from torch import nn

from encouraging.engine import Interrupted, RunDir, StagePlan, Train, execute, load_weights
from encouraging.engine.random_state import random_tensors, restore_torch
from encouraging.engine.sync_norm import share_batch_norms
from encouraging.errors import RunError
from toy_tasks import CPU, PARTS, Blobs, assert_same_run, run_spec
from two_ranks import normed_until, on_two_ranks, statless

SYNCED = Train(epochs=2, lr=0.1, batch_size=16, sync_norm=True)


def stopping(evaluation):
    """The toy task with a signal in one of its evaluations, counted from 1."""
    class Stops(Blobs):
        evaluations = 0

        def predict(self, *how):
            self.evaluations += 1
            if self.evaluations == evaluation:
                signal.raise_signal(signal.SIGTERM)
            yield from super().predict(*how)

    return Stops()


@pytest.mark.parametrize("evaluation", range(1, 6))
@pytest.mark.parametrize("steps", [5, 7, 10])
def test_a_run_of_so_many_updates_may_be_stopped_in_any_of_its_evaluations(tmp_path, steps, evaluation):
    """An epoch has 7 updates. The last ones are done then, but not yet evaluated."""
    plans = (Train(max_steps=steps, lr=0.1, batch_size=16),
             StagePlan(Train(max_steps=4, lr=0.1, batch_size=16), **PARTS))
    execute(run_spec(tmp_path / "whole", Blobs(), plans))
    task = stopping(evaluation)
    try:
        execute(run_spec(tmp_path / "cut", task, plans))
    except Interrupted:
        execute(run_spec(tmp_path / "cut", task, plans))
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


def test_the_random_state_of_a_later_rank_is_put_back():
    """A checkpoint holds the states of all ranks, stacked."""
    state = torch.get_rng_state()
    drawn = torch.rand(3)
    restore_torch({"rng.cpu": torch.stack([torch.zeros_like(state), state])[1]}, CPU)
    torch.testing.assert_close(torch.rand(3), drawn)
    assert random_tensors(CPU)["rng.cpu"].shape == state.shape


@pytest.mark.parametrize("plans", [
    (SYNCED, StagePlan(SYNCED, reset=("head",))),
    (SYNCED.model_copy(update={"sync_norm": False}), StagePlan(SYNCED, **PARTS)),
    (SYNCED.model_copy(update={"ema": 0.5, "accumulate": 2}),),
], ids=["in both stages", "in the second stage", "averaged and accumulated"])
def test_two_ranks_resume_with_the_numbers_of_two_that_were_not_stopped(tmp_path, plans):
    plans = tuple(plan if isinstance(plan, StagePlan) else StagePlan(plan) for plan in plans)
    assert on_two_ranks(normed_until, tmp_path / "whole", plans, None) == ["done"] * 2
    assert on_two_ranks(normed_until, tmp_path / "cut", plans, (len(plans), 2, 3)) == ["stopped"] * 2
    assert on_two_ranks(normed_until, tmp_path / "cut", plans, None) == ["done"] * 2
    assert (tmp_path / "cut/final.json").read_bytes() == (tmp_path / "whole/final.json").read_bytes()
    ours, theirs = load_weights(tmp_path / "cut"), load_weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_batch_norms_do_not_stop_being_shared_between_stages(tmp_path):
    """A resumed run would start with its own where an unbroken one still shares them."""
    plans = (SYNCED, SYNCED.model_copy(update={"sync_norm": False}))
    with pytest.raises(RunError, match=r"stage 2 has train.sync_norm = false after a stage with true"):
        execute(run_spec(tmp_path, Blobs(), plans))


def test_a_shared_batch_norm_without_statistics_evaluates_alone(tmp_path):
    """Ranks predict as many pieces as they have: a collective in one of them would wait for ever."""
    first, second = on_two_ranks(statless, tmp_path, SYNCED)
    assert first == second
    assert first["epochs"] == 2


def test_a_batch_norm_that_does_more_is_not_replaced_by_one_that_does_not():
    class WithActivation(nn.BatchNorm2d):
        def forward(self, input):
            return super().forward(input).relu()

    class OnlyAName(nn.BatchNorm2d):
        pass

    with pytest.raises(RunError, match=r"train.sync_norm: the layer 1 of the model is a WithActivation"):
        share_batch_norms(nn.Sequential(nn.Conv2d(1, 4, 3), WithActivation(4)), CPU)
    share_batch_norms(nn.Sequential(nn.Conv2d(1, 4, 3), OnlyAName(4)), CPU)


def test_an_epoch_without_a_number_is_never_the_best(tmp_path):
    class Undefined(Blobs):
        def evaluate(self, predictions):
            self.number = getattr(self, "number", 0) + 1
            return {**super().evaluate(predictions), "accuracy": math.nan if self.number == 1 else 10.0 * self.number}

    final = execute(run_spec(tmp_path, Undefined(), (Train(epochs=3, lr=0.1, batch_size=16, conclude_on="best"),)))
    assert (final["best_epoch"], final["best_accuracy"]) == (3, 30.0)
    assert len(RunDir(tmp_path).metrics()) == 3


def test_a_stage_in_which_nothing_learns_is_refused(tmp_path):
    plan = StagePlan(Train(epochs=1, lr=0.1, batch_size=16), freeze=("body", "head"))
    with pytest.raises(RunError, match="nothing in the model learns"):
        execute(run_spec(tmp_path, Blobs(), (plan,)))
