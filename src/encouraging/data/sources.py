"""Batches for the training loop: from examples that live on the device, or loaded by worker processes.

Both resume at any batch. What they draw follows from seed, stage, epoch and the index of the example or batch, so the
batches are the same in an unbroken run, in a resumed one, and with any number of workers.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..errors import DataError
from .clock import Clock
from .draw import generator, seed_all, states_kept
from .samplers import Sampler

Example = TypeVar("Example")
Batch = TypeVar("Batch")
Batch_co = TypeVar("Batch_co", covariant=True)
# PyTorch's own choice on Linux. Runs side by side are spawned processes, and hand "spawn" down as the default: every
# worker would then import torch anew.
_START = "fork" if sys.platform == "linux" else None
Request = tuple[int, int, int, list[int]]  # stage, epoch, number of the batch, indices of its examples


class Source(Protocol[Batch_co]):
    """The batches of an epoch, shared among ranks."""

    def length(self, clock: Clock) -> int:
        """How many batches this epoch has."""
        ...

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[Batch_co]:
        """This rank's share of the epoch's batches from number ``start`` on; the shares of a batch make it whole."""
        ...


class ResidentSource:
    """For examples that live on the device: a batch is their indices, and what is drawn for each of them.

    ``columns`` draws further numbers per example (crops, flips), all of an epoch at once.
    """

    def __init__(self, sampler: Sampler, seed: int, device: torch.device,
                 columns: Callable[[int, torch.Generator], Sequence[Tensor]] | None = None) -> None:
        self.sampler, self.seed, self.device, self.columns = sampler, seed, device, columns
        self._lengths: dict[tuple[int, int], int] = {}

    def length(self, clock: Clock) -> int:
        at = clock[:2]
        if at not in self._lengths:
            self._lengths = {at: len(self.sampler.batches(generator(self.seed, *at)))}
        return self._lengths[at]

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[tuple[Tensor, ...]]:
        draw = generator(self.seed, clock.stage, clock.epoch)
        parts = self.sampler.batches(draw)
        order = torch.cat(list(parts)) if parts else torch.empty(0, dtype=torch.long)
        extra = self.columns(len(order), draw) if self.columns is not None else ()
        columns = [column.to(self.device) for column in (order, *extra)]
        first = sum(len(part) for part in parts[:start])
        for part in parts[start:]:
            last = first + len(part)
            yield tuple(column[first + rank : last : world] for column in columns)
            first = last


class Examples(Protocol[Example, Batch_co]):
    """Examples that are made one by one, and put together to batches. Workers get a copy of this object.

    ``draw`` belongs to the example (or the batch), and torch's, numpy's and Python's global random states are set from
    it, so transforms that know no generator are reproducible too.
    """

    def example(self, index: int, draw: torch.Generator) -> Example: ...

    def collate(self, examples: list[Example], draw: torch.Generator) -> Batch_co: ...


class LoaderSource(Generic[Example, Batch]):
    """For examples that are read from files or made on the fly, in ``workers`` processes (0: in this one).

    ``move`` brings a loaded batch to the device; it runs in the training process.
    """

    def __init__(self, examples: Examples[Example, Batch], sampler: Sampler, seed: int, *, workers: int = 0,
                 move: Callable[[Batch], Batch] | None = None, pin_memory: bool = False) -> None:
        self.reader = _Reader(examples, seed)
        self.sampler, self.seed, self.workers, self.move = sampler, seed, workers, move
        self._requests: list[Request] = []
        self._loader: DataLoader[Any] | None = None
        self._pin = pin_memory
        self._planned: tuple[tuple[int, int], Sequence[Tensor]] | None = None

    def _plan(self, clock: Clock) -> Sequence[Tensor]:
        """The batches of an epoch; the last answer is kept, since length and batches ask for the same one."""
        at = clock[:2]
        if self._planned is None or self._planned[0] != at:
            self._planned = at, self.sampler.batches(generator(self.seed, *at))
        return self._planned[1]

    def length(self, clock: Clock) -> int:
        return len(self._plan(clock))

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[Batch]:
        plan = self._plan(clock)
        requests = [(clock.stage, clock.epoch, number, plan[number][rank::world].tolist())
                    for number in range(start, len(plan))]
        loaded = self._load(requests) if self.workers else map(self.reader.__getitem__, requests)
        return loaded if self.move is None else map(self.move, loaded)

    def _load(self, requests: list[Request]) -> Iterator[Batch]:
        self._requests[:] = requests
        if self._loader is None:
            # The workers stay for all epochs; the list of requests is the sampler, and is read anew for each. Without a
            # generator of its own the loader would draw from torch's global one, and dropout would then depend on it.
            with _many_workers():
                self._loader = DataLoader(_Told(self.reader), batch_size=None, sampler=self._requests,
                                          collate_fn=_as_it_is, num_workers=self.workers, persistent_workers=True,
                                          pin_memory=self._pin, generator=torch.Generator(),
                                          multiprocessing_context=_START)
        with _many_workers():
            return map(_or_its_error, iter(self._loader))


class _Reader(Dataset[Any], Generic[Example, Batch]):
    """Answers a request with its batch, in whichever process it is asked."""

    def __init__(self, examples: Examples[Example, Batch], seed: int) -> None:
        self.examples, self.seed = examples, seed

    def __getitem__(self, request: Request) -> Batch:
        stage, epoch, number, indices = request
        made = []
        with states_kept():
            for index in indices:
                draw = generator(self.seed, stage, epoch, 0, index)
                seed_all(draw)
                made.append(self.examples.example(index, draw))
            draw = generator(self.seed, stage, epoch, 1, number)
            seed_all(draw)
            return self.examples.collate(made, draw)


class _Told(Dataset[Any]):
    """A reader in a worker process. What is wrong with a file is handed over in its own words: torch would raise it
    again with the worker's traceback as its message."""

    def __init__(self, reader: _Reader[Any, Any]) -> None:
        self.reader = reader

    def __getitem__(self, request: Request) -> Any:
        try:
            return self.reader[request]
        except DataError as error:
            return error


def _or_its_error(batch: Any) -> Any:
    if isinstance(batch, DataError):
        raise batch
    return batch


@contextmanager
def _many_workers() -> Iterator[None]:
    """How many there are is the recipe's choice: torch warns, several times per epoch, where there are fewer cores."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        yield


def _as_it_is(batch: Any) -> Any:
    return batch
