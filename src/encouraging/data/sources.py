"""Batches for the training loop: from examples on the device, or loaded by worker processes.

Both resume at any batch. Random numbers follow from seed, stage, epoch and the index of the example or batch, so the
batches are the same in an uninterrupted run, in a resumed one, and with any number of workers. An example that a
sampler takes several times in an epoch has other numbers each time.
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
from .draw import generator, preserve_random_states, seed_all
from .samplers import Sampler

Example = TypeVar("Example")
Batch = TypeVar("Batch")
Batch_co = TypeVar("Batch_co", covariant=True)
# PyTorch's own choice on Linux. Runs side by side are spawned processes, in which "spawn" is the default: every worker
# would then import torch again.
START = "fork" if sys.platform == "linux" else None
AHEAD = 2  # batches that each worker prefetches


class Request(NamedTuple):
    """A batch to load: its number in the epoch, the indices of its examples, and how often the epoch has had each of
    them before."""

    stage: int
    epoch: int
    number: int
    indices: list[int]
    earlier: list[int]


class Source(Protocol[Batch_co]):
    """The batches of an epoch, each divided among the ranks."""

    def length(self, clock: Clock) -> int:
        """The number of batches of this epoch."""
        ...

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[Batch_co]:
        """This rank's part of each batch of the epoch, starting with batch ``start``."""
        ...


class ResidentSource:
    """For examples on the device: a batch is their indices, and the random numbers of each example.

    ``columns`` draws these numbers (crops, flips), for all examples of an epoch at once.
    """

    def __init__(self, sampler: Sampler, seed: int, device: torch.device,
                 columns: Callable[[int, torch.Generator], Sequence[Tensor]] | None = None) -> None:
        self.sampler, self.seed, self.device, self.columns = sampler, seed, device, columns
        self._lengths: dict[tuple[int, int], int] = {}

    def length(self, clock: Clock) -> int:
        epoch = clock[:2]  # with its stage
        if epoch not in self._lengths:
            self._lengths = {epoch: len(self.sampler.batches(generator(self.seed, *epoch)))}
        return self._lengths[epoch]

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[tuple[Tensor, ...]]:
        draw = generator(self.seed, clock.stage, clock.epoch)
        batches = self.sampler.batches(draw)
        order = torch.cat(list(batches)) if batches else torch.empty(0, dtype=torch.long)
        drawn = self.columns(len(order), draw) if self.columns is not None else ()
        columns = [column.to(self.device) for column in (order, *drawn)]
        first = sum(len(batch) for batch in batches[:start])
        for batch in batches[start:]:
            last = first + len(batch)
            yield tuple(column[first + rank : last : world] for column in columns)
            first = last


class Examples(Protocol[Example, Batch_co]):
    """Examples that are loaded one by one and collated to batches. Workers get a copy of this object.

    ``draw`` belongs to the example (or the batch). The global random states of torch, numpy and Python are set from it,
    so that transforms without a generator are reproducible too.
    """

    def example(self, index: int, draw: torch.Generator) -> Example: ...

    def collate(self, examples: list[Example], draw: torch.Generator) -> Batch_co: ...


class LoaderSource(Generic[Example, Batch]):
    """For examples that are read from files or generated, in ``workers`` processes (0: in this one).

    ``move`` copies a loaded batch to the device, in the training process. Up to the epoch ``epochs``, workers start
    with an epoch while the last batches of the previous one are in use.
    """

    def __init__(self, examples: Examples[Example, Batch], sampler: Sampler, seed: int, *, workers: int = 0,
                 move: Callable[[Batch], Batch] | None = None, epochs: int = 0) -> None:
        self.reader: Reader[Example, Any] = Reader(examples, seed)
        self.requests = Requests(sampler, seed, epochs)
        self.sampler, self.workers, self.move = sampler, workers, move
        self._loader: DataLoader[Any] | None = None
        self._running: Iterator[Any] = iter(())
        self._next: ReadPosition | None = None

    def length(self, clock: Clock) -> int:
        return len(self.requests.batches_of(clock))

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[Batch]:
        position = ReadPosition(Clock(*clock[:2]), start, rank, world)
        loaded = self._load(position) if self.workers else map(self.reader.__getitem__, self.requests.after(position))
        received = map(self._received, loaded)
        return received if self.move is None else map(self.move, received)

    def _load(self, position: ReadPosition) -> Iterator[Any]:
        if self._loader is None:
            # The workers stay for all epochs. Without its own generator the loader would draw from torch's global one,
            # which would change dropout.
            with _ignore_worker_count_warning():
                self._loader = DataLoader(_ErrorsAsResults(self.reader), batch_size=None, sampler=self.requests,
                                          collate_fn=_identity, num_workers=self.workers, persistent_workers=True,
                                          prefetch_factor=AHEAD, generator=torch.Generator(),
                                          multiprocessing_context=START)
        if position != self._next or position.clock.epoch > self.requests.epochs:
            self.requests.first = position
            with _ignore_worker_count_warning():
                self._running = iter(self._loader)
        self._next = None  # set again with the last batch of the epoch
        return self._epoch(position, self._running)

    def _epoch(self, position: ReadPosition, running: Iterator[Any]) -> Iterator[Any]:
        count = len(self.requests.batches_of(position.clock)) - position.start
        for number in range(count):
            batch = _raise_if_error(next(running))
            if number == count - 1:
                self._next = position.next()
            yield batch

    def _received(self, answer: Any) -> Batch:
        """The batch that a worker has sent."""
        batch: Batch = answer
        return batch


class ReadPosition(NamedTuple):
    """The batch with which a rank starts to read."""

    clock: Clock
    start: int
    rank: int
    world: int

    def next(self) -> ReadPosition:
        """The start of the next epoch."""
        return self._replace(clock=Clock(self.clock.stage, self.clock.epoch + 1), start=0)


class Requests(Iterable[Any]):
    """The requests to workers: the batches from ``first`` on, of its epoch and of later ones up to ``epochs``.

    It has no reference to the source: workers end as soon as nothing refers to their source.
    """

    def __init__(self, sampler: Sampler, seed: int, epochs: int) -> None:
        self.sampler, self.seed, self.epochs = sampler, seed, epochs
        self.first = ReadPosition(Clock(), 0, 0, 1)
        self._batches: dict[tuple[int, int], Sequence[Tensor]] = {}

    def batches_of(self, clock: Clock) -> Sequence[Tensor]:
        """The batches of an epoch. Two epochs are cached: the current one, and the next one, which workers start."""
        epoch = clock[:2]  # with its stage
        if epoch not in self._batches:
            self._batches = dict(list(self._batches.items())[-1:])
            self._batches[epoch] = self.sampler.batches(generator(self.seed, *epoch))
        return self._batches[epoch]

    def after(self, position: ReadPosition) -> Iterator[Request]:
        """The remaining batches of one epoch."""
        clock, start, rank, world = position
        batches = self.batches_of(clock)
        earlier = torch.split(_earlier(batches), [len(batch) for batch in batches])
        return (Request(clock.stage, clock.epoch, number,
                        *(part[number][rank::world].tolist() for part in (batches, earlier)))
                for number in range(start, len(batches)))

    def __iter__(self) -> Iterator[Any]:
        position = self.first
        yield from self.after(position)
        while position.clock.epoch < self.epochs:
            position = position.next()
            yield from self.after(position)


class Reader(Dataset[Any], Generic[Example, Batch]):
    """Loads the batch of a request, in any process."""

    def __init__(self, examples: Examples[Example, Batch], seed: int) -> None:
        self.examples, self.seed = examples, seed

    def __getitem__(self, request: Request) -> Batch:
        with preserve_random_states():
            examples = list(self.examples_of(request))
            draw = generator(self.seed, request.stage, request.epoch, 1, request.number)
            seed_all(draw)
            return self.examples.collate(examples, draw)

    def examples_of(self, request: Request) -> Iterator[Example]:
        """The examples of a request, one by one; each sets the global random states."""
        for index, earlier in zip(request.indices, request.earlier, strict=True):
            words = (index, earlier) if earlier else (index,)
            draw = generator(self.seed, request.stage, request.epoch, 0, *words)
            seed_all(draw)
            yield self.examples.example(index, draw)


def _earlier(batches: Sequence[Tensor]) -> Tensor:
    """How often each example has come before, over the batches of an epoch.

    >>> _earlier([torch.tensor([7, 3]), torch.tensor([7, 7])])
    tensor([0, 0, 1, 2])
    """
    indices = torch.cat(list(batches)) if batches else torch.empty(0, dtype=torch.long)
    counts = torch.bincount(indices)
    if len(indices) == int((counts > 0).sum()):  # each once, as nearly always: nothing to sort
        return torch.zeros_like(indices)
    by_index = indices.argsort(stable=True)
    starts = counts.cumsum(0) - counts
    earlier = torch.empty_like(indices)
    earlier[by_index] = torch.arange(len(indices)) - starts[indices[by_index]]
    return earlier


class _ErrorsAsResults(Dataset[Any]):
    """A reader in a worker process. It returns DataErrors as results, because torch would raise them again with the
    worker's traceback as the message."""

    def __init__(self, reader: Reader[Any, Any]) -> None:
        self.reader = reader

    def __getitem__(self, request: Request) -> Any:
        try:
            return self.reader[request]
        except DataError as error:
            return error


def _raise_if_error(batch: Any) -> Any:
    if isinstance(batch, DataError):
        raise batch
    return batch


@contextmanager
def _ignore_worker_count_warning() -> Iterator[None]:
    """Torch warns several times per epoch if there are more workers than cores, which is the recipe's choice."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        yield


def _identity(batch: Any) -> Any:
    return batch
