"""Runs that several ranks train together. How a run ended is said to the others; where they do not agree, all stop.

A rank that fails alone leaves the others in a collective, where they would wait for it until their patience ends. What
ranks tell each other here goes through the store that torchrun keeps, which needs no collective.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import torch.distributed as dist

from ..errors import RunError
from .distributed import TIMEOUT, World
from .signals import Stopper
from .sweep import Event, Teller, Work, attempt

WAIT = 10.0  # seconds in which all ranks must have failed where one has
_ENDS = count()  # runs that have ended in this process: the same number on every rank


class End(NamedTuple):
    """How a run ended on a rank, and whether others had ended it before."""

    kind: str
    words: str
    order: int


def run_together(jobs: Sequence[Any], work: Work, report: Callable[[Event], None], world: World) -> None:
    """One after another, each on all ranks. A run that fails on all of them leaves the others alone.

    Raises:
        RunError: the ranks do not agree on how a run ended; the message has that of the rank that failed first.
    """
    for number, job in enumerate(jobs):
        report(Event(job, "started"))
        tell = Teller(lambda kind, detail, job=job: report(Event(job, kind, detail)))  # type: ignore[misc]
        event = attempt(work, job, tell)
        with Stopper() as stopper:  # torchrun ends the others as soon as one has ended: they must find out why
            _agree(event, world)
        if stopper.asked is not None:
            signal.raise_signal(signal.Signals[stopper.asked])
        report(event)
        if event.kind == "stopped":
            for rest in jobs[number + 1 :]:
                report(Event(rest, "stopped", "not started"))
            return


def _agree(event: Event, world: World) -> None:
    """Return if every rank has ended this run in the same way."""
    store = dist.distributed_c10d._get_default_store()
    key, name = f"encouraging/end/{next(_ENDS)}", getattr(event.job, "name", event.job)
    words = str(event.detail) if event.kind == "failed" else ""
    try:
        end = End(event.kind, words, store.add(f"{key}/order", 1))
        store.set(f"{key}/{world.rank}", json.dumps(end))
        ends = _ends(store, key, world.size)
        whole = len(ends) == world.size and len({end.kind for end in ends.values()}) == 1
        if whole and not store.check([f"{key}/parted"]):
            return
        store.set(f"{key}/parted", "yes")  # whoever ends this run from now on must not go on
    except RuntimeError as error:  # the store is gone, and with it the process that kept it
        raise RunError(f"{name}: the ranks have lost each other ({error}). Run the same command again to continue. "
                       f"{words}") from error
    first = min(ends, key=lambda rank: (ends[rank].kind != "failed", ends[rank].order))
    silent = [str(rank) for rank in range(world.size) if rank not in ends]
    waited = f", and rank {', '.join(silent)} had not ended when the waiting was over" if silent else ""
    how = {"failed": "has failed", "stopped": "was stopped"}.get(ends[first].kind, "has finished alone")
    why = ends[first].words if world.rank in (0, first) else "Its own message says why."
    raise RunError(f"{name}: rank {first} {how}{waited}: all ranks stop. Run the same command again to continue. "
                   f"{why}")


def _ends(store: Any, key: str, size: int) -> dict[int, End]:
    """How every rank ended; those are missing that did not end soon after one that failed."""
    ends: dict[int, End] = {}
    start, pause = time.monotonic(), 0.001
    while True:
        for rank in range(size):
            if rank not in ends and store.check([f"{key}/{rank}"]):
                ends[rank] = End(*json.loads(store.get(f"{key}/{rank}")))
        patience = WAIT if any(end.kind == "failed" for end in ends.values()) else TIMEOUT.total_seconds()
        if len(ends) == size or time.monotonic() - start > patience:
            return ends
        time.sleep(pause)
        pause = min(0.2, pause * 2)
