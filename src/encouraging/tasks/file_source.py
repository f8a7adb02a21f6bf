"""Batches that workers have loaded, brought to the device while it computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..data import Clock
from ..data.file_examples import Loaded
from ..data.file_loader import FileLoader

AHEAD = 3  # batches on the GPU whose updates are not over; without a limit a quick loader would fill its memory


class FileSource:
    """The batches of a loader, each moved to the device in the training process."""

    def __init__(self, loader: FileLoader, moved: Callable[[Loaded], tuple[Tensor, ...]], device: torch.device) -> None:
        self.loader, self.moved, self.device = loader, moved, device
        self._copies: Any = None

    def length(self, clock: Clock) -> int:
        return self.loader.length(clock)

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[tuple[Tensor, ...]]:
        loaded = self.loader.batches(clock, start, rank, world)
        return self._beside(loaded) if self.device.type == "cuda" else map(self.moved, loaded)

    def _beside(self, loaded: Iterator[Loaded]) -> Iterator[tuple[Tensor, ...]]:
        """Copy on a stream of its own: a batch arrives while the updates before it are computed."""
        self._copies = self._copies or torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        used: deque[Any] = deque()
        for batch in loaded:
            if len(used) == AHEAD:
                used.popleft().synchronize()
            with torch.cuda.stream(self._copies):
                tensors = self.moved(batch)
            now = torch.cuda.current_stream(self.device)
            now.wait_stream(self._copies)
            for tensor in tensors:
                tensor.record_stream(now)  # else its memory could be given to a later copy while it is read
            yield tensors
            over = torch.cuda.Event()  # type: ignore[no-untyped-call]
            over.record(now)
            used.append(over)
