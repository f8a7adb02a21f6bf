"""A task that the package knows nothing of, in one file: boxes, whose loss comes from the model's own forward pass.

Batches are lists of dicts with images of unequal size; some have no box at all. The primary metric, average precision,
needs the detections of all images at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encouraging.curves import Curve
from encouraging.data import LoaderSource, Shuffled, generator
from encouraging.engine import RunDir
from encouraging.losses import sigmoid_curve_loss
from encouraging.recipes import read_recipe
from encouraging.tasks import BaseTask, Conclusion, Loss, Metric, Objective, TaskSpec
from task_laws import (
    assert_close_weights,
    assert_same_bits,
    call,
    page_words,
    run_on_two_ranks,
    train,
    train_with_kills,
)

CELL, COUNT, TESTS = 4, 17, 12  # pixels of a cell; 17 images in batches of 4: the last batch has one
Example = dict[str, Tensor]

RECIPE = f"""
about = "Squares."
task = "{__file__}:Boxes"
seeds = 3
train = {{ epochs = 3, batch_size = 4, optimizer = "adam", lr = 0.03 }}
arms.focal = {{ curve = "focal", link = "sigmoid", divisor = "positives" }}
arms.el = {{ curve = "encouraging", link = "sigmoid", divisor = "positives" }}

[[claims]]
metric = "ap50"
arm = "el"
beats = "focal"

[[claims]]
metric = "centre_error"
arm = "el"
beats = "focal"
better = "lower"
"""


class Squares:
    """Images with 0 to 3 bright squares, made one by one from the generator of each."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def example(self, index: int, draw: torch.Generator) -> Example:
        if self.seed is not None:  # a test image is always the same
            draw = generator(self.seed, index)
        height, width = (CELL * int(side) for side in torch.randint(4, 7, (2,), generator=draw))
        image, boxes = 0.2 * torch.rand(1, height, width, generator=draw), []
        for _ in range(int(torch.randint(4, (), generator=draw))):
            size = int(torch.randint(3, 7, (), generator=draw))
            top, left = (int(torch.randint(side - size, (), generator=draw)) for side in (height, width))
            image[:, top : top + size, left : left + size] = 1.0
            boxes.append([left, top, left + size, top + size])
        return {"image": image, "boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)}

    def collate(self, examples: list[Example], draw: torch.Generator) -> list[Example]:
        return examples


class Detector(nn.Module):
    """Says of every cell whether a box has its centre there, and which; given boxes, it returns its own losses."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 12, 5, padding=2), nn.ReLU(), nn.Conv2d(12, 24, CELL, CELL), nn.ReLU(),
                                  nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(24, 5, 1)

    def forward(self, images: list[Tensor], boxes: list[Tensor] | None = None, curve: Curve | None = None) -> Any:
        cells = [self.head(self.body(image[None]))[0] for image in images]
        if boxes is None or curve is None:
            return [self.detections(cell) for cell in cells]
        losses = [self.losses(cell, box, curve) for cell, box in zip(cells, boxes, strict=True)]
        nothing = sum(param.sum() for param in self.parameters()) * 0.0  # a rank's share may have no image
        return {"loss": sum(losses, nothing), "positives": sum(len(box) for box in boxes)}

    def losses(self, cells: Tensor, boxes: Tensor, curve: Curve) -> Tensor:
        present = torch.zeros_like(cells[0])
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        column, row = (centres / CELL).long().unbind(1)
        present[row, column] = 1
        distance = (cells[1:, row, column].T - boxes / CELL).abs().sum()
        return sigmoid_curve_loss(cells[0], present, curve, reduction="sum") + distance

    @staticmethod
    def detections(cells: Tensor) -> Example:
        scores, order = cells[0].flatten().sigmoid().sort(descending=True, stable=True)
        return {"scores": scores[:5], "boxes": CELL * cells[1:].flatten(1).T[order[:5]]}


class Boxes(BaseTask[list[Example]]):
    metrics = (Metric("ap50", "average precision", "%", 1, primary=True, low=0, high=100),
               Metric("centre_error", "centre error", "pixels", better="lower", low=0))

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        squares = Squares(seed=1)
        self.tests = [squares.example(index, generator(0)) for index in range(TESTS)]

    def build(self) -> nn.Module:
        return Detector()

    def source(self, stage: int) -> LoaderSource[Example, list[Example]]:
        train = self.spec.stages[stage - 1].train
        return LoaderSource(Squares(), Shuffled(COUNT, train.batch_size), self.spec.seed, workers=train.workers)

    def loss(self, model: nn.Module, batch: list[Example], objective: Objective) -> Loss:
        found = model([example["image"] for example in batch], [example["boxes"] for example in batch],
                      objective.curve)
        total, positives = found["loss"], found["positives"]
        return Loss(total / max(positives, 1), positives, total=total, least=1)

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[dict[str, Any]]:
        for number in range(rank, TESTS, world):
            yield {"number": number, **model([self.tests[number]["image"]])[0]}

    def evaluate(self, predictions: Any) -> dict[str, float]:
        pieces = sorted(predictions, key=lambda piece: piece["number"])
        truth = [example["boxes"] for example in self.tests]
        return {"ap50": 100 * average_precision(pieces, truth), "centre_error": centre_error(pieces, truth)}

    def conclude(self, predictions: Any, last: Any) -> Conclusion:
        found = {piece["number"]: piece["boxes"].tolist() for piece in predictions}
        return Conclusion({"detections": 5 * len(found)}, files={"boxes.json": json.dumps(found).encode()})


def overlap(box: Tensor, others: Tensor) -> Tensor:
    sides = (torch.minimum(box[2:], others[:, 2:]) - torch.maximum(box[:2], others[:, :2])).clamp(min=0)
    areas = [(b[..., 2:] - b[..., :2]).clamp(min=0).prod(-1) for b in (box, others)]
    shared = sides.prod(-1)
    return shared / (areas[0] + areas[1] - shared)


def average_precision(pieces: list[dict[str, Any]], truth: list[Tensor]) -> float:
    """The mean, over all true boxes, of the precision at which each is found; not a sum over images."""
    said = sorted(((float(score), number, box) for number, piece in enumerate(pieces)
                   for score, box in zip(piece["scores"], piece["boxes"], strict=True)), key=lambda one: -one[0])
    free = [torch.ones(len(boxes), dtype=torch.bool) for boxes in truth]
    hits, area = 0, 0.0
    for rank, (_, number, box) in enumerate(said, 1):
        match = (overlap(box, truth[number]) > 0.5) & free[number]
        if match.any():
            free[number][match.nonzero()[0]] = False
            hits += 1
            area += hits / rank
    return area / sum(map(len, truth))


def centre_error(pieces: list[dict[str, Any]], truth: list[Tensor]) -> float:
    """From every true box to the nearest detection of its image."""
    distances = [torch.cdist(boxes[:, :2] + boxes[:, 2:], piece["boxes"][:, :2] + piece["boxes"][:, 2:]).amin(1) / 2
                 for piece, boxes in zip(pieces, truth, strict=True)]
    return torch.cat(distances).mean().item()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "squares.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def runs(recipe, tmp_path_factory):
    """Every arm and seed, and what the terminal showed."""
    out = tmp_path_factory.mktemp("runs")
    printed = call("run", recipe, "--out", out, "--device", "cpu", "--jobs", "1", "--threads", "1")
    return out, printed


def test_terminal_page_and_results_have_the_words_of_the_task(runs, tmp_path):
    out, printed = runs
    call("results", out, "-o", tmp_path / "results.md")
    call("report", out, "-o", tmp_path / "page.html")
    results, page = (tmp_path / "results.md").read_text(), page_words(tmp_path / "page.html")
    for words in ("focal seed 0: average precision ", "el beats focal: ap50",
                  "el beats focal: centre_error (lower is better)"):
        assert words in printed, words
    for words in ("Means of the arms. average precision: focal ", "el beats focal on average precision",
                  "el beats focal on the centre error (lower is better)", "centre error, pixels"):
        assert words in page, words
    assert "| arm | n | `ap50` | `centre_error` | seconds per run |" in results
    assert not any("accuracy" in text for text in (printed, results, page))


def test_what_the_task_keeps_is_in_the_run_directory(runs):
    folder = runs[0] / "squares" / "el" / "seed0"
    assert len(json.loads((folder / "files" / "boxes.json").read_text())) == TESTS
    assert RunDir(folder).final()["detections"] == 5 * TESTS
    losses = [line["loss"] for line in RunDir(folder).metrics()]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("workers", "writes"), [((0, 0), (3, 8)), ((2, 0), (5, 6))])
def test_killed_at_any_instant_it_ends_with_the_same_bits(recipe, runs, tmp_path, workers, writes):
    recipes = [read_recipe(recipe, ["train.checkpoint_seconds=0", f"train.workers={number}"]) for number in workers]
    folder = train_with_kills(recipes, writes, tmp_path, "el")
    assert json.loads((folder / "timing.json").read_text())["resumed"] == 2
    assert_same_bits(folder, runs[0] / "squares" / "el" / "seed0")


def test_two_ranks_give_the_numbers_of_one_process(recipe, runs, tmp_path):
    """Although one of them has no image of the last batch, and average precision is no sum."""
    run_on_two_ranks(recipe, tmp_path, "--arm", "el", "--seeds", "1")
    ours, theirs = (out / "squares" / "el" / "seed0" for out in (tmp_path, runs[0]))
    assert_close_weights(ours, theirs)
    for line, expected in zip(RunDir(ours).metrics(), RunDir(theirs).metrics(), strict=True):
        assert line == pytest.approx(expected, rel=1e-4), expected["epoch"]


def test_accumulated_batches_are_one_batch(recipe, tmp_path):
    """Some of the batches have no box: their loss counts all the same."""
    words = ["train.optimizer=sgd", "train.lr=0.01", "train.epochs=2"]
    whole = train(read_recipe(recipe, [*words, "train.batch_size=8"]), tmp_path / "whole", "el")
    parts = train(read_recipe(recipe, [*words, "train.batch_size=1", "train.accumulate=8"]), tmp_path / "parts", "el")
    assert_close_weights(parts, whole)
    for line, expected in zip(RunDir(parts).metrics(), RunDir(whole).metrics(), strict=True):
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-5)
