"""Batches for the training loop: from examples that live on the device, or loaded by worker processes.

Both resume at any batch. What they draw follows from seed, stage, epoch and the index of the example or batch, so the
batches are the same in an unbroken run, in a resumed one, and with any number of workers.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

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
START = "fork" if sys.platform == "linux" else None
AHEAD = 2  # batches that each worker makes before they are asked for
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

    ``move`` brings a loaded batch to the device; it runs in the training process. Up to the epoch ``epochs``, workers
    begin with an epoch while the last batches of the one before it are used.
    """

    def __init__(self, examples: Examples[Example, Batch], sampler: Sampler, seed: int, *, workers: int = 0,
                 move: Callable[[Batch], Batch] | None = None, epochs: int = 0) -> None:
        self.reader: Reader[Example, Any] = Reader(examples, seed)
        self.requests = Requests(sampler, seed, epochs)
        self.sampler, self.workers, self.move = sampler, workers, move
        self._loader: DataLoader[Any] | None = None
        self._running: Iterator[Any] = iter(())
        self._next: Place | None = None

    def length(self, clock: Clock) -> int:
        return len(self.requests.plan(clock))

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[Batch]:
        place = Place(Clock(*clock[:2]), start, rank, world)
        loaded = self._load(place) if self.workers else map(self.reader.__getitem__, self.requests.of(place))
        received = map(self._received, loaded)
        return received if self.move is None else map(self.move, received)

    def _load(self, place: Place) -> Iterator[Any]:
        if self._loader is None:
            # The workers stay for all epochs. Without a generator of its own the loader would draw from torch's global
            # one, and dropout would then depend on it.
            with _many_workers():
                self._loader = DataLoader(_Told(self.reader), batch_size=None, sampler=self.requests,
                                          collate_fn=_as_it_is, num_workers=self.workers, persistent_workers=True,
                                          prefetch_factor=AHEAD, generator=torch.Generator(),
                                          multiprocessing_context=START)
        if place != self._next or place.clock.epoch > self.requests.epochs:
            self.requests.first = place
            with _many_workers():
                self._running = iter(self._loader)
        self._next = None  # until the last batch of the epoch was taken
        return self._epoch(place, self._running)

    def _epoch(self, place: Place, running: Iterator[Any]) -> Iterator[Any]:
        count = len(self.requests.plan(place.clock)) - place.start
        for number in range(count):
            batch = _or_its_error(next(running))
            if number == count - 1:
                self._next = place.next()
            yield batch

    def _received(self, answer: Any) -> Batch:
        """The batch, from what a worker has sent."""
        batch: Batch = answer
        return batch


class Place(NamedTuple):
    """Where a rank begins to read."""

    clock: Clock
    start: int
    rank: int
    world: int

    def next(self) -> Place:
        """The beginning of the next epoch."""
        return self._replace(clock=Clock(self.clock.stage, self.clock.epoch + 1), start=0)


class Requests(Iterable[Any]):
    """What workers are asked for: the batches from ``first`` on, of its epoch and of those after it up to ``epochs``.

    It knows nothing of the source, whose workers end as soon as nobody refers to it.
    """

    def __init__(self, sampler: Sampler, seed: int, epochs: int) -> None:
        self.sampler, self.seed, self.epochs = sampler, seed, epochs
        self.first = Place(Clock(), 0, 0, 1)
        self._plans: dict[tuple[int, int], Sequence[Tensor]] = {}

    def plan(self, clock: Clock) -> Sequence[Tensor]:
        """The batches of an epoch. Two are kept: that which is trained, and the next one, which workers begin."""
        at = clock[:2]
        if at not in self._plans:
            self._plans = dict(list(self._plans.items())[-1:])
            self._plans[at] = self.sampler.batches(generator(self.seed, *at))
        return self._plans[at]

    def of(self, place: Place) -> Iterator[Request]:
        """The rest of one epoch."""
        clock, start, rank, world = place
        plan = self.plan(clock)
        return ((clock.stage, clock.epoch, number, plan[number][rank::world].tolist())
                for number in range(start, len(plan)))

    def __iter__(self) -> Iterator[Any]:
        place = self.first
        yield from self.of(place)
        while place.clock.epoch < self.epochs:
            place = place.next()
            yield from self.of(place)


class Reader(Dataset[Any], Generic[Example, Batch]):
    """Answers a request with its batch, in whichever process it is asked."""

    def __init__(self, examples: Examples[Example, Batch], seed: int) -> None:
        self.examples, self.seed = examples, seed

    def __getitem__(self, request: Request) -> Batch:
        stage, epoch, number, _ = request
        with states_kept():
            made = list(self.made(request))
            draw = generator(self.seed, stage, epoch, 1, number)
            seed_all(draw)
            return self.examples.collate(made, draw)

    def made(self, request: Request) -> Iterator[Example]:
        """The examples of a request, one by one; each sets the global random states."""
        stage, epoch, _, indices = request
        for index in indices:
            draw = generator(self.seed, stage, epoch, 0, index)
            seed_all(draw)
            yield self.examples.example(index, draw)


class _Told(Dataset[Any]):
    """A reader in a worker process. What is wrong with a file is handed over in its own words: torch would raise it
    again with the worker's traceback as its message."""

    def __init__(self, reader: Reader[Any, Any]) -> None:
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
