"""Defaults that most tasks share, as a base class for your own tasks."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from torch import nn

from ..data import Clock, Source
from ..engine import Conclusion, Loss, Metric, Needs, ParameterGroup, Predictions
from ..errors import RecipeError
from .spec import TaskSpec

Batch = TypeVar("Batch")
NEEDED = ("build", "source", "loss", "predict", "evaluate")


class BaseTask(Generic[Batch]):
    """A task with one parameter group, no parts, no probes, no training sums and no final evaluation.

    A subclass declares ``metrics``, one of them primary, and defines :meth:`build`, :meth:`source`, :meth:`loss`,
    :meth:`predict` and :meth:`evaluate`.
    """

    metrics: Sequence[Metric] = ()
    examples: str | None = None  # what batch_size counts, such as "images"; None where the size of batches varies
    counted: str = "samples"  # what a loss's count counts, such as "tokens"
    sums: Sequence[str] = ()
    predicts_with_gradients: bool = False

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self.device = spec.device

    @classmethod
    def check(cls, spec: TaskSpec) -> Needs:
        """Refuse a spec that this task cannot train, and return what it needs; called before any data is read."""
        for name in NEEDED:
            if getattr(cls, name) is getattr(BaseTask, name):
                raise RecipeError(f"{cls.__name__} has no {name}(): a task defines {', '.join(NEEDED)}.", "task")
        if sum(metric.primary for metric in cls.metrics) != 1:
            raise RecipeError(f"{cls.__name__} declares {sum(metric.primary for metric in cls.metrics)} primary "
                              "metrics: expected one, as in metrics = (Metric(\"accuracy\", \"accuracy\", \"%\", "
                              "primary=True),).", "task")
        return Needs(metrics=cls.metrics, examples=cls.examples)

    def build(self) -> nn.Module:
        raise NotImplementedError(f"{type(self).__name__} has no build(): it returns the model.")

    def parts(self, model: nn.Module) -> Mapping[str, nn.Module]:
        return {}

    def groups(self, model: nn.Module) -> Sequence[ParameterGroup]:
        return [ParameterGroup(list(model.parameters()))]

    def source(self, stage: int) -> Source[Batch]:
        raise NotImplementedError(f"{type(self).__name__} has no source(stage): it returns the batches to train on.")

    def objective(self, clock: Clock) -> Hashable:
        return self.spec.stages[clock.stage - 1].objective.at(clock)

    def loss(self, model: nn.Module, batch: Batch, objective: Any) -> Loss:
        raise NotImplementedError(f"{type(self).__name__} has no loss(model, batch, objective).")

    def probes(self, clock: Clock) -> Mapping[str, Hashable]:
        return {}

    def training_numbers(self, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {}

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        raise NotImplementedError(f"{type(self).__name__} has no predict(model, final, rank, world).")

    def evaluate(self, predictions: Sequence[Predictions]) -> Mapping[str, float]:
        raise NotImplementedError(f"{type(self).__name__} has no evaluate(predictions).")

    def kept_bytes(self) -> int:
        return 0

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        return Conclusion({})
