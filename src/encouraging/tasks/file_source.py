"""Batches that workers have loaded, copied to the device while it computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..data import Clock
from ..data.file_examples import Loaded
from ..data.file_loader import FileLoader

AHEAD = 3  # batches on the GPU whose updates have not finished; without a limit a fast loader would fill its memory


class FileSource:
    """The batches of a loader, each moved to the device in the training process."""

    def __init__(self, loader: FileLoader, move: Callable[[Loaded], tuple[Tensor, ...]], device: torch.device) -> None:
        self.loader, self.move, self.device = loader, move, device
        self._copy_stream: Any = None

    def length(self, clock: Clock) -> int:
        return self.loader.length(clock)

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[tuple[Tensor, ...]]:
        loaded = self.loader.batches(clock, start, rank, world)
        return self._copy_ahead(loaded) if self.device.type == "cuda" else map(self.move, loaded)

    def _copy_ahead(self, loaded: Iterator[Loaded]) -> Iterator[tuple[Tensor, ...]]:
        """Copy on a separate stream, so that a batch arrives while earlier updates are computed."""
        self._copy_stream = self._copy_stream or torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        unfinished: deque[Any] = deque()
        for batch in loaded:
            if len(unfinished) == AHEAD:
                unfinished.popleft().synchronize()
            with torch.cuda.stream(self._copy_stream):
                tensors = self.move(batch)
            compute_stream = torch.cuda.current_stream(self.device)
            compute_stream.wait_stream(self._copy_stream)
            for tensor in tensors:
                tensor.record_stream(compute_stream)  # otherwise a later copy could reuse its memory while it is read
            yield tensors
            update_done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            update_done.record(compute_stream)
            unfinished.append(update_done)
