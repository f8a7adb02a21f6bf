"""What is shown while runs are trained: one bar per run, with loss, primary metric, speed and the time left."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..engine import Metric
from ..engine.settings import Train
from ..engine.sweep import Event
from ..judge.metric_book import MetricBook, book_for
from ..recipes.grid import Job
from ..report.numbers import listed, plural
from .time_left import TimeLeft

# Seconds between two lines about runs, where there is no terminal: the second number for a run of a few hours.
PRINT_EVERY, PRINT_LATER = 30.0, 300.0
UNLIMITED = Train.model_fields["epochs"].default  # epochs of a training that max_steps ends


class _Count(MofNCompleteColumn):
    """How far a run is: done and total, or ``count`` where the total is not known."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text(task.fields["count"])
        return super().render(task).append(task.fields.get("unit", ""))


class ProgressDisplay:
    """Takes the events of a sweep. Where there is no terminal, it prints one line per finished run, one when the first
    runs start, and one now and then about a run that takes longer."""

    def __init__(self, console: Console, total: int, until: str = "in all") -> None:
        """``total`` runs are trained; ``until`` ends the words about the time left: "in all", "until this look"."""
        self.console = console
        self.until = until
        self.time_left = TimeLeft(total)
        self.failed: list[Event] = []
        self.stopped: list[Event] = []
        self.bars: dict[str, TaskID] = {}
        self.words: dict[str, str] = {}  # what the last epoch has shown, by run
        self.started: dict[str, float] = {}
        self.printed: dict[str, float] = {}
        self.book: MetricBook | None = None
        self.examples: dict[str, str | None] = {}  # what batch_size counts, by arm
        self.progress = Progress(TextColumn("{task.description}"), BarColumn(bar_width=20), _Count(),
                                 TextColumn("{task.fields[status]}"), TimeRemainingColumn(), console=console,
                                 disable=not console.is_terminal, transient=True)
        self.all_runs = self.progress.add_task("runs", total=total, status="")
        self.finished = 0
        self.total = total

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, event: Event) -> None:
        job: Job = event.job
        if event.kind == "started":
            total, unit = _length(job)
            self.bars[job.name] = self.progress.add_task(job.name, total=total, status="", count="", unit=unit)
            self.started[job.name] = self.printed[job.name] = time.monotonic()
            self.time_left.start(job.name)
            if not (self.finished or self.failed or self.console.is_terminal):
                self._print(job, "started")
        elif event.kind == "epoch":
            patience = _patience_words(job, event.detail)
            epoch = _epoch_words(event.detail, self._book(job).primary)
            self.words[job.name] = "  ".join(filter(None, [epoch, patience]))
            self._show(job, event.detail, event.detail["epoch"], event.detail["step"], self.words[job.name])
            if self._due(job):
                self._print(job, f"{self._number(job)}epoch {event.detail['epoch']}: "
                                 f"{_with_commas(self.words[job.name])}{self._in_all(', ')}")
        elif event.kind == "progress":
            self._within(job, event.detail)
        else:
            self._end(job, event)

    def _show(self, job: Job, detail: dict[str, Any], epochs: float, updates: int, words: str) -> None:
        """``epochs`` of the stage are done, and ``updates`` of the run."""
        earlier = job.recipe.stages_of(job.arm)[: detail["stage"] - 1]
        _, unit = _length(job)
        done = updates if unit else sum(stage.train.epochs for stage in earlier) + epochs
        count = (f"stage {detail['stage']}, " if earlier else "") + f"epoch {detail['epoch']}"
        self.progress.update(self.bars[job.name], completed=done, status=words, count=count)

    def _within(self, job: Job, detail: dict[str, Any]) -> None:
        if job.arm not in self.examples:
            self.examples[job.arm] = job.recipe.needs(job.arm).examples
        words, before = progress_words(detail, self.examples[job.arm]), self.words.get(job.name)
        fraction = 1.0 if "evaluating" in detail else detail["batch"] / detail["batches"]
        self._show(job, detail, max(detail["epoch"] - 1 + fraction, 0.0), detail["step"],
                   "  ".join(filter(None, [before, words])))
        whole_run = len(job.recipe.stages_of(job.arm)) == 1  # otherwise it is the time of a stage
        self.time_left.expect(job.name, detail["seconds_left"] if whole_run else None)
        self.progress.update(self.all_runs, status=self._in_all().strip())
        if self._due(job):
            in_all = self._in_all(f" of this {'run' if whole_run else 'stage'}, " if " left" in words else ", ")
            self._print(job, f"{self._number(job)}epoch {detail['epoch']}, {words}{in_all}"
                        + (f" (the epoch before: {_with_commas(before)})" if before else ""))

    def _number(self, job: Job) -> str:
        return f"run {self.time_left.numbers[job.name]} of {self.total}, " if self.total > 1 else ""

    def _in_all(self, before: str = "") -> str:
        """How long all runs still take, after ``before``; nothing for a single run, or as long as it is not known."""
        seconds = self.time_left.seconds if self.total > 1 else None
        return "" if seconds is None else f"{before}about {duration(seconds)} left {self.until}"

    def _due(self, job: Job) -> bool:
        """Whether it is time for a line about this run: lines are rarer the longer it takes and the more runs there are
        at once."""
        now = time.monotonic()
        pause = max(PRINT_EVERY, min(PRINT_LATER, (now - self.started[job.name]) / 20)) * len(self.bars)
        return not self.console.is_terminal and now - self.printed[job.name] >= pause

    def _print(self, job: Job, words: str) -> None:
        self.printed[job.name] = time.monotonic()
        self.console.print(f"{job.name}: {words}", markup=False, highlight=False, soft_wrap=True)

    def _end(self, job: Job, event: Event) -> None:
        if job.name in self.bars:
            self.progress.remove_task(self.bars.pop(job.name))
        self.time_left.end(job.name, done=event.kind == "done")
        if event.kind == "failed":
            self.failed.append(event)
        elif event.kind == "stopped":
            self.stopped.append(event)
        else:
            words = _final_words(event.detail, self._book(job))
            self.finished += 1
            self.progress.advance(self.all_runs)
            self.console.print(f"{self.finished}/{self.total} {job.name}: {words}", markup=False, highlight=False,
                               soft_wrap=True)

    def _book(self, job: Job) -> MetricBook:
        """Made once: all jobs belong to one recipe."""
        if self.book is None:
            self.book = book_for(job.recipe)
        return self.book


def _length(job: Job) -> tuple[int | None, str]:
    """The length of a run and its unit, epochs or updates; None where patience or the first of several limits ends it.
    """
    stages = [stage.train for stage in job.recipe.stages_of(job.arm)]
    if any(train.patience is not None for train in stages):
        return None, ""
    if all(train.max_steps is None for train in stages):
        return sum(train.epochs for train in stages), ""
    limits = [train.max_steps for train in stages if train.max_steps is not None and train.epochs == UNLIMITED]
    return (sum(limits), " updates") if len(limits) == len(stages) else (None, "")


def _patience_words(job: Job, line: dict[str, Any]) -> str:
    """How much of the patience is used up."""
    patience = job.recipe.stages_of(job.arm)[line["stage"] - 1].train.patience
    if patience is None or "best_epoch" not in line:
        return ""
    return f"{line['epoch'] - line['best_epoch']} of {plural(patience, 'epoch')} since the best"


def progress_words(detail: dict[str, Any], examples: str | None) -> str:
    """How far an epoch is, how fast, and how long the stage will take where that is known.

    >>> progress_words({"batch": 120, "batches": 5005, "examples_per_second": 2310.4, "seconds_left": 40000}, "images")
    'batch 120/5005, 2310 images/s, 11 h 7 min left'
    >>> progress_words({"evaluating": True, "seconds_left": None}, "images")
    'evaluating'
    """
    time_left = f", {duration(detail['seconds_left'])} left" if detail["seconds_left"] is not None else ""
    if "evaluating" in detail:
        return f"evaluating{time_left}"
    speed = f"{rate(detail['examples_per_second'])} {examples}/s" if examples else \
        f"{rate(detail['batches_per_second'])} batches/s"
    return f"batch {detail['batch']}/{detail['batches']}, {speed}{time_left}"


def rate(per_second: float) -> str:
    """A number per second; small ones with two digits, so that none is shown as 0.

    >>> rate(2310.4), rate(12.34), rate(0.4512), rate(0.0)
    ('2310', '12', '0.45', '0')
    """
    return f"{per_second:.0f}" if per_second >= 10 else f"{per_second:.2g}"


def _with_commas(words: str) -> str:
    return words.replace("  ", ", ")


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


def _epoch_words(line: dict[str, Any], primary: Metric) -> str:
    parts = [f"loss {line['loss']:.4f}"] if "loss" in line else []
    if primary.path in line:
        parts.append(f"{primary.words} {line[primary.path]:.{primary.digits}f}")
    return "  ".join(parts)


def _final_words(final: dict[str, Any], book: MetricBook) -> str:
    """The primary metric of the last and of the best epoch, first the one that the run concludes on."""
    primary = book.primary
    metrics = dict.fromkeys([book.compared, primary, book[f"best_{primary.path}"]])
    words = [f"{metric.words} {final[metric.path]:.{primary.digits}f}" for metric in metrics if metric.path in final]
    return ", ".join(words) or "done"
