"""Graph classification on sets that fit the device. Every seed is a split of its own, as the paper's experiments are.

Graphs stay on the device; a batch is the numbers of its graphs, which are gathered there. The split of a seed is that
of ``torch.utils.data.random_split`` after ``torch.manual_seed(seed)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field, ValidationError, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from .. import curves
from ..curves import Curve
from ..data import (
    ClassBalanced,
    Clock,
    GraphBatch,
    ResidentGraphs,
    ResidentSource,
    Sampler,
    Shuffled,
    dataset,
    read_graphs,
)
from ..engine import Conclusion, Loss, Metric, Needs, Predictions, Task
from ..engine.explain import explain
from ..engine.settings import Frozen
from ..errors import DataError, RecipeError
from ..imbalance import effective_weights
from ..metrics import Reader, accuracy, correct, excess_risk, read, summary
from ..metrics._calibration import nll
from ..metrics._teaching import usual
from ..models import Classifier
from ..models.graph_named import build_graph_model, check_graph_model, graph_extras_of
from ..plugins import is_reference
from .base import BaseTask
from .joined import joined
from .objective import Objective, ObjectiveConfig
from .spec import TaskSpec

PIECE = 256  # graphs that are evaluated at once
HOST = torch.device("cpu")
PERCENT: dict[str, Any] = {"unit": "%", "low": 0, "high": 100}
HIDDEN: dict[str, Any] = {"shown": False}


class Options(Frozen):
    """The ``options`` table of a graph recipe: the shares of training and validation graphs; the rest are for tests."""

    train: float = Field(default=0.8, gt=0, lt=1)
    validation: float = Field(default=0.1, gt=0, lt=1)

    @field_validator("validation")
    @classmethod
    def _leaves_a_test_set(cls, given: float, info: Any) -> float:
        if given + info.data.get("train", 0) >= 1:
            raise ValueError(f"train = {info.data['train']} and validation = {given} leave no graphs for tests")
        return given


METRICS = (
    Metric("accuracy", "test accuracy", **PERCENT, primary=True, about="Test accuracy is that of the last epoch."),
    Metric("best_accuracy", "test accuracy at the best validation epoch", **PERCENT,
           about="That of the best validation epoch, which the paper reports, is the first epoch's with the highest "
                 "validation accuracy; a seed is a split."),
    Metric("val_accuracy", "validation accuracy", **PERCENT, **HIDDEN),
    Metric("best_val_accuracy", "best validation accuracy", **PERCENT),
    Metric("bonus.began", "splits in which the bonus began", "%", 0, low=0, high=100,
           about="A split that stops early may never reach the epoch at which the bonus begins, or may choose an "
                 "earlier epoch: its test accuracy is then cross-entropy's."),
    Metric("bonus.used", "splits whose chosen epoch had the bonus", "%", 0, low=0, high=100),
    Metric("best_epoch", "best validation epoch", digits=1, better="lower", **HIDDEN),
    Metric("epochs", "epochs", digits=1, better="lower", **HIDDEN),
    Metric("test_loss", "test cross-entropy", "nats", 3, better="lower", log=True, **HIDDEN),
    Metric("val_loss", "validation cross-entropy", "nats", 3, better="lower", log=True, **HIDDEN),
    Metric("excess_risk", "excess risk", "%", better="lower", about="Excess risk is training minus test accuracy."),
    Metric("ece", "calibration error", digits=4, better="lower", low=0, high=1,
           about="Excess risk, margins, energies and calibration are those of the model that the recipe concludes on."),
    Metric("nll", "negative log-likelihood", digits=3, better="lower", low=0, **HIDDEN),
    Metric("margin.median", "median margin"),
    Metric("margin.mean", "mean margin", **HIDDEN),
    Metric("energy.label", "energy on the data", better="lower"),
    Metric("energy.rival", "lowest rival energy"),
    Metric("train_accuracy", "training accuracy", **PERCENT, **HIDDEN),
    Metric("batch_accuracy", "accuracy on training batches", **PERCENT, **HIDDEN),
    Metric("gradient_norm_ratio.ce", "gradient norm over cross-entropy's", **HIDDEN),
)
MONITORS = ("accuracy", "val_accuracy", "test_loss", "val_loss", "batch_accuracy")


def metrics_of(spec: TaskSpec) -> tuple[Metric, ...]:
    """What is measured; an epoch that the test graphs choose is not called the best validation epoch."""
    if (spec.stages[-1].train.monitor or "accuracy").startswith("val_"):
        return METRICS
    return tuple(metric for metric in METRICS if not metric.path.startswith("best_"))


def split_of(count: int, options: Options, seed: int) -> dict[str, Tensor]:
    """Which graphs train, validate and test: the split of a seed.

    >>> {part: len(numbers) for part, numbers in split_of(1113, Options(), 0).items()}
    {'train': 890, 'validation': 111, 'test': 112}
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    first, second = int(count * options.train), int(count * options.validation)
    return {"train": order[:first], "validation": order[first : first + second], "test": order[first + second :]}


class GraphTask(BaseTask[Tensor]):
    """A dataset of graphs, a network and a loss; a batch is the numbers of some training graphs, on the host."""

    metrics: Sequence[Metric] = METRICS
    sums = ("correct", "examples")

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        self.metrics = metrics_of(spec)
        graphs = read_graphs(spec.data, spec.root, spec.folder)
        self.classes, self.features = graphs.classes, graphs.features
        self.split = split_of(len(graphs), Options(**spec.options), spec.seed)
        if not all(len(numbers) for numbers in self.split.values()):
            raise DataError(f"{spec.data} has {len(graphs)} graphs: too few for training, validation and tests with "
                            "these options.train and options.validation.")
        self.graphs = ResidentGraphs(graphs, self.device)
        self.labels = graphs.labels.to(self.device)
        self.train_labels = graphs.labels[self.split["train"]]
        counts = torch.bincount(self.train_labels, minlength=self.classes)
        self.weights = [effective_weights(counts, stage.objective.reweight_beta).to(self.device)
                        if stage.objective.reweight_from_epoch else None for stage in spec.stages]
        self._pieces: dict[str, list[GraphBatch]] = {}

    @classmethod
    def check(cls, spec: TaskSpec) -> Needs:
        try:
            Options(**spec.options)
        except ValidationError as error:
            raise RecipeError(explain(error, ("options",), lambda _: list(Options.model_fields))) from error
        if any(stage.objective.margin is not None for stage in spec.stages):
            raise RecipeError("margin: L-Softmax belongs to the networks for images.", "arms")
        for stage in spec.stages:
            better = {metric.path: metric.better for metric in METRICS if metric.path in MONITORS}.get(
                stage.train.monitor or "")
            if better is not None and better != stage.train.better:
                raise RecipeError(f"monitor = {stage.train.monitor!r} with better = {stage.train.better!r} would "
                                  f"choose the worst epoch. Add better = {better!r}.", "train")
        check_graph_model(spec.model, spec.model_options, spec.folder)
        datasets = []
        if not is_reference(spec.data) and not spec.data.startswith("folder:"):
            if dataset(spec.data).reader != "tu":
                raise RecipeError(f"{spec.data} holds images: expected graphs, such as proteins or nci1.", "data")
            datasets.append((spec.data, ("train", "test")))
        return Needs(datasets, graph_extras_of(spec.model), metrics_of(spec), monitors=MONITORS)

    def build(self) -> nn.Module:
        return build_graph_model(self.spec.model, self.classes, self.features, self.spec.model_options,
                                 self.spec.folder).to(self.device)

    def parts(self, model: nn.Module) -> Mapping[str, nn.Module]:
        return {"head": model.head, "body": model.body} if isinstance(model, Classifier) else {}

    def source(self, stage: int) -> TrainingGraphs:
        here = self.spec.stages[stage - 1]
        sampling, size = here.sampling, here.train.batch_size
        sampler: Sampler
        if sampling.kind == "class_balanced":
            sampler = ClassBalanced(self.train_labels, size, sampling.per_class)
        else:
            sampler = Shuffled(len(self.train_labels), size, here.train.shuffle and sampling.kind == "shuffled")
        return TrainingGraphs(ResidentSource(sampler, self.spec.seed, HOST), self.split["train"])

    def objective(self, clock: Clock) -> tuple[int, Objective]:
        return clock.stage, self.spec.stages[clock.stage - 1].objective.at(clock)

    def probes(self, clock: Clock) -> dict[str, tuple[int, Objective]]:
        return {"ce": (clock.stage, Objective(curves.cross_entropy()))}

    def loss(self, model: nn.Module, batch: Tensor, objective: tuple[int, Objective]) -> Loss:
        stage, taught = objective
        target = self.labels[batch.to(self.device)]
        logits = model(self.graphs.batch(batch))
        loss = taught.loss(logits, target, self.weights[stage - 1])
        return replace(loss, sums={"correct": correct(logits.detach(), target).sum(), "examples": len(target)})

    def training_numbers(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"batch_accuracy": 100 * sums["correct"] / max(sums["examples"], 1)}

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """Logits of the validation and test graphs, at the end also of the training graphs."""
        for name in ("validation", "test", "train") if final else ("validation", "test"):
            pieces = self._gathered(name)
            for number in range(rank, len(pieces), world):
                yield {"set": name, "number": number, "logits": model(pieces[number])}

    def _gathered(self, name: str) -> list[GraphBatch]:
        """Put together once: they are the same after every epoch."""
        if name not in self._pieces:
            self._pieces[name] = [self.graphs.batch(numbers) for numbers in torch.split(self.split[name], PIECE)]
        return self._pieces[name]

    def evaluate(self, predictions: Sequence[Predictions]) -> dict[str, float]:
        logits = joined(predictions)
        return {**self._measure(logits, "test", "accuracy", "test_loss"),
                **self._measure(logits, "validation", "val_accuracy", "val_loss")}

    def _measure(self, logits: Mapping[str, Tensor], name: str, accuracy: str, loss: str) -> dict[str, float]:
        said, labels = logits[name], self._labels_of(name, logits[name].device)
        right, cost = torch.stack([correct(said, labels).sum().double(), F.cross_entropy(said, labels).double()]
                                  ).tolist()
        return {accuracy: 100 * right / len(labels), loss: cost}

    def _labels_of(self, name: str, device: torch.device) -> Tensor:
        return self.labels[self.split[name].to(self.labels.device)].to(device)

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        logits = joined(predictions)
        device = logits["test"].device
        kept = {"logits": logits["test"], "labels": self._labels_of("test", device)}
        reader = Reader(self.classes)
        reader.update(kept["logits"], kept["labels"])
        taught = read(logits["train"], self._labels_of("train", device))
        diagnosis = reader.diagnosis(curves=self._taught_curves(), taught=taught)
        for spread in diagnosis["energy"].values():  # nothing draws them without out-of-distribution data, and there
            if isinstance(spread, dict):  # are many splits
                spread.pop("quantiles", None)
        numbers: dict[str, Any] = summary(diagnosis)
        numbers |= {"train_accuracy": accuracy(taught), "train_ce": nll(taught),
                    "excess_risk": excess_risk(taught, reader.readings)}
        start = bonus_start(self.spec.stages[-1].objective)
        if start is not None:
            numbers["bonus"] = {"began": 100.0 * (last["epoch"] >= start),
                                "used": 100.0 * (last["best_epoch"] >= start)}
        return Conclusion(numbers, kept, diagnosis)

    def _taught_curves(self) -> dict[str, Curve]:
        """The arm's own loss beside the usual ones."""
        own = self.spec.stages[0].objective.at(Clock(1, 1_000_000, 1_000_000_000)).curve
        return usual() | ({repr(own): own} if own is not None and own not in usual().values() else {})


def bonus_start(objective: ObjectiveConfig) -> int | None:
    """The epoch, counted from 1, at which the bonus begins; None for an arm without one.

    >>> bonus_start(ObjectiveConfig(curve="encouraging", bonus_from_epoch=27)), bonus_start(ObjectiveConfig())
    (27, None)
    """
    late = objective.at(Clock(1, 1_000_000, 0))
    has_bonus = late.bonus if late.curve is None else late.curve != curves.cross_entropy()
    return objective.bonus_from_epoch if has_bonus else None


class TrainingGraphs:
    """The batches of an epoch: numbers of graphs of the whole dataset."""

    def __init__(self, source: ResidentSource, numbers: Tensor) -> None:
        self.source, self.numbers = source, numbers

    def length(self, clock: Clock) -> int:
        return self.source.length(clock)

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[Tensor]:
        return (self.numbers[index] for (index,) in self.source.batches(clock, start, rank, world))


_: type[Task[Tensor]] = GraphTask  # mypy: a graph task is a task
