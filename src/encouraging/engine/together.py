"""Runs that several ranks train together. Each rank tells the others how a run ended; if they disagree, all stop.

If one rank fails alone, the others are left in a collective until it times out. So ranks exchange how a run ended
through torchrun's store, which needs no collective.
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
from .sweep import Event, Teller, Work, attempt, report_not_started

WAIT = 10.0  # seconds within which all ranks must fail if one has failed
_ENDS = count()  # counts the runs that have ended in this process: the same number on every rank


class End(NamedTuple):
    """How a run ended on a rank: the kind of its event, an error message, and its position in the order of ends."""

    kind: str
    message: str
    order: int


def run_together(jobs: Sequence[Any], work: Work, report: Callable[[Event], None], world: World) -> None:
    """Run jobs one after another, each on all ranks. The next one starts even if a run has failed on all ranks.

    Raises:
        RunError: the ranks do not agree on how a run ended; the message includes that of the rank that failed first.
    """
    for number, job in enumerate(jobs):
        report(Event(job, "started"))
        tell = Teller(lambda kind, detail, job=job: report(Event(job, kind, detail)))  # type: ignore[misc]
        event = attempt(work, job, tell)
        with Stopper() as stopper:  # torchrun stops the others as soon as one has ended: let them find out why first
            _agree(event, world)
        if stopper.asked is not None:
            signal.raise_signal(signal.Signals[stopper.asked])
        report(event)
        if event.kind == "stopped":
            report_not_started(jobs[number + 1 :], report)
            return


def _agree(event: Event, world: World) -> None:
    """Return if every rank has ended this run in the same way; otherwise raise a RunError on every rank."""
    store = dist.distributed_c10d._get_default_store()
    key, name = f"encouraging/end/{next(_ENDS)}", getattr(event.job, "name", event.job)
    message = str(event.detail) if event.kind == "failed" else ""
    try:
        end = End(event.kind, message, store.add(f"{key}/order", 1))
        store.set(f"{key}/{world.rank}", json.dumps(end))
        ends = _wait_for_ends(store, key, world.size)
        agreed = len(ends) == world.size and len({end.kind for end in ends.values()}) == 1
        if agreed and not store.check([f"{key}/disagreed"]):
            return
        store.set(f"{key}/disagreed", "yes")  # a rank that ends this run later must stop too
    except RuntimeError as error:  # the process that kept the store has ended
        raise RunError(f"{name}: the ranks have lost the connection to each other ({error}). Run the same command "
                       f"again to continue. {message}") from error
    first = min(ends, key=lambda rank: (ends[rank].kind != "failed", ends[rank].order))
    missing = [str(rank) for rank in range(world.size) if rank not in ends]
    timed_out = f", and rank {', '.join(missing)} did not end within the time-out" if missing else ""
    how = {"failed": "has failed", "stopped": "was stopped"}.get(ends[first].kind, "has finished alone")
    why = ends[first].message if world.rank in (0, first) else "Its own message says why."
    raise RunError(f"{name}: rank {first} {how}{timed_out}: all ranks stop. Run the same command again to continue. "
                   f"{why}")


def _wait_for_ends(store: Any, key: str, size: int) -> dict[int, End]:
    """How every rank ended; ranks are missing that did not end soon after one that failed."""
    ends: dict[int, End] = {}
    start, pause = time.monotonic(), 0.001
    while True:
        for rank in range(size):
            if rank not in ends and store.check([f"{key}/{rank}"]):
                ends[rank] = End(*json.loads(store.get(f"{key}/{rank}")))
        timeout = WAIT if any(end.kind == "failed" for end in ends.values()) else TIMEOUT.total_seconds()
        if len(ends) == size or time.monotonic() - start > timeout:
            return ends
        time.sleep(pause)
        pause = min(0.2, pause * 2)
