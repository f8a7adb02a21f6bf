"""How long a command with several runs still takes, from the runs that have ended and from those under way."""

from __future__ import annotations

import statistics
import time


class TimeLeft:
    """Estimates the time until all ``total`` runs have ended, from their starts, ends and progress."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.numbers: dict[str, int] = {}  # the number of every run, in the order in which they started
        self.started: dict[str, float] = {}  # of the runs under way
        self.ends: dict[str, float] = {}  # when runs under way are expected to end
        self.took: list[float] = []

    def start(self, run: str) -> None:
        self.numbers[run] = len(self.numbers) + 1
        self.started[run] = time.monotonic()

    def expect(self, run: str, seconds: float | None) -> None:
        """A run under way is expected to end in so many seconds."""
        if seconds is not None:
            self.ends[run] = time.monotonic() + seconds

    def end(self, run: str, *, done: bool) -> None:
        start = self.started.pop(run, None)
        self.ends.pop(run, None)
        if done and start is not None:
            self.took.append(time.monotonic() - start)

    @property
    def seconds(self) -> float | None:
        """The time left in all, if runs to come take as long as those before; None before the first estimate."""
        now = time.monotonic()
        lengths = self.took or [end - self.started[run] for run, end in self.ends.items()]
        if not lengths or not self.started:
            return None
        per_run = statistics.fmean(lengths)
        under_way = [max(self.ends.get(run, start + per_run) - now, 0.0) for run, start in self.started.items()]
        waiting = max(self.total - len(self.numbers), 0)
        return max(*under_way, (sum(under_way) + waiting * per_run) / len(under_way))
