"""Many runs: one after another, or side by side in processes of this machine. ``ray_cluster.py`` has other machines.

A job is any object that can be pickled; ``work(job, on_epoch)`` carries it out. An error ends its own job only. Jobs
start in their order, but a job that needs another one waits until that has ended, and later jobs may start before it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from .signals import Interrupted, Stopper

Work = Callable[[Any, Callable[[dict[str, Any]], None]], Any]
Names = Callable[[Any], tuple[Hashable, Collection[Hashable]]]  # a job's own name, and the names of jobs that it needs


@dataclass(frozen=True)
class Event:
    """Something that happened to a job: ``started``, ``epoch`` (with its line), ``progress`` (within an epoch),
    ``done``, ``failed``, ``stopped``."""

    job: Any
    kind: str
    detail: Any = None

    @property
    def last(self) -> bool:
        return self.kind in ("done", "failed", "stopped")


@dataclass(frozen=True)
class Teller:
    """Called by a job with the line of every epoch; ``progress`` is called with the progress within an epoch."""

    send: Callable[[str, dict[str, Any]], None]

    def __call__(self, line: dict[str, Any]) -> None:
        self.send("epoch", line)

    def progress(self, detail: dict[str, Any]) -> None:
        self.send("progress", detail)


def attempt(work: Work, job: Any, on_epoch: Callable[[dict[str, Any]], None]) -> Event:
    """Carry out a job and return its outcome as an event."""
    try:
        return Event(job, "done", work(job, on_epoch))
    except Interrupted as event:
        return Event(job, "stopped", str(event))
    except KeyboardInterrupt:
        return Event(job, "stopped", "interrupted before a checkpoint could be written")
    except ValueError as error:  # messages of the package's own errors need no traceback
        own = type(error).__module__.startswith("encouraging")
        return Event(job, "failed", str(error) if own else traceback.format_exc())
    except Exception:
        return Event(job, "failed", traceback.format_exc())


def independent(job: Any) -> tuple[Hashable, Collection[Hashable]]:
    """The ``names`` of jobs that do not need each other."""
    return None, ()


def take_ready(waiting: list[Any], running: Iterable[Any], names: Names) -> Any | None:
    """Remove and return the first waiting job that needs no unfinished job."""
    unfinished = {names(job)[0] for job in (*running, *waiting)}
    for number, job in enumerate(waiting):
        if unfinished.isdisjoint(names(job)[1]):
            return waiting.pop(number)
    return None


def report_not_started(jobs: Iterable[Any], report: Callable[[Event], None]) -> None:
    for job in jobs:
        report(Event(job, "stopped", "not started"))


def run_here(jobs: Sequence[Any], work: Work, report: Callable[[Event], None]) -> None:
    """Run jobs one after another in this process; a job must come after those that it needs."""
    for number, job in enumerate(jobs):
        report(Event(job, "started"))
        tell = Teller(lambda kind, detail, job=job: report(Event(job, kind, detail)))  # type: ignore[misc]
        event = attempt(work, job, tell)
        report(event)
        if event.kind == "stopped":
            report_not_started(jobs[number + 1 :], report)
            return


def run_pool(jobs: Sequence[Any], work: Work, report: Callable[[Event], None], workers: int,
             names: Names = independent) -> None:
    """Run jobs side by side in new processes. If a worker dies, only its job fails, and a new worker replaces it."""
    waiting = list(jobs)
    team: list[_Worker] = []
    stopping = False
    with Stopper() as stopper:
        try:
            while waiting or any(worker.job is not None for worker in team):
                if stopper.asked and not stopping:
                    stopping = True
                    report_not_started(waiting, report)
                    waiting.clear()
                    for worker in team:
                        worker.stop()
                while (idle := next((worker for worker in team if worker.job is None), None)) or len(team) < workers:
                    job = take_ready(waiting, (worker.job for worker in team if worker.job is not None), names)
                    if job is None:
                        break
                    if idle is None:
                        team.append(idle := _Worker(work))
                    idle.give(job)
                    report(Event(job, "started"))
                wait([handle for worker in team for handle in (worker.pipe, worker.process.sentinel)], timeout=0.5)
                for worker in list(team):
                    for event in worker.news():
                        report(event)
                    if not worker.process.is_alive() and worker.job is None:
                        team.remove(worker)
        finally:
            _dismiss(team)


def _dismiss(team: Sequence[_Worker]) -> None:
    """End all workers in order, or at once if Ctrl-C is pressed meanwhile: their runs can be resumed."""
    try:
        for worker in team:
            worker.dismiss()
        for worker in team:
            worker.process.join()
    except KeyboardInterrupt:
        for worker in team:
            worker.process.kill()
        for worker in team:
            worker.process.join()
        raise
    finally:
        for worker in team:
            worker.pipe.close()


class _Worker:
    def __init__(self, work: Work) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA and threads do not survive a fork
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=False)
        with _block_sigint():
            self.process.start()
        theirs.close()
        self.job: Any = None
        self.stopping = False

    def give(self, job: Any) -> None:
        self.job = job
        with suppress(OSError):  # it died after its last job: news() will report that
            self.pipe.send(job)

    def news(self) -> Iterator[Event]:
        """The events that the worker has sent, or that it has died."""
        try:
            while self.job is not None and self.pipe.poll():
                kind, detail = self.pipe.recv()
                event = Event(self.job, kind, detail)
                if event.last:
                    self.job = None
                yield event
        except (EOFError, OSError):
            job, self.job = self.job, None
            self.process.join()
            if self.stopping:
                yield Event(job, "stopped", "before its first step")
                return
            yield Event(job, "failed", f"its process ended with code {self.process.exitcode} (a negative code is a "
                                       "signal; -9 is often a lack of memory). Run again to continue from its "
                                       "checkpoint.")

    def stop(self) -> None:
        if self.job is not None and self.process.pid is not None and self.process.is_alive():
            self.stopping = True
            os.kill(self.process.pid, signal.SIGTERM)

    def dismiss(self) -> None:
        if self.process.is_alive():
            if self.job is not None:
                self.process.terminate()
            with suppress(OSError):  # it died just now, for example from a signal after its job had ended
                self.pipe.send(None)  # also to a busy one, which asks for another job when it has stopped in order


@contextmanager
def _block_sigint() -> Iterator[None]:
    """Processes that start in this context ignore Ctrl-C, which a terminal sends to all of them, while they import
    torch: otherwise they would die with a traceback before the parent could stop them in order."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it together with a process would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, work: Work) -> None:
    """The main loop of a worker. Between jobs the parent decides when to stop; a run handles signals itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        while (job := pipe.recv()) is not None:
            event = attempt(work, job, Teller(lambda kind, detail: pipe.send((kind, detail))))
            pipe.send((event.kind, event.detail))
    except (EOFError, OSError):  # the parent is gone; runs are resumable
        return
