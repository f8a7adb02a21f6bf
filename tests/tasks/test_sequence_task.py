"""A task that the package knows nothing of, in one file: sequences of unequal length with two metrics of their own."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encouraging.data import ByTokens, LoaderSource, generator
from encouraging.engine import RunDir
from encouraging.errors import RunError
from encouraging.recipes import read_recipe
from encouraging.tasks import BaseTask, Loss, Metric, Objective, TaskSpec
from task_laws import (
    assert_close_weights,
    assert_same_bits,
    call,
    page_words,
    run_on_two_ranks,
    train,
    train_with_kills,
)

LETTERS, END = 7, 6  # every letter is answered by its sum with the letter before it, up to the first sum that is END
Batch = tuple[Tensor, Tensor]

RECIPE = f"""
about = "Sequences."
task = "{__file__}:Answers"
seeds = 3
train = {{ epochs = 3, batch_size = 48, optimizer = "adam", lr = 0.02, accumulate = 2 }}
arms.ce = {{ curve = "cross_entropy", ignore_index = -1, divisor = "tokens" }}
arms.el = {{ curve = "encouraging", ignore_index = -1, divisor = "tokens" }}

[[claims]]
metric = "exact_match"
arm = "el"
beats = "ce"

[[claims]]
metric = "length_error"
arm = "el"
beats = "ce"
better = "lower"
"""


def draw_sequences(count: int, seed: int) -> list[Tensor]:
    draw = generator(seed)
    lengths = torch.randint(2, 13, (count,), generator=draw).tolist()
    return [torch.randint(LETTERS, (length,), generator=draw) for length in lengths]


def answer(question: Tensor) -> Tensor:
    before = torch.cat([question.new_zeros(1), question[:-1]])
    said = (question + before) % LETTERS
    ends = (said == END).nonzero()
    return said[: int(ends[0]) + 1] if len(ends) else said


class Sequences:
    """Examples that are made in worker processes, with noise from the generator, torch, and Python's random module."""

    def __init__(self, questions: list[Tensor]) -> None:
        self.questions = questions

    def example(self, index: int, draw: torch.Generator) -> Batch:
        question = self.questions[index].clone()
        target = torch.full_like(question, -1)
        said = answer(question)
        target[: len(said)] = said
        if random.random() < 0.3:
            question[int(torch.randint(len(question), (), generator=draw))] = int(torch.randint(LETTERS, ()))
        return question, target

    def collate(self, examples: list[Batch], draw: torch.Generator) -> Batch:
        pad = nn.utils.rnn.pad_sequence
        if not examples:  # a rank's share of a batch with fewer examples than ranks
            return torch.empty(0, 1, dtype=torch.long), torch.empty(0, 1, dtype=torch.long)
        questions, targets = zip(*examples, strict=True)
        return pad(list(questions), True, 0), pad(list(targets), True, -1)


class Network(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.letters, self.drop = nn.Embedding(LETTERS, 16), nn.Dropout(dropout)
        self.hidden, self.out = nn.Linear(32, 48), nn.Linear(48, LETTERS)

    def forward(self, questions: Tensor) -> Tensor:
        letters = self.letters(questions)
        before = torch.cat([torch.zeros_like(letters[:, :1]), letters[:, :-1]], 1)
        logits: Tensor = self.out(self.drop(self.hidden(torch.cat([letters, before], -1)).relu()))
        return logits


class Answers(BaseTask[Batch]):
    metrics = (
        Metric("exact_match", "exact match", "%", 1, primary=True, low=0, high=100,
               about="Exact match is the share of sequences that are answered without a mistake."),
        Metric("length_error", "length error", "tokens", better="lower", low=0),
    )
    sums = ("tokens",)

    def __init__(self, spec: TaskSpec) -> None:
        super().__init__(spec)
        self.questions, self.tests = draw_sequences(48, 0), draw_sequences(50, 1)

    def build(self) -> nn.Module:
        return Network(float(self.spec.model_options.get("dropout", 0.2)))

    def source(self, stage: int) -> LoaderSource[Batch, Batch]:
        train = self.spec.stages[stage - 1].train
        sampler = ByTokens(torch.tensor([len(question) for question in self.questions]), train.batch_size)
        return LoaderSource(Sequences(self.questions), sampler, self.spec.seed, workers=train.workers)

    def loss(self, model: nn.Module, batch: Batch, objective: Objective) -> Loss:
        questions, target = batch
        loss = objective.loss(model(questions).flatten(0, 1), target.flatten())
        return replace(loss, sums={"tokens": (target >= 0).sum()})

    def training_numbers(self, sums: Any) -> dict[str, float]:
        return {"tokens_seen": sums["tokens"]}

    def predict(self, model: nn.Module, final: bool, rank: int, world: int) -> Iterator[dict[str, Any]]:
        for number in range(rank, len(self.tests), world):
            yield {"number": number, "said": model(self.tests[number][None])[0].argmax(-1).tolist()}

    def evaluate(self, predictions: Any) -> dict[str, float]:
        right = errors = 0
        assert len({piece["number"] for piece in predictions}) == len(self.tests)
        for piece in predictions:
            expected = answer(self.tests[piece["number"]]).tolist()
            said = piece["said"]
            said = said[: said.index(END) + 1] if END in said else said
            right += said == expected
            errors += abs(len(said) - len(expected))
        return {"exact_match": 100 * right / len(self.tests), "length_error": errors / len(self.tests)}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "sequences.toml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def runs(recipe, tmp_path_factory):
    """Every arm and seed, and what the terminal showed."""
    out = tmp_path_factory.mktemp("runs")
    printed = call("run", recipe, "--out", out, "--device", "cpu", "--jobs", "1", "--threads", "1")
    return out, printed


def test_the_terminal_shows_both_metrics_and_judges_both_claims(runs):
    _, printed = runs
    assert "ce seed 0: exact match " in printed
    assert ", best exact match " in printed
    assert "el beats ce: exact_match" in printed
    assert "el beats ce: length_error (lower is better)" in printed
    assert "accuracy" not in printed


def test_every_epoch_has_the_metrics_and_the_sums(runs):
    lines = RunDir(runs[0] / "sequences" / "ce" / "seed0").metrics()
    assert len(lines) == 3
    tokens = sum(len(answer(question)) for question in draw_sequences(48, 0))
    for line in lines:
        assert 0 <= line["exact_match"] <= 100
        assert line["length_error"] >= 0
        assert line["tokens_seen"] == tokens
    assert all(later["loss"] < earlier["loss"] for earlier, later in pairwise(lines))


def test_the_page_speaks_of_the_tasks_own_metrics(runs, tmp_path):
    """Also the page that ``report`` writes from records alone, where neither recipe nor task can be found."""
    out, _ = runs
    call("collect", out, "-o", tmp_path / "records")
    call("report", tmp_path / "records", "-o", tmp_path / "page.html")
    for page in (out / "sequences" / "report.html", tmp_path / "page.html"):
        text = page_words(page)
        for words in ("Means of the arms. exact match: ce ", "el beats ce on exact match",
                      "el beats ce on the length error (lower is better)", "length error, tokens",
                      "Exact match is the share of sequences", "Training curves. Exact match"):
            assert words in text, words
        assert "accuracy" not in text.lower()


@pytest.mark.parametrize("kind", ["runs", "records"])
def test_the_page_of_results_has_both_metrics(runs, tmp_path, kind):
    folder = runs[0]
    if kind == "records":
        call("collect", folder, "-o", folder := tmp_path / "records")
    call("results", folder, "-o", tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    for words in ("## sequences", "| arm | n | `exact_match` | `length_error` | seconds per run |",
                  "el beats ce on `exact_match`", "el beats ce on `length_error`, lower is better"):
        assert words in text, words
    assert "accuracy" not in text


# The file of a checkpoint at which a run is killed: the tensors of the second one, then the JSON file of a later one.
@pytest.mark.parametrize(("workers", "writes"), [((0, 0), (3, 8)), ((2, 2), (5, 6)), ((0, 2), (3, 10))])
def test_killed_at_any_instant_it_ends_with_the_same_bits(recipe, runs, tmp_path, workers, writes):
    recipes = [read_recipe(recipe, ["train.checkpoint_seconds=0", f"train.workers={number}"]) for number in workers]
    folder = train_with_kills(recipes, writes, tmp_path, "el")
    assert json.loads((folder / "timing.json").read_text())["resumed"] == 2
    assert_same_bits(folder, runs[0] / "sequences" / "el" / "seed0")


def test_two_ranks_give_the_numbers_of_one_process(recipe, tmp_path):
    """Without dropout, whose random numbers each rank draws for itself."""
    words = ("model_options.dropout=0", "seeds=1")
    whole = train(read_recipe(recipe, words), tmp_path / "one", "el")
    run_on_two_ranks(recipe, tmp_path / "two", "--arm", "el", *(part for word in words for part in ("--set", word)))
    shared = tmp_path / "two" / "sequences" / "el" / "seed0"
    assert_close_weights(shared, whole)
    for line, expected in zip(RunDir(shared).metrics(), RunDir(whole).metrics(), strict=True):
        assert line == pytest.approx(expected, rel=1e-4), expected["epoch"]
    assert json.loads((shared / "timing.json").read_text())["samples"] == sum(
        line["tokens_seen"] for line in RunDir(whole).metrics())


def test_another_number_of_workers_is_no_other_run_but_another_budget_is(recipe, runs):
    train(read_recipe(recipe, ["train.workers=2"]), runs[0], "el")
    with pytest.raises(RunError, match=r"holds another run: there train.batch_size = 48, here 60"):
        train(read_recipe(recipe, ["train.batch_size=60"]), runs[0], "el")
