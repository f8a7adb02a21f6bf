"""Graph classification on datasets that fit on the device. Every seed has its own split, as in the paper's experiments.

Graphs stay on the device; a batch is the indices of its graphs, which are gathered there. The split of a seed is that
of ``torch.utils.data.random_split`` after ``torch.manual_seed(seed)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from .. import curves
from ..data import Clock, GraphBatch, ResidentGraphs, ResidentSource, read_graphs
from ..engine import Conclusion, Loss, Metric, Needs, Predictions, Task
from ..engine.metric import HIDDEN, PERCENT
from ..engine.settings import Frozen
from ..errors import DataError, RecipeError
from ..imbalance import effective_weights
from ..metrics import Reader, accuracy, correct, excess_risk, read, summary
from ..metrics._calibration import nll
from ..models import Classifier
from ..models.graph_named import build_graph_model, check_graph_model, graph_packages_of
from .classification import POSTERIOR, Classification, readable_curve
from .data_check import check_data
from .joined import joined
from .objective import Objective
from .objective_config import ObjectiveConfig, compared_curves
from .options import read_options
from .spec import TaskSpec

PIECE = 256  # graphs per batch of an evaluation
HOST = torch.device("cpu")


class Options(Frozen):
    """The ``options`` table of a graph recipe: the fractions of training and validation graphs; the others are test
    graphs."""

    train: float = Field(default=0.8, gt=0, lt=1)
    validation: float = Field(default=0.1, gt=0, lt=1)

    @field_validator("validation")
    @classmethod
    def _check_test_graphs(cls, value: float, info: Any) -> float:
        if value + info.data.get("train", 0) >= 1:
            raise ValueError(f"train = {info.data['train']} and validation = {value} leave no graphs for tests")
        return value


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
    *POSTERIOR,
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
    """The metrics of a recipe; those of the best validation epoch only if validation graphs choose the epoch."""
    if (spec.stages[-1].train.monitor or "accuracy").startswith("val_"):
        return METRICS
    return tuple(metric for metric in METRICS if not metric.path.startswith("best_"))


def split_of(count: int, options: Options, seed: int) -> dict[str, Tensor]:
    """The indices of the training, validation and test graphs of a seed.

    >>> {part: len(numbers) for part, numbers in split_of(1113, Options(), 0).items()}
    {'train': 890, 'validation': 111, 'test': 112}
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    first, second = int(count * options.train), int(count * options.validation)
    return {"train": order[:first], "validation": order[first : first + second], "test": order[first + second :]}


class GraphTask(Classification[Tensor]):
    """A dataset of graphs, a network and a loss; a batch is the indices of some training graphs, on the host."""

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
                            "these options. Change options.train and options.validation.")
        self.graphs = ResidentGraphs(graphs, self.device)
        self.labels = graphs.labels.to(self.device)
        self.train_labels = graphs.labels[self.split["train"]]
        counts = torch.bincount(self.train_labels, minlength=self.classes)
        self.weights = [effective_weights(counts, stage.objective.reweight_beta).to(self.device)
                        if stage.objective.reweight_from_epoch else None for stage in spec.stages]
        self._pieces: dict[str, list[GraphBatch]] = {}

    @classmethod
    def check(cls, spec: TaskSpec) -> Needs:
        read_options(Options, spec.options)
        if any(stage.objective.margin is not None for stage in spec.stages):
            raise RecipeError("margin: only image recipes have L-Softmax. Leave it out.", "arms")
        check_graph_model(spec.model, spec.model_options, spec.folder)
        datasets = check_data(spec, ("tu",), ("train", "test"),
                              "is not a dataset of graphs: expected one such as proteins or nci1.")
        return Needs(datasets, graph_packages_of(spec.model), metrics_of(spec), monitors=MONITORS,
                     examples="graphs")

    def kept_bytes(self) -> int:
        return (4 * self.classes + 8) * len(self.split["test"])  # logits, and labels

    def build(self) -> nn.Module:
        return build_graph_model(self.spec.model, self.classes, self.features, self.spec.model_options,
                                 self.spec.folder).to(self.device)

    def parts(self, model: nn.Module) -> Mapping[str, nn.Module]:
        return {"head": model.head, "body": model.body} if isinstance(model, Classifier) else {}

    def source(self, stage: int) -> TrainingGraphs:
        sampler = self.spec.stages[stage - 1].sampler(self.train_labels)
        return TrainingGraphs(ResidentSource(sampler, self.spec.seed, HOST), self.split["train"])

    def loss(self, model: nn.Module, batch: Tensor, objective: tuple[int, Objective]) -> Loss:
        stage, current = objective
        target = self.labels[batch.to(self.device)]
        logits = model(self.graphs.batch(batch))
        loss = current.loss(logits, target, self.weights[stage - 1])
        return replace(loss, sums={"correct": correct(logits.detach(), target).sum(), "examples": len(target)})

    def training_numbers(self, sums: Mapping[str, float]) -> dict[str, float]:
        return {"batch_accuracy": 100 * sums["correct"] / max(sums["examples"], 1)}

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[Predictions]:
        """Logits of the validation and test graphs, at the end also of the training graphs."""
        for name in ("validation", "test", "train") if final else ("validation", "test"):
            pieces = self._evaluation_batches(name)
            for number in range(rank, len(pieces), world):
                yield {"set": name, "number": number, "logits": model(pieces[number])}

    def _evaluation_batches(self, name: str) -> list[GraphBatch]:
        """Gathered once, because they are the same after every epoch."""
        if name not in self._pieces:
            self._pieces[name] = [self.graphs.batch(numbers) for numbers in torch.split(self.split[name], PIECE)]
        return self._pieces[name]

    def evaluate(self, predictions: Sequence[Predictions]) -> dict[str, float]:
        logits = joined(predictions)
        return {**self._measure(logits["test"], self._labels_of("test")),
                **self._measure(logits["validation"], self._labels_of("validation"), "val_")}

    def _labels_of(self, name: str) -> Tensor:
        return self.labels[self.split[name].to(self.labels.device)]

    def conclude(self, predictions: Sequence[Predictions], last: Mapping[str, Any]) -> Conclusion:
        logits = joined(predictions)
        device = logits["test"].device
        tensors = {"logits": logits["test"], "labels": self._labels_of("test").to(device)}
        reader = Reader(self.classes)
        reader.update(tensors["logits"], tensors["labels"])
        train_readings = read(logits["train"], self._labels_of("train").to(device))
        diagnosis = reader.diagnosis(curves=compared_curves(self.spec.stages[0].objective), taught=train_readings,
                                     trained_with=readable_curve(self.spec.stages[-1], last))
        # There are many splits, and the report draws these only with out-of-distribution data.
        for distribution in diagnosis["energy"].values():
            if isinstance(distribution, dict):
                distribution.pop("quantiles", None)
        numbers: dict[str, Any] = summary(diagnosis)
        numbers |= {"train_accuracy": accuracy(train_readings), "train_ce": nll(train_readings),
                    "excess_risk": excess_risk(train_readings, reader.readings)}
        start = bonus_start(self.spec.stages[-1].objective)
        if start is not None:
            numbers["bonus"] = {"began": 100.0 * (last["epoch"] >= start),
                                "used": 100.0 * (last["best_epoch"] >= start)}
        return Conclusion(numbers, tensors, diagnosis)


def bonus_start(objective: ObjectiveConfig) -> int | None:
    """The epoch, counted from 1, in which the bonus begins; None for an arm without a bonus.

    >>> bonus_start(ObjectiveConfig(curve="encouraging", bonus_from_epoch=27)), bonus_start(ObjectiveConfig())
    (27, None)
    """
    late = objective.at(Clock(1, 1_000_000, 0))
    has_bonus = late.bonus if late.curve is None else late.curve != curves.cross_entropy()
    return objective.bonus_from_epoch if has_bonus else None


class TrainingGraphs:
    """The batches of an epoch: indices of graphs in the dataset. ``indices`` are those of the training graphs."""

    def __init__(self, source: ResidentSource, indices: Tensor) -> None:
        self.source, self.indices = source, indices

    def length(self, clock: Clock) -> int:
        return self.source.length(clock)

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[Tensor]:
        return (self.indices[index] for (index,) in self.source.batches(clock, start, rank, world))


_: type[Task[Tensor]] = GraphTask  # mypy: a graph task is a task
