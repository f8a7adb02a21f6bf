"""What is shown while runs are trained: one bar per run, with loss, primary metric and the time left."""

from __future__ import annotations

from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..engine import Metric, Needs
from ..engine.sweep import Event
from ..recipes.grid import Job


class ProgressDisplay:
    """Takes the events of a sweep. Where there is no terminal, it prints one line per finished run."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.failed: list[Event] = []
        self.stopped: list[Event] = []
        self.bars: dict[str, TaskID] = {}
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
        elif event.kind == "epoch":
            done = event.detail["epoch"] + sum(
                stage.train.epochs for stage in job.recipe.stages_of(job.arm)[: event.detail["stage"] - 1])
            self.progress.update(self.bars[job.name], completed=done,
                                 status=_epoch_words(event.detail, self._primary(job)))
        else:
            self._end(job, event)

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
            words = _final_words(event.detail, self._primary(job))
            self.console.print(f"{self.ended}/{self.total} {job.name}: {words}", highlight=False)

    def _primary(self, job: Job) -> Metric | None:
        """The metric to show, asked for once: all jobs belong to one recipe."""
        if self.needs is None:
            self.needs = job.recipe.needs()
        return self.needs.primary


def _epoch_words(line: dict[str, Any], primary: Metric | None) -> str:
    parts = [f"loss {line['loss']:.4f}"] if "loss" in line else []
    if primary is not None and primary.path in line:
        parts.append(f"{primary.words} {line[primary.path]:.{primary.digits}f}")
    return "  ".join(parts)


def _final_words(final: dict[str, Any], primary: Metric | None) -> str:
    """The primary metric of the last and of the best epoch."""
    if primary is None:
        return "done"
    words = {primary.words: primary.path, f"best {primary.words}": f"best_{primary.path}"}
    shown = [f"{name} {final[path]:.{primary.digits}f}" for name, path in words.items() if path in final]
    return ", ".join(shown) or "done"
