"""Processes that have their imports when they start: they are forked from one that has done them."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

import torch.distributed as dist


def forkserver() -> ForkServerContext:
    """One list for all callers, because only that of the first one counts."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["task_laws", "two_ranks", "split_vocabulary"])
    return context


def command_on_two_ranks(words: Sequence[str], log: Path, timeout: float) -> str:
    """Run a command of ``encouraging`` on two ranks, as torchrun does it: here is the store, and once a rank has failed
    the other is asked to end. What they printed; the assertion that neither has failed has it too."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = [forkserver().Process(target=_command, args=(rank, store.port, list(words), log)) for rank in (0, 1)]
    for process in processes:
        process.start()
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


def _command(rank: int, port: int, words: list[str], log: Path) -> None:
    from encouraging.cli import main

    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True",
                   "TORCHELASTIC_RESTART_COUNT": "0", "OMP_NUM_THREADS": "1", "TERM": "dumb", "COLUMNS": "200"}
    sys.argv = ["encouraging", *words]
    main()
