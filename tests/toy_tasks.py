"""Small tasks for the engine's tests: one of tensors, one whose batches are not tensors at all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimiser of a process imports it, for a second or more: here it is done beforehand
from torch import Tensor, nn
from torch.nn import functional as F

from encouraging.data import Clock, generator
from encouraging.engine import Conclusion, Loss, Metric, RunDir, RunSpec, StagePlan, Train, execute, load_weights
from encouraging.tasks import BaseTask, StageSpec, TaskSpec

CPU = torch.device("cpu")
PARTS = {"reset": ("head",), "freeze": ("body",)}  # a second stage: a new output layer on fixed features


def no_spec() -> TaskSpec:
    """For tasks that are made by hand and read nothing of a recipe."""
    return TaskSpec("", "", (StageSpec(Train(epochs=1, lr=0.1)),))


class Blobs(BaseTask[Any]):
    """Three clouds of points in eight dimensions, a network with dropout, and a batch that may go wrong."""

    metrics = (Metric("accuracy", "accuracy", "%", primary=True), Metric("test_loss", "test loss", better="lower"))

    def __init__(self, seed: int = 0, batch_size: int = 16, delay: float = 0.0, poison: int | None = None,
                 dropout: float = 0.2, count: int = 100) -> None:
        super().__init__(no_spec())
        self.seed, self.batch_size, self.delay, self.poison, self.dropout = seed, batch_size, delay, poison, dropout
        draw = generator(7)
        self.y = torch.arange(count) % 3
        centres = torch.randn(3, 8, generator=draw)
        self.x = centres[self.y] + torch.randn(count, 8, generator=draw)
        self.served: list[tuple[int, int, list[int]]] = []

    def build(self) -> nn.Module:
        body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(self.dropout))
        return nn.Sequential(body, nn.Linear(16, 3))

    def parts(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"body": model[0], "head": model[1]}

    def objective(self, clock: Clock) -> float:
        return 0.0 if clock.epoch < 3 else 0.1

    def source(self, stage: int) -> Blobs:
        return self

    def length(self, clock: Clock) -> int:
        return -(-len(self.y) // self.batch_size)

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.y), generator=generator(self.seed, clock.stage, clock.epoch))
        for number in range(start, self.length(clock)):
            time.sleep(self.delay)
            index = order[number * self.batch_size : (number + 1) * self.batch_size][rank::world]
            self.served.append((clock.stage, clock.epoch, index.tolist()))
            x = self.x[index]
            yield (x * torch.nan if self.poison == number and clock.epoch == 2 else x), self.y[index]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor], objective: float) -> Loss:
        x, y = batch
        return Loss(F.cross_entropy(model(x), y, label_smoothing=objective), len(y))

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[dict[str, Any]]:
        yield {"rank": rank, "logits": model(self.x[rank::world])}

    def _logits(self, predictions: Any) -> Tensor:
        logits = torch.empty(len(self.y), 3)
        for piece in predictions:
            logits[piece["rank"] :: len(predictions)] = piece["logits"]
        return logits

    def evaluate(self, predictions: Any) -> dict[str, float]:
        logits = self._logits(predictions)
        return {"accuracy": 100 * (logits.argmax(1) == self.y).double().mean().item(),
                "test_loss": F.cross_entropy(logits, self.y).item()}

    def conclude(self, predictions: Any, last: Any) -> Conclusion:
        logits = self._logits(predictions)
        return Conclusion({"extra": {"mean": logits.mean().item()}}, {"logits": logits, "labels": self.y})


class Words(BaseTask[Any]):
    """Batches are lists of dicts with strings of unequal length; the metric, F1, needs the whole set at once.

    Batches hold as many words as fit a number of characters, as translation's do.
    """

    BUDGET = 40
    metrics = (Metric("f1", "F1", primary=True),)

    def __init__(self) -> None:
        super().__init__(no_spec())
        draw = generator(3)
        sizes = torch.randint(2, 9, (60,), generator=draw).tolist()
        self.examples = [{"text": "".join(chr(97 + int(torch.randint(26, (1,), generator=draw))) for _ in range(size))}
                         for size in sizes]
        for example in self.examples:
            example["label"] = int("a" in example["text"] or "e" in example["text"])

    def build(self) -> nn.Module:
        return nn.EmbeddingBag(26, 2, mode="sum")

    def objective(self, clock: Clock) -> None:
        return None

    def source(self, stage: int) -> Words:
        return self

    def _plan(self, epoch: int) -> list[list[dict[str, Any]]]:
        order = torch.randperm(len(self.examples), generator=generator(0, epoch)).tolist()
        batches: list[list[dict[str, Any]]] = [[]]
        for index in order:
            example = self.examples[index]
            if sum(len(e["text"]) for e in batches[-1]) + len(example["text"]) > self.BUDGET:
                batches.append([])
            batches[-1].append(example)
        return batches

    def length(self, clock: Clock) -> int:
        return len(self._plan(clock.epoch))

    def batches(self, clock: Clock, start: int, rank: int, world: int) -> Iterator[list[dict[str, Any]]]:
        for batch in self._plan(clock.epoch)[start:]:
            yield batch[rank::world]

    def _logits(self, model: nn.Module, examples: list[dict[str, Any]]) -> Tensor:
        letters = torch.tensor([ord(c) - 97 for e in examples for c in e["text"]])
        starts = torch.tensor([0, *(len(e["text"]) for e in examples)]).cumsum(0)[:-1]
        return model(letters, starts)

    def loss(self, model: nn.Module, batch: list[dict[str, Any]], objective: None) -> Loss:
        target = torch.tensor([e["label"] for e in batch])
        return Loss(F.cross_entropy(self._logits(model, batch), target), len(batch))

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[dict[str, Any]]:
        yield {"said": self._logits(model, self.examples).argmax(1).tolist()}

    def evaluate(self, predictions: Any) -> dict[str, float]:
        said = predictions[0]["said"]
        true = [e["label"] for e in self.examples]
        hits = sum(s and t for s, t in zip(said, true, strict=True))
        return {"f1": 2 * hits / max(1, sum(said) + sum(true))}


RICH_STAGES = (
    StagePlan(Train(epochs=8, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, schedule="cosine", accumulate=2,
                    ema=0.9, clip_norm=1.0, batch_size=16, checkpoint_seconds=0)),
    StagePlan(Train(epochs=4, lr=0.01, optimizer="adam", batch_size=16, checkpoint_seconds=0), **PARTS),
)


def run_spec(folder: str | Path, task: Any = None, stages: Any = RICH_STAGES, seed: int = 0, **more: Any) -> RunSpec:
    """A run of the toy task in this folder."""
    task = task or Blobs(seed)
    stages = tuple(stage if isinstance(stage, StagePlan) else StagePlan(stage) for stage in stages)
    config = {"recipe": "toy", "arm": "only", "seed": seed,
              "train": [stage.train.model_dump(mode="json") for stage in stages], "environment-free": True}
    return RunSpec(lambda: task, stages, RunDir(folder), config, seed, CPU, **more)


def run_slowly(folder: str, delay: float) -> None:
    """What the kill test starts as a process of its own."""
    torch.set_num_threads(1)
    execute(run_spec(folder, Blobs(delay=delay)))


def assert_same_run(folder: Path, other: Path) -> None:
    assert (folder / "final.json").read_bytes() == (other / "final.json").read_bytes()
    assert (folder / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert (folder / "logits.safetensors").read_bytes() == (other / "logits.safetensors").read_bytes()
    for which in ("last", "best"):
        ours, theirs = load_weights(folder, which), load_weights(other, which)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
