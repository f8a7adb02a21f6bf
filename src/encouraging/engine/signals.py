"""SIGINT and SIGTERM ask a run to stop at its next step; a second SIGINT stops it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self


class Interrupted(Exception):  # noqa: N818 - a request that was followed is not an error
    """The run was asked to stop and has written its checkpoint."""


class Stopper:
    """A context in which the two signals only set :attr:`asked`."""

    def __init__(self) -> None:
        self.asked: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # signals reach no other
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name
