"""``encouraging attack``: the accuracy of finished runs under attack, into their directories."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..attacks import Progress, accuracy_over_eps
from ..attacks._state import Cell, forget
from ..engine import RunDir, sweep
from ..engine.attack_results import AttackResults, Measured, load_results
from ..engine.environment import choose_device
from ..engine.precision import float32_is
from ..engine.records import read_records
from ..errors import ArgumentError
from ..judge.claims import NOT_MEASURED, ClaimRow, claim_rows, finals_of
from ..judge.looks import LookPlan, plan_of
from ..judge.metric_book import book_of
from ..recipes import departures_of, kept_recipes
from ..recipes.grid import default_threads
from ..recipes.trained import TrainedImages, check_run_data, load_trained, run_folders
from ..report.numbers import plural
from ..whole_file import PART
from .attack_plan import AttackPlan, read_epsilons
from .attack_progress import AttackDisplay
from .attack_table import print_attacks
from .progress import failures
from .run_table import print_claims, print_departures

STATE = re.compile(r"attacks-(?P<units>\w+)-(?P<weights>\w+)-(?P<examples>\d+)-(?P<seed>\d+)\.state")
BATCH = 1000  # images at most, fewer where they are large; with another size AutoAttack draws other random numbers


@dataclass(frozen=True)
class AttackJob:
    """The attacks on one run: everything another process needs."""

    folder: str
    plan: AttackPlan
    examples: int | None
    seed: int
    batch_size: int | None
    device: str
    data: str | None
    threads: int | None

    @property
    def name(self) -> str:
        return " ".join(Path(self.folder).parts[-3:])


def attack_runs(paths: Sequence[Path], *, attacks: Sequence[str] = (), autoattack: bool = False,
                eps: str | None = None, eps_l2: str | None = None, examples: int | None = None, seed: int = 0,
                batch_size: int | None = None, device: str = "auto", data: str | None = None, jobs: int = 1,
                threads: int | None = None, console: Console | None = None) -> int:
    """Attack every finished run at or below these paths, and print what is left of its accuracy.

    Returns:
        The exit code: 0 when everything was measured, 1 when something failed, 130 when it was stopped.
    """
    console = console or Console()
    plan = AttackPlan(tuple(attacks), autoattack, read_epsilons(eps, "--eps"), read_epsilons(eps_l2, "--eps-l2"))
    if examples is not None and examples < 1:
        raise ArgumentError(f"--examples {examples}: expected a positive number of test images.")
    chosen, folders = choose_device(device), run_folders(paths)
    records = read_records(*folders)
    counts = Counter(record.recipe for record in records)
    # What cannot be done is refused here, before the first run.
    announcements = [plan.words(recipe, counts[recipe.name]) for recipe in kept_recipes(records).values()]
    check_run_data(folders, chosen, data)
    for line in announcements:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    # A GPU needs one thread of its host: more would only wait for each other.
    threads = threads or (default_threads(jobs) if chosen.type == "cpu" else 1)
    grid = [AttackJob(str(folder.resolve()), plan, examples, seed, batch_size, str(chosen),
                      str(Path(data).resolve()) if data else None, threads) for folder in folders]
    started = time.monotonic()
    with AttackDisplay(console, len(grid)) as display, _terminate_as_interrupt():
        if jobs > 1:
            sweep.run_pool(grid, attack_job, display, min(jobs, len(grid)))
        else:
            sweep.run_here(grid, attack_job, display)
    for line in failures(display.failed):
        console.print(line, style="red", markup=False, highlight=False)
    if display.stopped:
        console.print(f"stopped with {len(display.stopped)} of {len(grid)} runs unfinished. What was measured is kept; "
                      "run the same command again to continue.", markup=False, highlight=False)
    _show(folders, console)
    measured = len(grid) - len(display.failed) - len(display.stopped)
    console.print(f"{measured} of {plural(len(grid), 'run')} measured in {time.monotonic() - started:.0f} s"
                  + ("; attacks.json in a run's directory has its numbers" if measured else ""), highlight=False)
    return 130 if display.stopped else int(bool(display.failed))


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM, with which batch systems end a job, stops as Ctrl-C does: what is measured is kept, and a message says
    so."""
    if threading.current_thread() is not threading.main_thread():  # signals reach no other
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(folders: Sequence[Path], console: Console) -> None:
    records = read_records(*folders)
    for recipe in kept_recipes(records).values():
        members = [record for record in records if record.recipe == recipe.name]
        departures = departures_of(recipe.name, members)
        print_departures(console, departures)
        print_attacks(console, recipe, members)
        if recipe.claims and any(record.attacks for record in members):
            plan, book = plan_of(recipe, records), book_of(members)
            rows = claim_rows(recipe, finals_of(recipe.name, records), book, plan, departures)
            _show_claims([row for row in rows if row.claim.metric.startswith("attacks.")], plan, console)


def _show_claims(rows: Sequence[ClaimRow], plan: LookPlan, console: Console) -> None:
    """The claims under attack that were measured, and how many were not."""
    measured = [row for row in rows if row.verdict != NOT_MEASURED]
    if measured:
        print_claims(console, measured, plan)
    if waiting := len(rows) - len(measured):
        console.print(f"{plural(waiting, 'claim')} under attack {'is' if waiting == 1 else 'are'} not measured: no "
                      "seed of these runs has the attack and epsilon on both sides", style="dim", markup=False,
                      highlight=False)


def attack_job(job: AttackJob, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Measure what is missing of one run; returns how many attacks and epsilons that were, and the seconds."""
    started, folder = time.monotonic(), Path(job.folder)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    with RunDir(folder).lock(), float32_is("ieee"):
        results = load_results(folder, job.seed)
        trained = load_trained(folder, choose_device(job.device), job.data)
        images, labels = (tensor[: job.examples] for tensor in trained.task.test)
        results.test_images = len(trained.task.test[1])
        requested = job.plan.attacks_on(trained.recipe)
        measurements: dict[tuple[str, int], _Measurement] = {}
        cells: dict[str, list[tuple[Cell, int]]] = {}  # all that were requested, by their units
        for name, (measured, epsilons) in requested.items():
            batch_size = results.batch_size(name, job.batch_size) or min(BATCH, trained.task.piece)
            cells.setdefault(measured.units, []).extend((Cell(name, measured.attack, eps), batch_size)
                                                        for eps in epsilons)
            if left := results.missing(name, measured, epsilons, len(labels)):
                same = measured.units, batch_size
                measurement = measurements.setdefault(same, _Measurement(*same, images, labels))
                measurement.missing[name] = measured, left
        progress = _Counter(tell, sum(measurement.cells for measurement in measurements.values()))
        for measurement in measurements.values():
            _measure(job, trained, results, measurement, progress)
        results.write(folder)
        _tidy(folder, results, len(labels), cells)
    return {"seconds": time.monotonic() - started, "cells": progress.total}


@dataclass(frozen=True)
class _Measurement:
    """The attacks of a run that are measured together: those with the same unit of epsilon and batch size. ``missing``
    has their epsilons by name."""

    units: str
    batch_size: int
    images: torch.Tensor
    labels: torch.Tensor
    missing: dict[str, tuple[Measured, list[float]]] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        return sum(len(epsilons) for _, epsilons in self.missing.values())


def _measure(job: AttackJob, trained: TrainedImages, results: AttackResults, what: _Measurement,
             progress: _Counter) -> None:
    task, pixels = trained.task, what.units == "pixels"
    x = task.attacked(what.images) if pixels else task.normalise(task.unit(what.images))
    # The name has weights, images and seed: the state of other ones is never continued from.
    name = f"attacks-{what.units}-{results.weights[:8]}-{len(what.labels)}-{job.seed}.state"
    accuracies = accuracy_over_eps(trained.attacked_model if pixels else trained.model, x, what.labels,
                                   {name: measured.attack for name, (measured, _) in what.missing.items()},
                                   {name: epsilons for name, (_, epsilons) in what.missing.items()}, seed=job.seed,
                                   batch_size=what.batch_size, state_path=Path(job.folder) / name,
                                   progress=progress)
    for name, (measured, epsilons) in what.missing.items():
        measured.survived.update(accuracies.survived[name])
        if measured.attack.method == "autoattack":
            measured.batch_sizes.update(dict.fromkeys(epsilons, what.batch_size))
        results.add(name, measured)


def _tidy(folder: Path, results: AttackResults, examples: int, cells: dict[str, list[tuple[Cell, int]]]) -> None:
    """Remove from the states of this run what ``attacks.json`` has now, and the states of weights that were replaced.
    What was stopped with another seed, with more images or in another attack is kept."""
    states = set()
    for path in folder.glob("attacks-*.state*"):
        if (match := STATE.match(path.name)) is None:
            continue
        if match["weights"] != results.weights[:8] or PART.fullmatch(path.name):
            path.unlink()
        elif int(match["seed"]) == results.seed and int(match["examples"]) <= examples:
            states.add((folder / match[0], match["units"]))
    for state, units in states:
        forget(state, cells.get(units, []))


class _Counter:
    """Turns the progress of single attacks into that of a run."""

    def __init__(self, tell: Callable[[dict[str, Any]], None], total: int) -> None:
        self.tell, self.total, self.done = tell, total, 0

    def __call__(self, step: Progress) -> None:
        finished = step.accuracy is not None
        self.done += finished
        self.tell({"attack": step.attack, "eps": step.eps, "accuracy": step.accuracy, "total": self.total,
                   "done": self.done if finished else self.done + min(step.fraction, 0.999)})
