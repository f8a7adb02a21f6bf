"""Batches of pictures from worker processes, in shared memory that is allocated once and used for all epochs.

A batch of 256 pictures has 38 MB. New memory costs a process more than writing to it, because the kernel clears every
page. So there is a fixed number of slots: a request names the slot that its worker writes to, and the training process
copies the batch out and gives the slot to a later request.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from .draw import preserve_random_states
from .file_examples import FileExamples, Loaded, Picture
from .samplers import Sampler
from .sources import AHEAD, START, LoaderSource, Reader, Request, Requests


class Answer(NamedTuple):
    """What a worker sends: a batch without its images, which are in the slot."""

    slot: int
    labels: np.ndarray
    boxes: np.ndarray
    faults: list[str]
    lost: list[str]


class Slots:
    """Memory for ``count`` batches of at most ``shape[0]`` images, which worker processes write and this one reads."""

    def __init__(self, count: int, shape: tuple[int, int, int, int]) -> None:
        size = count * int(np.prod(shape))
        if START == "fork":
            # Processes inherit it, without the limit on /dev/shm, which is small in containers.
            try:
                memory = torch.frombuffer(mmap.mmap(-1, max(1, size)), dtype=torch.uint8)[:size]
            except (OSError, OverflowError) as error:
                raise DataError(f"{count} batches of {size // count / 2**20:.0f} MiB, two per worker and one more, "
                                f"need {size / 2**20:.0f} MiB of memory, which cannot be allocated ({error}). Set "
                                "fewer workers: --set train.workers=2, or 0 for none.") from error
        else:
            memory = torch.empty(size, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        self.memory = memory.view(count, *shape)
        self.free: deque[int] = deque()

    def reset(self) -> None:
        """Mark all slots as free. No worker may have an unanswered request."""
        self.free = deque(range(len(self.memory)))


class FileLoader(LoaderSource[Picture, Loaded]):
    """Batches of :class:`FileExamples` in ``workers`` processes, or in this one for 0.

    Args:
        examples: the examples to load.
        sampler: which of them make up a batch.
        seed: the random numbers of an example follow from it, the epoch and the example's index.
        batch: the largest number of examples of a batch.
        workers: loading processes.
        epochs: the last epoch. The first batches of an epoch are loaded while the last ones of the previous epoch are
            in use, but none after this epoch.
        pin: whether batches are in pinned memory.
    """

    def __init__(self, examples: FileExamples, sampler: Sampler, seed: int, *, batch: int, workers: int = 0,
                 epochs: int = 0, pin: bool = False) -> None:
        super().__init__(examples, sampler, seed, workers=workers, epochs=epochs)
        self.pin = pin
        self.slots: Slots | None = None
        if workers:
            # For batches that wait or are being loaded, and for one that is being copied.
            self.slots = Slots(AHEAD * workers + 1, (batch, examples.size, examples.size, 3))
            self.reader = _SlotReader(examples, seed, self.slots.memory)
            self.requests = _SlotRequests(sampler, seed, epochs, self.slots)

    def _received(self, answer: Any) -> Loaded:
        if self.slots is None or not isinstance(answer, Answer):
            return _pinned(answer) if self.pin else answer
        images = self.slots.memory[answer.slot, : len(answer.labels)]
        copy = torch.empty(images.shape, dtype=torch.uint8, pin_memory=self.pin)
        np.copyto(copy.numpy(), images.numpy())  # one thread: torch's would wait for cores that the workers use
        self.slots.free.append(answer.slot)
        loaded = Loaded(copy, torch.from_numpy(answer.labels), torch.from_numpy(answer.boxes),
                        torch.tensor(len(answer.faults)), answer.faults, answer.lost)
        return _pinned(loaded) if self.pin else loaded


def _pinned(loaded: Loaded) -> Loaded:
    images, labels, boxes, skipped = (tensor.pin_memory() for tensor in loaded[:4])
    return Loaded(images, labels, boxes, skipped, loaded.faults, loaded.lost)


class _SlotRequests(Requests):
    """Requests with the slot to which the batch is written."""

    def __init__(self, sampler: Sampler, seed: int, epochs: int, slots: Slots) -> None:
        super().__init__(sampler, seed, epochs)
        self.slots = slots

    def __iter__(self) -> Iterator[tuple[int, Request]]:
        self.slots.reset()  # the loader has waited for the answers to all earlier requests
        for request in super().__iter__():
            yield self.slots.free.popleft(), request


class _SlotReader(Reader[Picture, Any]):
    """Loads the batch of a request, and writes its images to the slot of the request."""

    examples: FileExamples

    def __init__(self, examples: FileExamples, seed: int, memory: Tensor) -> None:
        super().__init__(examples, seed)
        self.memory = memory

    def __getitem__(self, slot_and_request: Any) -> Answer:
        slot, request = slot_and_request
        with preserve_random_states():
            loaded = self.examples.fill(self.examples_of(request), self.memory[slot])
        # Arrays are pickled; each tensor would become a file of shared memory.
        return Answer(slot, loaded.labels.numpy(), loaded.boxes.numpy(), loaded.faults, loaded.lost)
