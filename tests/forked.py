"""Processes that have their imports when they start: they are forked from one that has done them."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import torch.distributed as dist


def forkserver() -> ForkServerContext:
    """One list for all callers, because only that of the first one counts."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["task_laws", "two_ranks", "split_vocabulary"])
    return context


def start_command(words: Sequence[str], log: Path, **environment: str) -> ForkServerProcess:
    """Start a command of ``encouraging`` that prints into ``log``. Its own workers are forked in the same way."""
    process = forkserver().Process(target=_command, args=(list(words), log, environment))
    process.start()
    return process


class ForkedPython:
    """``python`` with these words, a script or ``-m`` and a module first: what it prints and how it ends."""

    def __init__(self, *words: object, cwd: Path | None = None, **environment: str) -> None:
        self.words = list(map(str, words))
        self.folder = tempfile.TemporaryDirectory()
        self.files = [Path(self.folder.name, name) for name in ("stdout", "stderr")]
        self.process = forkserver().Process(target=_python, args=(self.words, cwd, environment, self.files))
        self.process.start()

    def wait(self, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        self.process.join(timeout)
        self.process.kill()
        self.process.join()
        with self.folder:
            printed = [file.read_text() for file in self.files]
        return subprocess.CompletedProcess(self.words, self.process.exitcode or 0, *printed)


def run_python(*words: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return ForkedPython(*words, cwd=cwd, **environment).wait()


def _python(words: list[str], cwd: Path | None, environment: Mapping[str, str], files: Sequence[Path]) -> None:
    for number, path in enumerate(files, 1):
        with path.open("w") as file:
            os.dup2(file.fileno(), number)
    os.environ |= environment
    if cwd is not None:
        os.chdir(cwd)
    sys.argv = words[1:] if words[0] == "-m" else words
    if words[0] == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")


def command_on_two_ranks(words: Sequence[str], log: Path, timeout: float) -> str:
    """Run a command of ``encouraging`` on two ranks, as torchrun does it: here is the store, and once a rank has failed
    the other is asked to end. What they printed; the assertion that neither has failed has it too."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port),
             "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    processes = [start_command(words, log, RANK=rank, LOCAL_RANK=rank, **world) for rank in ("0", "1")]
    end = time.monotonic() + timeout
    while any(process.is_alive() for process in processes) and time.monotonic() < end:
        if any(process.exitcode for process in processes):
            for process in processes:
                process.terminate()
                process.join(30)
            break
        time.sleep(0.02)
    for process in processes:
        process.kill()
        process.join()
    printed = log.read_text()
    assert [process.exitcode for process in processes] == [0, 0], printed
    return printed


def _command(words: list[str], log: Path, environment: Mapping[str, str]) -> None:
    from encouraging.cli import main

    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ |= {"OMP_NUM_THREADS": "1", "TERM": "dumb", "COLUMNS": "200", **environment}
    get_context = multiprocessing.get_context
    multiprocessing.get_context = (  # type: ignore[assignment]
        lambda method=None: forkserver() if method == "spawn" else get_context(method))
    sys.argv = ["encouraging", *words]
    main()
