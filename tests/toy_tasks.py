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

from encouraging.engine import Order, RunDir, Train, execute
from encouraging.tasks import Conclusion
from encouraging.tasks.draw import generator

CPU = torch.device("cpu")


class Blobs:
    """Three clouds of points in eight dimensions, a network with dropout, and a batch that may go wrong."""

    def __init__(self, seed: int = 0, batch_size: int = 16, delay: float = 0.0, poison: int | None = None,
                 dropout: float = 0.2, count: int = 100) -> None:
        self.seed, self.batch_size, self.delay, self.poison, self.dropout = seed, batch_size, delay, poison, dropout
        draw = generator(7)
        self.y = torch.arange(count) % 3
        centres = torch.randn(3, 8, generator=draw)
        self.x = centres[self.y] + torch.randn(count, 8, generator=draw)
        self.served: list[tuple[int, int, list[int]]] = []

    def build(self) -> nn.Module:
        body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(self.dropout))
        return nn.Sequential(body, nn.Linear(16, 3))

    def head(self, model: nn.Module) -> nn.Module:
        return model[1]

    def lesson(self, stage: int, epoch: int) -> float:
        return 0.0 if epoch < 3 else 0.1

    def length(self, stage: int, epoch: int) -> int:
        return -(-len(self.y) // self.batch_size)

    def batches(self, stage: int, epoch: int, start: int, rank: int, world: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.y), generator=generator(self.seed, stage, epoch))
        for number in range(start, self.length(stage, epoch)):
            time.sleep(self.delay)
            index = order[number * self.batch_size : (number + 1) * self.batch_size][rank::world]
            self.served.append((stage, epoch, index.tolist()))
            x = self.x[index]
            yield (x * torch.nan if self.poison == number and epoch == 2 else x), self.y[index]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor], lesson: float) -> tuple[Tensor, int]:
        x, y = batch
        return F.cross_entropy(model(x), y, label_smoothing=lesson), len(y)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        logits = model(self.x)
        return {"accuracy": 100 * (logits.argmax(1) == self.y).double().mean().item(),
                "test_loss": F.cross_entropy(logits, self.y).item()}

    def conclude(self, model: nn.Module) -> Conclusion:
        return Conclusion({"extra": {"mean": model(self.x).mean().item()}},
                          {"logits": model(self.x), "labels": self.y})


class Words:
    """Batches are lists of dicts with strings of unequal length; the metric, F1, needs the whole set at once.

    Batches hold as many words as fit a number of characters, as translation's do.
    """

    BUDGET = 40

    def __init__(self) -> None:
        draw = generator(3)
        sizes = torch.randint(2, 9, (60,), generator=draw).tolist()
        self.examples = [{"text": "".join(chr(97 + int(torch.randint(26, (1,), generator=draw))) for _ in range(size))}
                         for size in sizes]
        for example in self.examples:
            example["label"] = int("a" in example["text"] or "e" in example["text"])

    def build(self) -> nn.Module:
        return nn.EmbeddingBag(26, 2, mode="sum")

    def head(self, model: nn.Module) -> nn.Module:
        return model

    def lesson(self, stage: int, epoch: int) -> None:
        return None

    def _plan(self, epoch: int) -> list[list[dict[str, Any]]]:
        order = torch.randperm(len(self.examples), generator=generator(0, epoch)).tolist()
        batches: list[list[dict[str, Any]]] = [[]]
        for index in order:
            example = self.examples[index]
            if sum(len(e["text"]) for e in batches[-1]) + len(example["text"]) > self.BUDGET:
                batches.append([])
            batches[-1].append(example)
        return batches

    def length(self, stage: int, epoch: int) -> int:
        return len(self._plan(epoch))

    def batches(self, stage: int, epoch: int, start: int, rank: int, world: int) -> Iterator[list[dict[str, Any]]]:
        for batch in self._plan(epoch)[start:]:
            yield batch[rank::world]

    def _logits(self, model: nn.Module, examples: list[dict[str, Any]]) -> Tensor:
        letters = torch.tensor([ord(c) - 97 for e in examples for c in e["text"]])
        starts = torch.tensor([0, *(len(e["text"]) for e in examples)]).cumsum(0)[:-1]
        return model(letters, starts)

    def loss(self, model: nn.Module, batch: list[dict[str, Any]], lesson: None) -> tuple[Tensor, int]:
        target = torch.tensor([e["label"] for e in batch])
        return F.cross_entropy(self._logits(model, batch), target), len(batch)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        said = self._logits(model, self.examples).argmax(1).tolist()
        true = [e["label"] for e in self.examples]
        hits = sum(s and t for s, t in zip(said, true, strict=True))
        return {"f1": 2 * hits / max(1, sum(said) + sum(true))}

    def conclude(self, model: nn.Module) -> Conclusion:
        return Conclusion({})


RICH_PLAN = (
    Train(epochs=8, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4, schedule="cosine", accumulate=2, ema=0.9,
          clip_norm=1.0, batch_size=16, checkpoint_seconds=0),
    Train(epochs=4, lr=0.01, optimizer="adam", batch_size=16, checkpoint_seconds=0),
)


def order(folder: str | Path, task: Any = None, plan: Any = RICH_PLAN, seed: int = 0, **more: Any) -> Order:
    """A run of the toy task in this folder."""
    task = task or Blobs(seed)
    asked = {"recipe": "toy", "arm": "only", "seed": seed, "train": [t.model_dump(mode="json") for t in plan],
             "environment-free": True}
    return Order(lambda: task, plan, RunDir(folder), asked, seed, CPU, **more)


def run_slowly(folder: str, delay: float) -> None:
    """What the kill test starts as a process of its own."""
    torch.set_num_threads(1)
    execute(order(folder, Blobs(delay=delay)))
