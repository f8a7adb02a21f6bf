"""What the engine asks of a task. It never looks inside a batch: that may be tensors, graphs or lists of boxes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor, nn

from ..data import Clock, Source
from .metric import Metric

Batch = TypeVar("Batch")
Predictions = Mapping[str, Any]


@dataclass(slots=True)
class Loss:
    """The loss of a batch: its mean, what it is the mean over (examples, tokens, boxes), and sums to report.

    An update over several batches or ranks is the sum of their totals divided by the sum of their counts, which is
    raised to ``least`` where it is smaller. ``total`` is the mean times the count unless it is given; give it where a
    batch can have a loss although its count is 0 (images without a box). A count of 0 without a total needs a mean of
    0. ``sums`` has the names of the task's ``sums``.
    """

    mean: Tensor
    count: int | float | Tensor
    sums: Mapping[str, Tensor | float] = field(default_factory=dict)
    total: Tensor | None = None
    least: float = 0.0

    def sum(self) -> Tensor:
        """What this batch adds to the total of an update."""
        return self.mean * self.count if self.total is None else self.total

    def size(self) -> int | float | Tensor:
        """What the mean of this batch alone is over."""
        if not self.least:
            return self.count
        return self.count.clamp(min=self.least) if isinstance(self.count, Tensor) else max(self.count, self.least)


class ParameterGroup(NamedTuple):
    """Parameters that share a rate and a decay: ``lr_scale`` multiplies the rate, ``weight_decay`` replaces the decay
    of the recipe."""

    params: Sequence[nn.Parameter]
    lr_scale: float = 1.0
    weight_decay: float | None = None


@dataclass(frozen=True)
class Needs:
    """What a recipe's task needs before it can start, and what it will measure.

    ``datasets`` are names with their parts, ``extras`` those of this package's optional dependencies. ``incidental``
    are options that say how a run is carried out and not what it computes: it may be resumed with other values.
    ``monitors`` are the numbers of every epoch, one of which may choose the best; by default all metrics may.
    """

    datasets: Sequence[tuple[str, tuple[str, ...]]] = ()
    extras: Sequence[str] = ()
    metrics: Sequence[Metric] = ()
    incidental: Sequence[str] = ()
    monitors: Sequence[str] | None = None

    @property
    def monitored(self) -> Sequence[str]:
        """What ``train.monitor`` may name."""
        if self.monitors is not None:
            return self.monitors
        return [metric.path for metric in self.metrics if not metric.path.startswith("best_")]

    @property
    def primary(self) -> Metric | None:
        return next((metric for metric in self.metrics if metric.primary), None)


@dataclass(frozen=True)
class Conclusion:
    """What is measured once, at the end: more numbers, tensors to keep, a diagnosis to draw, files by their names."""

    numbers: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    diagnosis: Mapping[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


class Task(Protocol[Batch]):
    """Data, model, loss and metrics of one arm and one seed.

    Everything random in a source must follow from the seed, the clock and the index of an example or batch: that is
    what makes a run resume at any batch. A batch made only of tensors (in tuples, lists or dicts) can go into a CUDA
    graph. :class:`encouraging.tasks.BaseTask` has an answer to most questions.
    """

    @property
    def metrics(self) -> Sequence[Metric]:
        """What is measured; tables, pictures and claims read nothing else."""
        ...

    @property
    def sums(self) -> Sequence[str]:
        """The names of what the loss reports beside itself."""
        ...

    @property
    def predicts_with_gradients(self) -> bool:
        """Whether :meth:`predict` differentiates (attacks do); else it runs under ``torch.no_grad``."""
        ...

    def build(self) -> nn.Module:
        """The model, freshly initialised from torch's random state, on the task's device."""
        ...

    def parts(self, model: nn.Module) -> Mapping[str, nn.Module]:
        """What stages may reset or freeze, by name: "head", "body"."""
        ...

    def groups(self, model: nn.Module) -> Sequence[ParameterGroup]:
        """The model's parameters as the optimiser sees them; those that do not learn are left out by the engine."""
        ...

    def source(self, stage: int) -> Source[Batch]:
        """The batches of a stage, counted from 1."""
        ...

    def objective(self, clock: Clock) -> Hashable:
        """What is taught now (a curve, class weights); a new value makes the engine record a new CUDA graph."""
        ...

    def loss(self, model: nn.Module, batch: Batch, objective: Any) -> Loss:
        """The loss of a batch, for the engine to differentiate."""
        ...

    def probes(self, clock: Clock) -> Mapping[str, Hashable]:
        """Other objectives whose gradients are looked at beside the own one, by name."""
        ...

    def training_numbers(self, sums: Mapping[str, float]) -> Mapping[str, float]:
        """An epoch's sums as numbers for its line."""
        ...

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """This rank's share of what the model says about the evaluation sets, piece by piece; the model is in
        evaluation mode. ``final`` is the last time, when :meth:`conclude` asks for more."""
        ...

    def evaluate(self, predictions: Sequence[Predictions]) -> Mapping[str, float]:
        """The numbers of an epoch, from the pieces of all ranks: rank 0's first, each in the order it was made."""
        ...

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        """What is measured once, from the pieces of a final :meth:`predict` and the line of the last epoch, to which
        ``best_epoch`` and ``lines``, those of all epochs of the stage, are added."""
        ...
