"""Many runs on a Ray cluster; jobs, events and the order of jobs are those of ``sweep.py``."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import RunError
from .signals import Stopper
from .sweep import Event, Names, Work, attempt, independent, report_not_started, take_ready

_EXPECTED = "Expected the address of a running cluster, as `ray start --head` prints it, or local."


def run_ray(jobs: Sequence[Any], work: Work, report: Callable[[Event], None], address: str, *, cpus: float = 1,
            gpus: float = 0, names: Names = independent) -> None:
    """Run jobs on a Ray cluster (``local`` starts one). All machines must see the same run and data directories."""
    try:
        import ray
    except ImportError as error:
        raise RunError("--ray: the ray package is not installed: pip install ray.") from error
    _check_reachable(address)
    started = not ray.is_initialized()
    if started:
        try:
            ray.init(address=None if address == "local" else address, include_dashboard=False, log_to_driver=False)
        except (ValueError, ConnectionError) as error:
            raise RunError(f"--ray {address}: {str(error).rstrip('.')}. {_EXPECTED}") from error
    remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_attempt_without_events)
    waiting = list(jobs)
    pending: dict[Any, Any] = {}
    stopping = False
    try:
        with Stopper() as stopper:
            while waiting or pending:
                if stopper.asked and not stopping:
                    stopping = True
                    report_not_started(waiting, report)
                    waiting.clear()
                    for ref in pending:
                        ray.cancel(ref)  # SIGINT in the worker, which writes its checkpoint; a second one would end it
                while (job := take_ready(waiting, pending.values(), names)) is not None:
                    pending[remote.remote(work, job)] = job
                ready, _ = ray.wait(list(pending), timeout=1.0)
                for ref in ready:
                    job = pending.pop(ref)
                    try:
                        kind, detail = ray.get(ref)
                        report(Event(job, kind, detail))
                    except Exception as error:  # a lost worker, a cancelled task: Ray has a class for each
                        kind = "stopped" if stopper.asked else "failed"
                        report(Event(job, kind, f"{type(error).__name__}: {error}"))
    finally:
        if started:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Try to connect: Ray itself tries for minutes before it gives up."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():  # "local", "auto"
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"--ray {address}: nothing answers there ({error}). {_EXPECTED}") from error


def _attempt_without_events(work: Work, job: Any) -> tuple[str, Any]:
    event = attempt(work, job, lambda line: None)
    return event.kind, event.detail
