"""What is shown while runs are trained: one bar per run, with loss, accuracy and the time left."""

from __future__ import annotations

from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..engine.sweep import Event
from ..recipes.grid import Job


class ProgressDisplay:
    """Takes the events of a sweep. Where there is no terminal, it prints one line per finished run."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.failed: list[Event] = []
        self.stopped: list[Event] = []
        self.bars: dict[str, TaskID] = {}
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
            self.progress.update(self.bars[job.name], completed=done, status=_epoch_words(event.detail))
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
            self.console.print(f"{self.ended}/{self.total} {job.name}: {_final_words(event.detail)}", highlight=False)


def _epoch_words(line: dict[str, Any]) -> str:
    parts = [f"loss {line['loss']:.4f}"]
    if "accuracy" in line:
        parts.append(f"accuracy {line['accuracy']:.2f}")
    return "  ".join(parts)


def _final_words(final: dict[str, Any]) -> str:
    words = [f"{name.replace('_', ' ')} {final[name]:.2f}" for name in ("accuracy", "best_accuracy") if name in final]
    return ", ".join(words) or "done"
