"""A run that was killed ends with the same bits as one that never was."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from encouraging.engine import Interrupted, RunDir, StagePlan, Train, execute, train, writer
from encouraging.engine.checkpoint import load_checkpoint, read_checkpoint
from encouraging.engine.optim import pack, unpack
from encouraging.errors import CheckpointError, DivergenceError, RunError
from forked import forkserver
from toy_tasks import RICH_STAGES, Blobs, assert_same_run, run_slowly, run_spec

KILLS = 10


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("unbroken")
    execute(run_spec(folder))
    return folder


def holds(lock: Path, pid: int | None) -> bool:
    return lock.exists() and lock.read_text() == str(pid)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("lock")}


def test_killed_at_ten_random_instants_it_ends_with_the_same_bits(tmp_path, unbroken):
    context = forkserver()
    rng, kills = random.Random(0), 0
    while kills < KILLS:
        process = context.Process(target=run_slowly, args=(str(tmp_path), 0.05))
        process.start()
        while not holds(tmp_path / "lock.pid", process.pid) and process.is_alive():  # importing torch does not count
            time.sleep(0.005)
        process.join(rng.uniform(0.0, 0.4))
        assert process.is_alive(), "the run ended before it had been killed ten times: make it slower"
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        kills += 1
    execute(run_spec(tmp_path))
    assert json.loads((tmp_path / "timing.json").read_text())["resumed"] >= 3, "most attempts came to nothing"
    assert_same_run(tmp_path, unbroken)


@pytest.mark.parametrize("step", [1, 9, 31, 34])
def test_stopped_by_a_signal_in_any_stage_it_continues_exactly(tmp_path, unbroken, step):
    class Stops(Blobs):
        def loss(self, model, batch, objective):
            self.count = getattr(self, "count", 0) + 1
            if self.count == 2 * step:
                signal.raise_signal(signal.SIGTERM)
            return super().loss(model, batch, objective)

    with pytest.raises(Interrupted, match=r"stopped by SIGTERM .* run the same command again"):
        execute(run_spec(tmp_path, Stops()))
    assert not RunDir(tmp_path).done
    execute(run_spec(tmp_path))
    assert_same_run(tmp_path, unbroken)


@pytest.mark.parametrize("step", [3, 4, 5, 31, 32, 33, 39, 59, 60])
def test_it_resumes_exactly_from_the_checkpoint_of_any_step(tmp_path, unbroken, monkeypatch, step):
    """Also from those after the last update of an epoch (4), of a stage (32) and of the run (60)."""
    real = writer.write_checkpoint

    def save_and_die(folder, number, plain, rest):
        real(folder, number, plain, rest)
        if number == step:
            raise KeyboardInterrupt

    monkeypatch.setattr(writer, "write_checkpoint", save_and_die)
    with pytest.raises(KeyboardInterrupt):
        execute(run_spec(tmp_path))
    monkeypatch.undo()
    execute(run_spec(tmp_path))
    assert_same_run(tmp_path, unbroken)


def stop_after(folder: Path, steps: int) -> None:
    class Stops(Blobs):
        def batches(self, *where):
            for number, batch in enumerate(super().batches(*where)):
                if number == steps:
                    signal.raise_signal(signal.SIGINT)
                yield batch

    with pytest.raises(Interrupted):
        execute(run_spec(folder, Stops()))


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
def test_one_flipped_byte_is_named_and_the_checkpoint_before_it_is_used(tmp_path, unbroken, suffix):
    stop_after(tmp_path, 4)
    newest = sorted(tmp_path.glob(f"checkpoint-*.{suffix}"))[-1]
    content = bytearray(newest.read_bytes())
    at = content.index(b'"step": ') + 8 if suffix == "json" else len(content) // 2
    content[at] ^= 1
    newest.write_bytes(content)
    said: list[str] = []
    execute(run_spec(tmp_path, say=said.append))
    assert len(said) == 1
    assert "digest does not match" in said[0]
    assert "previous checkpoint" in said[0]
    assert_same_run(tmp_path, unbroken)


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
def test_a_truncated_checkpoint_is_named_and_the_one_before_it_is_used(tmp_path, unbroken, suffix):
    stop_after(tmp_path, 4)
    newest = sorted(tmp_path.glob(f"checkpoint-*.{suffix}"))[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    said: list[str] = []
    execute(run_spec(tmp_path, say=said.append))
    assert "previous checkpoint" in said[0]
    assert_same_run(tmp_path, unbroken)


def test_with_every_checkpoint_damaged_nothing_is_overwritten(tmp_path):
    stop_after(tmp_path, 4)
    for path in tmp_path.glob("checkpoint-*.safetensors"):
        path.write_bytes(b"")
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match="No other checkpoint is left"):
        execute(run_spec(tmp_path))
    assert before == contents(tmp_path)


def test_a_directory_of_another_run_is_refused_and_left_alone(tmp_path, unbroken):
    shutil.copytree(unbroken, tmp_path / "run")
    before = contents(tmp_path / "run")
    other = (StagePlan(RICH_STAGES[0].train.model_copy(update={"lr": 0.2})), RICH_STAGES[1])
    with pytest.raises(RunError, match=r"holds another run: there train.1.lr = 0.1, here 0.2.*left as it is"):
        execute(run_spec(tmp_path / "run", stages=other))
    assert before == contents(tmp_path / "run")


def test_a_directory_in_which_nothing_was_trained_takes_other_settings(tmp_path):
    """A run that failed before its first epoch must not stand in the way of the corrected command."""
    def refuse():
        raise RunError("no data")

    with pytest.raises(RunError, match="no data"):
        execute(replace(run_spec(tmp_path), make_task=refuse))
    other = (StagePlan(RICH_STAGES[0].train.model_copy(update={"lr": 0.2})), RICH_STAGES[1])
    execute(run_spec(tmp_path, stages=other))
    assert RunDir(tmp_path).read_config()["asked"]["train"][0]["lr"] == 0.2
    with pytest.raises(RunError, match="holds another run"):
        execute(run_spec(tmp_path))


def test_a_checkpoint_from_another_run_is_refused(tmp_path):
    stop_after(tmp_path / "a", 2)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        load_checkpoint(tmp_path / "a", "another", print)


def test_only_the_two_newest_checkpoints_stay_and_hold_the_best(unbroken):
    steps = sorted(int(path.stem.split("-")[1]) for path in unbroken.glob("checkpoint-*.json"))
    assert len(steps) == 2
    assert len(list(unbroken.glob("checkpoint-*"))) == 4
    assert any(name.startswith("best.") for name in read_checkpoint(unbroken, steps[-1]).tensors)


def test_two_processes_on_one_directory_the_second_is_refused(tmp_path):
    with RunDir(tmp_path).lock(), pytest.raises(RunError, match="in use by another process"):
        execute(run_spec(tmp_path))


def test_a_finished_run_is_found_done_and_not_trained_again(unbroken):
    task = Blobs()
    assert execute(run_spec(unbroken, task))["epochs"] == 4
    assert task.served == []


def test_a_full_disk_ends_the_run_in_words_and_keeps_the_last_checkpoint(tmp_path, unbroken, monkeypatch):
    stop_after(tmp_path, 3)
    kept = sorted(tmp_path.glob("checkpoint-*"))
    real = os.fsync

    def full(handle):
        if ".safetensors." in os.readlink(f"/proc/self/fd/{handle}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="the disk is full"):
        execute(run_spec(tmp_path))
    assert sorted(tmp_path.glob("checkpoint-*")) == kept
    monkeypatch.undo()
    execute(run_spec(tmp_path))
    assert_same_run(tmp_path, unbroken)


@pytest.mark.parametrize("check_every", [1, 500])
def test_a_nan_names_update_epoch_and_batch_and_leaves_the_checkpoint_before_it(tmp_path, monkeypatch, check_every):
    """Also with the interval of a GPU, where reading the loss waits: a checkpoint is written more often than that."""
    monkeypatch.setattr(train, "CHECK_EVERY_ON_CPU", check_every)
    plan = (Train(epochs=3, lr=0.1, batch_size=16, checkpoint_seconds=0),)
    with pytest.raises(DivergenceError, match=r"at update 12: batch 5 of 7 in epoch 2"):
        execute(run_spec(tmp_path, Blobs(poison=4), plan))
    assert load_checkpoint(tmp_path, None, print).step == 11


def test_a_huge_loss_counts_as_divergence(tmp_path):
    plan = (Train(epochs=3, lr=0.1, batch_size=16, diverge_above=1e-9),)
    with pytest.raises(DivergenceError, match="larger than 1e-09 at update 1"):
        execute(run_spec(tmp_path, stages=plan))


def test_a_resumed_run_takes_the_thread_count_it_was_started_with(tmp_path):
    stop_after(tmp_path, 2)
    torch.set_num_threads(2)
    said: list[str] = []
    execute(run_spec(tmp_path, say=said.append))
    assert "continues with 1 threads" in said[0]
    assert torch.get_num_threads() == 1


def test_what_an_optimiser_has_gathered_comes_back_in_the_memory_format_of_its_parameter():
    """A checkpoint holds contiguous tensors; torch updates many tensors at once only where their strides agree."""
    param = torch.nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last))
    before, after = (torch.optim.AdamW([param]) for _ in range(2))
    param.grad = torch.randn_like(param)
    before.step()
    tensors, numbers = pack(before)
    unpack(after, {name: tensor.contiguous() for name, tensor in tensors.items()}, numbers)
    for key in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(after.state[param][key], before.state[param][key])
        assert after.state[param][key].stride() == param.stride()
    assert after.state[param]["step"] == 1
