"""Every image recipe of the package: trained for two updates on a few images, stopped in between, and shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from encouraging.data import Clock
from encouraging.engine import Interrupted, Stopper
from encouraging.engine import run as engine_run
from encouraging.engine.checkpoint import read_checkpoint
from encouraging.judge.claims import number_at
from encouraging.recipes import Recipe, names, read_recipe, read_runs
from encouraging.recipes.grid import Job, train_job
from encouraging.report.page import build_report
from encouraging.report.templates import code
from encouraging.tasks.class_shift import ClassShift
from page_text import PageText
from task_laws import assert_same_bits, train_stopped, train_to_end
from tiny_images import any_size, short, write_cifar, write_mnist

pytestmark = pytest.mark.usefixtures("one_thread")
IMAGES = [name for name in names() if read_recipe(name).task == "image"]
# Of a network that takes seconds: the recipe that trains it here. Those that share it train a small one.
LARGE = {"torchvision/resnet50": "cifar100-resnet50"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """``few`` has images enough for two batches, and a test image of a cat and of a dog; ``tail`` has four of each of a
    hundred classes."""
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder / "few")
    write_cifar(folder / "few", train=5, test=6)
    write_cifar(folder / "tail", train=400, test=100)
    with any_size():
        yield folder


def job_of(recipe: Recipe, arm: str, out: Path, data: Path) -> Job:
    part = "tail" if recipe.data.endswith("-lt") else "few"
    return Job(recipe, arm, recipe.seeds[0], str(out), "cpu", str(data / part), threads=1)


def train(recipe: Recipe, arm: str, out: Path, data: Path, stops: bool = False) -> Path:
    job = job_of(recipe, arm, out, data)
    return train_stopped(job) if stops else train_to_end(job)


@pytest.mark.parametrize("name", IMAGES)
def test_a_shipped_recipe_runs_resumes_and_has_its_page(name: str, data: Path, tmp_path: Path,
                                                       without_figures: None) -> None:
    recipe = short(name)
    if recipe.model in LARGE and name != LARGE[recipe.model]:
        recipe = short(name, model="resnet20")
    arm = list(recipe.arms)[-1 if recipe.arms[list(recipe.arms)[-1]].after is None else 1]
    folder = train(recipe, arm, tmp_path, data, stops=True)
    final, timing = (json.loads((folder / f"{part}.json").read_text()) for part in ("final", "timing"))
    assert final["steps"] == 2 * len(recipe.stages_of(arm))
    assert timing["resumed"] == 1
    assert 0 <= final["accuracy"] <= final["best_accuracy"] <= 100
    for path in {path for claim in recipe.claims for path in claim.metrics}:
        assert path.startswith("attacks.") or number_at(final, path) is not None, path  # attacks are measured later
    records = read_runs(tmp_path)
    html = build_report(records, {name: recipe})
    page = PageText(html)
    assert any(arm in row for row in page.cells)
    assert f"{final['accuracy']:.2f}" in str(page.cells)
    assert code(recipe.about) in html
    shutil.rmtree(tmp_path)  # the weights of a ResNet-50 several times over, which pytest would keep


@pytest.mark.parametrize("name", [name for name in names() if read_recipe(name).task in ("image", "image_files")])
def test_every_arm_has_a_finite_loss_from_its_first_epoch_to_its_last(name: str) -> None:
    recipe = read_recipe(name)
    counts = torch.tensor([500, 60, 5])
    logits = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) * 3
    target = torch.arange(8) % 3
    for arm in recipe.arms:
        for number, stage in enumerate(recipe.stages_of(arm), 1):
            for epoch in (1, stage.train.epochs):
                z = logits.clone().requires_grad_()
                shifted = ClassShift(stage.objective, counts)(z, target)
                loss = stage.objective.at(Clock(number, epoch)).loss(shifted, target, torch.tensor([0.2, 0.8, 2.0]))
                loss.mean.backward()
                assert loss.mean.isfinite(), arm
                assert z.grad is not None
                assert z.grad.isfinite().all(), arm
                assert z.grad.abs().sum() > 0, arm


@pytest.mark.parametrize(("name", "arm"), [("cifar10-learning-rate-quick", "el_075_mixup"), ("cifar100-lt", "drw")])
def test_stopped_after_an_update_it_ends_with_the_same_bits(name: str, arm: str, data: Path, tmp_path: Path) -> None:
    recipe = short(name, model="resnet20")
    ours = train(recipe, arm, tmp_path / "stopped", data, stops=True)
    assert_same_bits(ours, train(recipe, arm, tmp_path / "whole", data))


class StopsInTheSecondStage(Stopper):
    """As if a signal had come in the second stage; ``lines`` has those of finished epochs. The loop asks once at the
    end of the first one."""

    lines: ClassVar[list[dict[str, Any]]] = []
    asks = 0

    @property
    def asked(self) -> str | None:  # type: ignore[override]
        self.asks += bool(self.lines)
        return "SIGTERM" if self.asks > 1 else None

    @asked.setter
    def asked(self, value: str | None) -> None:
        assert value is None


def test_stopped_in_the_second_stage_it_ends_with_the_same_bits(data: Path, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """A new output layer on fixed features, stopped after its first update."""
    recipe = short("cifar10-representation-quick", model="resnet20")
    job = job_of(recipe, "el_1", tmp_path / "stopped", data)
    with monkeypatch.context() as patch:
        patch.setattr(engine_run, "Stopper", StopsInTheSecondStage)
        patch.setattr(StopsInTheSecondStage, "lines", [])
        with pytest.raises(Interrupted, match="A checkpoint was written"):
            train_job(job, StopsInTheSecondStage.lines.append)
    position = read_checkpoint(job.folder, 3).state["position"]
    assert (position["stage"], position["stage_step"]) == (2, 1)
    ours = train_to_end(job)
    theirs = train(recipe, "el_1", tmp_path / "whole", data)
    assert_same_bits(ours, theirs)
    assert json.loads((ours / "final.json").read_text())["stage1"]["steps"] == 2


def test_a_recipe_with_its_figures(data: Path, tmp_path: Path) -> None:
    """Two arms of a long tail, one of which starts from the other."""
    recipe = short("cifar10-lt", batch_size=8, model="resnet20")
    for arm in ("ce", "crt"):
        train(recipe, arm, tmp_path, data)
    page = build_report(read_runs(tmp_path), {recipe.name: recipe})
    text = " ".join(PageText(page).words)
    for words in ("Accuracy of every class over its number of training examples", "The grey line repeats ce",
                  "Mean margin over the number of training examples", "few: under 20"):
        assert words in text + page
    assert page.count("<svg") > 10
