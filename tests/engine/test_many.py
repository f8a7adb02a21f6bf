"""More than one process: ranks of one run, runs side by side, runs on Ray. The numbers do not change."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from encouraging.data import Clock
from encouraging.engine import Train, execute, load_weights
from encouraging.engine.ray_cluster import run_ray
from encouraging.engine.sweep import Event, _Worker, run_here, run_pool
from encouraging.errors import RunError
from forked import command_on_two_ranks, start_command
from pool_jobs import after_the_last, moody, obedient, stubborn
from task_laws import call
from toy_tasks import Blobs, run_spec

ROOT = Path(__file__).resolve().parents[2]
PYTHONPATH = f"{ROOT / 'src'}{os.pathsep}{ROOT / 'tests'}"
SMALL = ["--set", "train.epochs=2", "--set", "train.milestones=[2]", "--seeds", "2", "--threads", "1"]


def finals(out: Path) -> dict[str, dict[str, float]]:
    return {str(path.relative_to(out).parent): json.loads(path.read_text()) for path in out.rglob("final.json")}


def assert_close(ours: dict[str, float], theirs: dict[str, float]) -> None:
    for key in ("accuracy", "best_accuracy", "test_loss", "train_loss", "steps", "train_accuracy"):
        assert ours[key] == pytest.approx(theirs[key], rel=1e-4), key


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The digits with one process, this one, run by run."""
    out = tmp_path_factory.mktemp("local")
    printed = call("run", "digits", "--arm", "ce", "--arm", "el_1", "--jobs", "1", *SMALL, "--out", out, "--device",
                   "cpu")
    assert "el_1 beats ce: margin.median" in printed
    assert "undecided" in printed  # two seeds decide nothing
    assert str(out / "digits") in printed.replace("\n", "")
    return out


def test_two_ranks_give_the_numbers_of_one_process(local, tmp_path):
    command_on_two_ranks(["run", "digits", "--arm", "el_1", *SMALL, "--out", str(tmp_path), "--device", "cpu"],
                         tmp_path / "printed", timeout=250)
    ours, theirs = finals(tmp_path), finals(local)
    assert len(ours) == 2
    for name, final in ours.items():
        assert_close(final, theirs[name])
        timing = json.loads((tmp_path / name / "timing.json").read_text())
        assert (timing["processes"], timing["samples"], timing["threads"]) == (2, 2400, 1)
        for which in ("last", "best"):
            weights = load_weights(local / name, which)
            for layer, tensor in load_weights(tmp_path / name, which).items():
                torch.testing.assert_close(tensor, weights[layer], rtol=1e-4, atol=1e-5)


def test_ray_gives_the_same_final_numbers_and_resumes(local, tmp_path):
    pytest.importorskip("ray", reason="the sweep extra is not installed")
    shutil.copytree(local / "digits" / "ce", tmp_path / "digits" / "ce")  # done already: must be found so
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("final.json")}
    # With one processor Ray has one worker, which imports torch once for both runs.
    process = start_command(["run", "digits", "--arm", "ce", "--arm", "el_1", "--ray", "local", *SMALL, "--out",
                             str(tmp_path), "--device", "cpu"], tmp_path / "printed",
                            RAY_OVERRIDE_RESOURCES='{"CPU": 1}', PYTHONPATH=PYTHONPATH)
    process.join(280)
    assert process.exitcode == 0, (tmp_path / "printed").read_text()
    assert finals(tmp_path) == finals(local)
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())


def test_runs_side_by_side_give_the_same_final_numbers(local, tmp_path):
    call("run", "digits", "--arm", "ce", "--arm", "el_1", "--jobs", "2", *SMALL, "--out", tmp_path, "--device", "cpu")
    assert finals(tmp_path) == finals(local)


def test_sigterm_ends_with_a_checkpoint_a_message_and_a_way_to_continue(tmp_path):
    process = start_command(["run", "digits", "--arm", "ce", "--jobs", "2", "--seeds", "2", "--set",
                             "train.epochs=100000", "--set", "train.milestones=[90000]", "--threads", "1", "--out",
                             str(tmp_path), "--device", "cpu"], tmp_path / "printed")
    log = tmp_path / "digits" / "ce" / "seed0" / "metrics.jsonl"
    deadline = time.monotonic() + 100
    while not (log.is_file() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    process.join(60)
    printed = (tmp_path / "printed").read_text()
    assert process.exitcode == 130, printed
    assert "2 of 2 runs unfinished" in printed
    assert "checkpoint was written; run the same command again" in " ".join(printed.split())
    assert "digits has no finished run" in printed
    assert list((tmp_path / "digits" / "ce" / "seed0").glob("checkpoint-*.json"))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1", "127.0.0.1:99999999"])
def test_a_cluster_that_does_not_answer_is_named_at_once(address):
    pytest.importorskip("ray", reason="the sweep extra is not installed")
    started = time.monotonic()
    with pytest.raises(RunError, match="nothing answers there"):
        run_ray(["a"], moody, print, address)
    assert time.monotonic() - started < 11


def test_an_address_that_is_none_is_answered_with_what_was_expected():
    pytest.importorskip("ray", reason="the sweep extra is not installed")
    with pytest.raises(RunError, match=r"--ray nowhere: Invalid address .*\. Expected the address of a run"):
        run_ray(["a"], moody, print, "nowhere")


class SlowCluster(ModuleType):
    """Stands in for the ray package: its tasks write a checkpoint for a while after they are cancelled."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.cancelled: list[str] = []
        self.waited = 0

    def is_initialized(self) -> bool:
        return True

    def remote(self, **resources: float) -> Callable[[Any], Any]:
        return lambda function: SimpleNamespace(remote=lambda work, job: f"ref {job}")

    def cancel(self, ref: str) -> None:
        self.cancelled.append(ref)

    def wait(self, refs: list[str], timeout: float) -> tuple[list[str], list[str]]:
        self.waited += 1
        if self.waited == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return (refs[:1], refs[1:]) if self.waited > 5 else ([], refs)

    def get(self, ref: str) -> tuple[str, str]:
        return "stopped", f"{ref} has written its checkpoint"


def test_ctrl_c_cancels_every_task_of_ray_once(monkeypatch):
    """A second cancel would be a second SIGINT, which ends a run before its checkpoint is written."""
    cluster, events = SlowCluster(), []
    monkeypatch.setitem(sys.modules, "ray", cluster)
    run_ray(["a", "b", "ab"], moody, events.append, "local", names=lambda job: (job, [job[:-1]]))
    assert cluster.cancelled == ["ref a", "ref b"]
    assert [(event.job, event.kind, event.detail) for event in events] == [
        ("ab", "stopped", "not started"), ("a", "stopped", "ref a has written its checkpoint"),
        ("b", "stopped", "ref b has written its checkpoint")]


def test_whatever_happens_to_one_job_leaves_the_others_alone():
    events: list[Event] = []
    run_pool(["fine", "dies", "fails", "good"], moody, events.append, workers=2)
    last = {event.job: event for event in events if event.last}
    assert {job: event.kind for job, event in last.items()} == {
        "fine": "done", "dies": "failed", "fails": "failed", "good": "done"}
    assert last["good"].detail == "GOOD"
    assert "code -9" in last["dies"].detail
    assert "ZeroDivisionError: no reason" in last["fails"].detail


def test_a_worker_that_dies_when_its_last_job_is_over_does_not_end_the_others():
    """A signal that was meant for its job comes too late: whoever waits for the pool still gets all results."""
    worker = _Worker(moody)
    worker.process.kill()
    worker.process.join()
    with mock.patch.object(worker.process, "is_alive", return_value=True):  # as it still was when it was asked
        worker.dismiss()
    worker = _Worker(moody)
    worker.process.kill()
    worker.process.join()
    worker.give("fine")
    assert [event.kind for event in worker.news()] == ["failed"]


@pytest.mark.skipif(os.name == "nt", reason="has no signal masks")
def test_ctrl_c_is_not_heard_by_workers_that_are_still_starting():
    """A terminal sends it to every process; the parent stops its workers by SIGTERM."""
    events: list[Event] = []

    def interrupt(event: Event) -> None:
        events.append(event)
        for process in multiprocessing.active_children() if event.kind == "started" else ():
            os.kill(process.pid, signal.SIGINT)

    run_pool(["fine", "good"], moody, interrupt, workers=2)
    assert [event.kind for event in events if event.last] == ["done", "done"]


def test_a_third_ctrl_c_ends_workers_that_do_not_stop():
    """The first asks runs to stop, the second is heard by the pool, which then waits for its workers to end."""
    told: list[threading.Thread] = []

    def press() -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.7)

    def interrupt(event: Event) -> None:
        if event.kind == "epoch" and len(told) < 2:
            told.append(threading.Thread(target=press))
            if len(told) == 2:
                told[-1].start()

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_pool(["one", "two"], stubborn, interrupt, workers=2)
    told[-1].join()
    assert time.monotonic() - before < 30
    assert not multiprocessing.active_children()


@pytest.mark.timeout(120)  # it waited for ever for workers that waited for another job
@pytest.mark.parametrize("kind", ["started", "epoch"])
def test_an_error_of_the_display_ends_the_runs_in_order(kind):
    """As where the output is closed: ``encouraging run digits | head``."""
    def closed(event: Event) -> None:
        if event.kind == kind:
            raise BrokenPipeError
    with pytest.raises(BrokenPipeError):
        run_pool(["one", "two", "three"], obedient, closed, workers=2)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_waits_for_the_one_it_needs_and_others_overtake_it(workers, tmp_path):
    """``ab`` needs ``a``, and ``abc`` needs ``ab``."""
    events: list[Event] = []
    jobs = ["ab", "abc", "a", "d", "e"]
    work = partial(after_the_last, folder=tmp_path if workers > 1 else None)
    run_pool(jobs, work, events.append, workers, names=lambda job: (job, [job[:-1]]))
    order = [(event.kind, event.job) for event in events]
    assert sorted(job for kind, job in order if kind == "done") == sorted(jobs)
    assert order.index(("done", "a")) < order.index(("started", "ab"))
    assert order.index(("done", "ab")) < order.index(("started", "abc"))
    assert [job for kind, job in order if kind == "started"][:3] == (["a", "ab", "abc"] if workers == 1
                                                                      else ["a", "d", "e"])


def test_one_after_another_it_is_the_same():
    events: list[Event] = []
    run_here(["fine", "fails", "good"], moody, events.append)
    assert [event.kind for event in events if event.last] == ["done", "failed", "done"]


def test_ranks_take_shares_that_make_the_batch_whole(tmp_path):
    task = Blobs(batch_size=16)
    whole = [index for *_, index in _served(task, 0, 1)]
    shares = [[index for *_, index in _served(task, rank, 2)] for rank in (0, 1)]
    assert [sorted(a + b) for a, b in zip(*shares, strict=True)] == [sorted(batch) for batch in whole]


def _served(task: Blobs, rank: int, world: int) -> list[tuple[int, int, list[int]]]:
    task.served.clear()
    list(task.batches(Clock(), 0, rank, world))
    return list(task.served)


def test_the_thread_count_is_recorded(tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    execute(run_spec(tmp_path, stages=(Train(epochs=1, lr=0.1),)))
    torch.set_num_threads(before)
    assert json.loads((tmp_path / "config.json").read_text())["environment"]["threads"] == 1


LONE = '''
import os
from encouraging.tasks.image import ImageTask

class Lone(ImageTask):
    """Rank 1 meets something in the second run that rank 0 does not."""
    def loss(self, *batch):
        if os.environ["RANK"] == "1" and self.spec.seed == 1:
            raise OSError("this disk is broken")
        return super().loss(*batch)
'''


def test_torchrun_trains_until_a_rank_fails_alone_which_ends_all_runs_within_seconds_and_is_heard(local, tmp_path):
    (tmp_path / "lone.py").write_text(LONE)
    text = (resources.files("encouraging.recipes") / "digits.toml").read_text()
    (tmp_path / "lone.toml").write_text(text.replace('task  = "image"', 'task = "lone.py:Lone"'))
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "encouraging",
         "run", tmp_path / "lone.toml", "--arm", "ce", *SMALL, "--seeds", "3", "--out", tmp_path / "out",
         "--device", "cpu"],
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "OMP_NUM_THREADS": "1", "TERM": "dumb", "COLUMNS": "200",
             "PYTHONFAULTHANDLER": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        printed, _ = process.communicate(timeout=150)  # most of it to start them; a collective waits for 10 minutes
    finally:
        process.kill()
    assert process.returncode != 0
    assert "ce seed 1: rank 1 has failed" in printed
    assert "OSError: this disk is broken" in printed
    (first, final), = finals(tmp_path / "out").items()
    assert first == "lone/ce/seed0"
    assert_close(final, finals(local)["digits/ce/seed0"])
