"""The interface between the engine and a task. The engine never looks inside a batch: it can be tensors, graphs or
lists of boxes."""

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
    """The loss of a batch: its mean, the number of items that the mean is over (examples, tokens, boxes), and sums to
    report.

    The loss of an update over several batches or ranks is the sum of their totals divided by the sum of their counts,
    or by ``least`` if that is larger. ``total`` is the mean times the count unless it is given; give it if a batch with
    a count of 0 can have a loss (images without a box). A count of 0 without a total needs a mean of 0. ``sums`` has
    the names of the task's ``sums``.
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
        """The number that the mean of this batch alone is over."""
        if not self.least:
            return self.count
        return self.count.clamp(min=self.least) if isinstance(self.count, Tensor) else max(self.count, self.least)


class ParameterGroup(NamedTuple):
    """Parameters with the same learning rate and weight decay: ``lr_scale`` multiplies the recipe's rate, and
    ``weight_decay`` replaces its decay."""

    params: Sequence[nn.Parameter]
    lr_scale: float = 1.0
    weight_decay: float | None = None


@dataclass(frozen=True)
class Needs:
    """What a recipe's task needs before it can start, and what it will measure.

    ``datasets`` are names with their parts, ``packages`` the optional packages that a run imports, by the names for
    ``import``. ``incidental`` are options that change how a run is carried out but not what it computes: it may be
    resumed with other values.
    ``monitors`` are the numbers of every epoch that may choose the best one; the default is all metrics. ``examples``
    is what ``batch_size`` counts ("images"), for the speed that is shown; None where the size of batches varies.
    """

    datasets: Sequence[tuple[str, tuple[str, ...]]] = ()
    packages: Sequence[str] = ()
    metrics: Sequence[Metric] = ()
    incidental: Sequence[str] = ()
    monitors: Sequence[str] | None = None
    examples: str | None = None

    @property
    def monitored(self) -> Sequence[str]:
        """The values that ``train.monitor`` may have."""
        if self.monitors is not None:
            return self.monitors
        return [metric.path for metric in self.metrics if not metric.path.startswith("best_")]

    @property
    def primary(self) -> Metric | None:
        return next((metric for metric in self.metrics if metric.primary), None)


@dataclass(frozen=True)
class Conclusion:
    """The results of the final evaluation: more numbers, tensors to keep, a diagnosis to draw, files by name.

    Text that a part of the diagnosis quotes from the data is under ``sentences``, which records leave out.
    """

    numbers: Mapping[str, Any]
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    diagnosis: Mapping[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)


class Task(Protocol[Batch]):
    """Data, model, loss and metrics of one arm and one seed.

    Everything random in a source must follow from the seed, the clock and the index of an example or batch, so that a
    run can resume at any batch. A batch made only of tensors (in tuples, lists or dicts) can be recorded in a CUDA
    graph. :class:`encouraging.tasks.BaseTask` has defaults for most methods.
    """

    @property
    def metrics(self) -> Sequence[Metric]:
        """What the task measures; tables, figures and claims use nothing else."""
        ...

    @property
    def sums(self) -> Sequence[str]:
        """The names of the sums that the loss reports."""
        ...

    @property
    def predicts_with_gradients(self) -> bool:
        """Whether :meth:`predict` needs gradients (attacks do); otherwise it runs under ``torch.no_grad``."""
        ...

    def build(self) -> nn.Module:
        """The model, freshly initialised from torch's random state, on the task's device."""
        ...

    def parts(self, model: nn.Module) -> Mapping[str, nn.Module]:
        """The parts that stages may reset or freeze, by name: "head", "body"."""
        ...

    def groups(self, model: nn.Module) -> Sequence[ParameterGroup]:
        """The model's parameters as groups for the optimiser; the engine leaves out those without gradients."""
        ...

    def source(self, stage: int) -> Source[Batch]:
        """The batches of a stage, counted from 1."""
        ...

    def objective(self, clock: Clock) -> Hashable:
        """The current objective (a curve, class weights); for a new value the engine records a new CUDA graph."""
        ...

    def loss(self, model: nn.Module, batch: Batch, objective: Any) -> Loss:
        """The loss of a batch, which the engine differentiates."""
        ...

    def probes(self, clock: Clock) -> Mapping[str, Hashable]:
        """Other objectives, by name, whose gradient norms are compared with that of the current objective."""
        ...

    def training_numbers(self, sums: Mapping[str, float]) -> Mapping[str, float]:
        """An epoch's sums as numbers for its line."""
        ...

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """The model's predictions on this rank's part of the evaluation sets, in pieces; the model is in evaluation
        mode. ``final`` is true in the last evaluation, where :meth:`conclude` needs more."""
        ...

    def evaluate(self, predictions: Sequence[Predictions]) -> Mapping[str, float]:
        """The numbers of an epoch, from the pieces of all ranks in the order of ranks."""
        ...

    def kept_bytes(self) -> int:
        """The size of the tensors that :meth:`conclude` keeps, for the estimate of ``--dry-run``; 0 if it keeps none.
        """
        ...

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        """The results of the final evaluation, from the pieces of a final :meth:`predict` and the line of the last
        epoch, with ``best_epoch`` and ``lines`` (of all epochs of the stage) added."""
        ...
