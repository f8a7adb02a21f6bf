"""Jobs for the tests of pools. No torch and no pytest here: every worker imports this file anew."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def moody(job: str, on_epoch) -> str:
    """A job that does what its name says."""
    on_epoch({"epoch": 1})
    if job == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if job == "fails":
        raise ZeroDivisionError("no reason")
    return job.upper()


def after_the_last(job: str, on_epoch, folder: Path | None) -> None:
    """``a`` ends only after ``e``, where there is a folder for its sign."""
    if folder is not None and job == "e":
        (folder / "e").touch()
    while folder is not None and job == "a" and not (folder / "e").exists():
        time.sleep(0.05)


def stubborn(job: str, on_epoch) -> None:
    """A job that is busy for a minute, whoever asks it to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    on_epoch({"epoch": 1})
    time.sleep(60)


def obedient(job: str, on_epoch) -> None:
    """A job that goes on until it is asked to stop, and then stops in order, as a run does."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    on_epoch({"epoch": 1})
    while not asked:
        time.sleep(0.02)
    raise KeyboardInterrupt


_seen: list[int] = []


def remember(item: int) -> None:
    _seen.append(item)


def pid_and_seen(item: int, factor: int) -> tuple[int, list[int]]:
    return os.getpid(), [factor * one for one in _seen]


def end_at_2_after_3(item: int) -> None:
    """Remember an item; the process ends at 2, which waits until others have been remembered too."""
    if item == 2:
        time.sleep(1)
        os._exit(1)
    remember(item)


def too_large_beside_others(item: int, _tries: list[int] = []) -> None:  # noqa: B006 - what this process has tried
    """1 needs a second try, 2 fails in every one, 3 breaks its process."""
    _tries.append(item)
    if item == 2 or (item == 1 and _tries.count(1) < 2):
        raise MemoryError(f"{item} is too large")
    if item == 3:
        raise ZeroDivisionError("the device is lost")
    remember(item)
