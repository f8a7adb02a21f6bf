"""What is shown while runs are trained: one bar per run, with loss, primary metric, speed and the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..engine import Metric, Needs
from ..engine.sweep import Event
from ..judge.metric_book import MetricBook
from ..recipes.grid import Job
from ..report.numbers import listed

PRINT_EVERY = 300.0  # seconds between two lines about a run, where there is no terminal
# What a task's batches hold batch_size of; those of others, such as translation, are of another size each.
EXAMPLES = {"image": "images", "image_files": "images", "detection": "images", "graph": "graphs"}


class ProgressDisplay:
    """Takes the events of a sweep. Where there is no terminal, it prints one line per finished run, and one every few
    minutes about a run whose epochs are long."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.failed: list[Event] = []
        self.stopped: list[Event] = []
        self.bars: dict[str, TaskID] = {}
        self.words: dict[str, str] = {}  # what the last epoch has shown, by run
        self.printed: dict[str, float] = {}
        self.needs: Needs | None = None
        self.progress = Progress(TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(),
                                 TextColumn("{task.fields[status]}"), TimeRemainingColumn(), console=console,
                                 disable=not console.is_terminal, transient=True)
        self.all_runs = self.progress.add_task("runs", total=total, status="")
        self.ended = 0
        self.total = total

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, event: Event) -> None:
        job: Job = event.job
        if event.kind == "started":
            epochs = sum(min(stage.train.epochs, 10_000) for stage in job.recipe.stages_of(job.arm))
            self.bars[job.name] = self.progress.add_task(job.name, total=epochs, status="")
            self.printed[job.name] = time.monotonic()
        elif event.kind == "epoch":
            self.words[job.name] = _epoch_words(event.detail, self._primary(job))
            self.progress.update(self.bars[job.name], completed=_before(job, event.detail) + event.detail["epoch"],
                                 status=self.words[job.name])
        elif event.kind == "progress":
            self._within(job, event.detail)
        else:
            self._end(job, event)

    def _within(self, job: Job, detail: dict[str, Any]) -> None:
        words = progress_words(detail, EXAMPLES.get(job.recipe.task))
        done = _before(job, detail) + detail["epoch"] - 1 + detail["batch"] / detail["batches"]
        self.progress.update(self.bars[job.name], completed=done,
                             status="  ".join(filter(None, [self.words.get(job.name), words])))
        now = time.monotonic()
        if not self.console.is_terminal and now - self.printed[job.name] >= PRINT_EVERY:
            self.printed[job.name] = now
            self.console.print(f"{job.name}: epoch {detail['epoch']}, {words}", markup=False, highlight=False)

    def _end(self, job: Job, event: Event) -> None:
        self.ended += 1
        if job.name in self.bars:
            self.progress.remove_task(self.bars.pop(job.name))
        self.progress.advance(self.all_runs)
        if event.kind == "failed":
            self.failed.append(event)
        elif event.kind == "stopped":
            self.stopped.append(event)
        else:
            words = _final_words(event.detail, self._needs(job))
            self.console.print(f"{self.ended}/{self.total} {job.name}: {words}", highlight=False)

    def _primary(self, job: Job) -> Metric | None:
        return self._needs(job).primary

    def _needs(self, job: Job) -> Needs:
        """Asked for once: all jobs belong to one recipe."""
        if self.needs is None:
            self.needs = job.recipe.needs()
        return self.needs


def _before(job: Job, detail: dict[str, Any]) -> int:
    """Epochs of the stages that are over."""
    return sum(stage.train.epochs for stage in job.recipe.stages_of(job.arm)[: detail["stage"] - 1])


def progress_words(detail: dict[str, Any], examples: str | None) -> str:
    """How far an epoch is, how fast, and how long the stage will take.

    >>> progress_words({"batch": 120, "batches": 5005, "examples_per_second": 2310.4, "seconds_left": 40000}, "images")
    'batch 120/5005, 2310 images/s, 11 h 7 min left'
    """
    speed = f"{detail['examples_per_second']:.0f} {examples}/s" if examples else \
        f"{detail['batches_per_second']:.1f} batches/s"
    return f"batch {detail['batch']}/{detail['batches']}, {speed}, {duration(detail['seconds_left'])} left"


def duration(seconds: float) -> str:
    """A time in two units.

    >>> duration(0.31), duration(59), duration(3600), duration(200_000)
    ('0.3 s', '59 s', '1 h 0 min', '2 d 7 h')
    """
    if seconds < 60:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    minutes = round(seconds / 60)
    for unit, inner, size in (("d", "h", 1440), ("h", "min", 60)):
        if minutes >= size:
            return f"{minutes // size} {unit} {minutes % size * (24 if unit == 'd' else 60) // size} {inner}"
    return f"{minutes} min"


def failures(events: Sequence[Event]) -> Iterator[str]:
    """What failed, in order; runs that failed with the same words share a line."""
    names: dict[str, list[str]] = {}
    for event in events:
        names.setdefault(str(event.detail), []).append(event.job.name)
    for detail, runs in names.items():
        shown = runs if len(runs) <= 3 else [*runs[:2], f"{len(runs) - 2} more"]
        yield f"{listed(shown)} failed: {detail}"


def _epoch_words(line: dict[str, Any], primary: Metric | None) -> str:
    parts = [f"loss {line['loss']:.4f}"] if "loss" in line else []
    if primary is not None and primary.path in line:
        parts.append(f"{primary.words} {line[primary.path]:.{primary.digits}f}")
    return "  ".join(parts)


def _final_words(final: dict[str, Any], needs: Needs) -> str:
    """The primary metric of the last and of the best epoch."""
    primary = needs.primary
    if primary is None:
        return "done"
    best = MetricBook(needs.metrics)[f"best_{primary.path}"]
    shown = [f"{metric.words} {final[metric.path]:.{primary.digits}f}" for metric in (primary, best)
             if metric.path in final]
    return ", ".join(shown) or "done"
