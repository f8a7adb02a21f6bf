"""Batches that workers have loaded, brought to the device; and whether the workers have the memory for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from torch import Tensor

from ..data import Clock, LoaderSource
from ..data.file_examples import Loaded, Picture
from ..errors import DataError

SHARED = Path("/dev/shm")  # where Linux keeps what processes share
AHEAD = 2  # batches that each worker has ready


class FileSource:
    """The batches of a loader, each moved to the device in the training process."""

    def __init__(self, loader: LoaderSource[Picture, Loaded], moved: Callable[[Loaded], tuple[Tensor, ...]]) -> None:
        self.loader, self.moved = loader, moved

    def length(self, clock: Clock) -> int:
        return self.loader.length(clock)

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[tuple[Tensor, ...]]:
        return map(self.moved, self.loader.batches(clock, start, rank, world))


def check_shared_memory(workers: int, batch_bytes: int, folder: Path = SHARED) -> None:
    """Refuse what would end in a bus error: workers hand batches over in shared memory, which containers keep small.

    Raises:
        DataError: there is less than the batches take that are ready at a time.
    """
    if not workers or not folder.is_dir():
        return
    free, needed = shutil.disk_usage(folder).free, (AHEAD * workers + 2) * batch_bytes
    if free < needed:
        raise DataError(f"{folder} has {free / 2**20:.0f} MiB free, and {workers} workers with batches of "
                        f"{batch_bytes / 2**20:.0f} MiB need {needed / 2**20:.0f}. Start the container with more "
                        "(docker run --shm-size=8g), or set fewer workers: --set train.workers=2, or 0 for none.")
