"""What is shown while runs are attacked: one bar per run, with the attack and its epsilon, and one for all runs, with
the time left."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from ..engine.sweep import Event
from ..judge.attack_names import size_words
from .progress import duration

PRINT_EVERY = 60.0  # seconds between two lines about a run, where there is no terminal


class AttackDisplay:
    """Takes the events of a sweep. Where there is no terminal, it prints one line per run, and one now and then while a
    run is attacked."""

    def __init__(self, console: Console, total: int) -> None:
        self.console, self.total, self.finished = console, total, 0
        self.failed: list[Event] = []
        self.stopped: list[Event] = []
        self.bars: dict[str, TaskID] = {}
        self.printed: dict[str, float] = {}
        self.started = time.monotonic()
        self.fractions: dict[str, float] = {}  # how much of each run that is attacked now is done
        self.measured_before = 0
        self.progress = Progress(TextColumn("{task.description}"), BarColumn(bar_width=20),
                                 TextColumn("{task.percentage:3.0f}%"), TextColumn("{task.fields[status]}"),
                                 TextColumn("{task.fields[left]}"), console=console,
                                 disable=not console.is_terminal, transient=True)
        self.all_runs = self.progress.add_task("runs", total=total, status="", left="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def __call__(self, event: Event) -> None:
        name = event.job.name
        if event.kind == "started":
            self.bars[name] = self.progress.add_task(name, total=None, status="", left="")
            self.printed[name] = time.monotonic()
        elif event.kind == "epoch":
            step = event.detail
            status = f"{step['attack']} at {size_words(step['eps'])}"
            if step["accuracy"] is not None:
                status += f": {step['accuracy']:.1f}%"
            self.progress.update(self.bars[name], completed=step["done"], total=step["total"], status=status)
            self.fractions[name] = step["done"] / max(step["total"], 1)
            self._show_all()
            now = time.monotonic()
            if not self.console.is_terminal and now - self.printed[name] >= PRINT_EVERY:
                self.printed[name] = now
                self.console.print(f"{name}: {100 * self.fractions[name]:.0f}%, {status}{self._left()}", markup=False,
                                   highlight=False, soft_wrap=True)
        else:
            self._end(event)

    def _left(self) -> str:
        """The time left over all runs, from the part of them that is done; nothing at the beginning and the end."""
        total = self.total - self.measured_before
        done = self.finished - self.measured_before + sum(self.fractions.values())
        if done <= 0 or done >= total:
            return ""
        return f", about {duration((time.monotonic() - self.started) * (total - done) / done)} left for all runs"

    def _show_all(self) -> None:
        self.progress.update(self.all_runs, completed=self.finished + sum(self.fractions.values()),
                             status=f"{self.finished}/{self.total}", left=self._left().removeprefix(", "))

    def _end(self, event: Event) -> None:
        self.fractions.pop(event.job.name, None)
        if event.job.name in self.bars:
            self.progress.remove_task(self.bars.pop(event.job.name))
        if event.kind == "failed":
            self.failed.append(event)
        elif event.kind == "stopped":
            self.stopped.append(event)
        else:
            cells, seconds = event.detail["cells"], event.detail["seconds"]
            words = f"{cells} attacks and epsilons in {seconds:.1f} s" if cells else "everything was measured before"
            self.finished += 1
            self.measured_before += not cells
            self._show_all()
            self.console.print(f"{self.finished}/{self.total} {event.job.name}: {words}{self._left()}", markup=False,
                               highlight=False, soft_wrap=True)
