"""The recipes for detection: their settings, and two updates of every arm on small files of the same layouts."""

from __future__ import annotations

import math

import pytest
import torch
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.retinanet import _default_anchorgen
from torchvision.ops import box_iou

from box_toys import tiny_retinanet, write_coco, write_voc
from encouraging import curves, sigmoid_curve_loss
from encouraging.data import Clock, data_dir, missing, read_boxes
from encouraging.data.registry import VARIABLE
from encouraging.engine import RunDir, Train
from encouraging.engine.schedule import learning_rate
from encouraging.integrations.torchvision import FIRST, MOMENTUM, least_value
from encouraging.recipes import read_recipe
from encouraging.tasks import ObjectiveConfig
from encouraging.tasks.detection import Options
from strategies import generator
from task_laws import train


@pytest.mark.parametrize("name", ["coco-retinanet", "bccd-retinanet"])
def test_the_recipes_have_the_losses_of_the_paper(name):
    recipe = read_recipe(name)
    objectives = {arm: recipe.stages_of(arm)[0].objective.at(Clock(1, 1, 0)) for arm in recipe.arms}
    halted = curves.halted_focal(1.0, 0.5)
    assert {arm: (objective.curve, objective.negative_curve, objective.alpha) for arm, objective in
            objectives.items()} == {
        "focal": (curves.focal(1.0), None, 0.5), "focal_usual": (curves.focal(2.0), None, 0.25),
        "halted": (halted, None, 0.5), "halted_logit": (halted, halted.on_logit(), 0.5),
        "ce": (curves.cross_entropy(), None, 0.5), "el": (curves.conservative(0.75), None, 0.5)}
    paper = {"focal": 34.45, "halted_logit": 34.60}
    assert recipe.claims[0].paper == (paper if name == "coco-retinanet" else {})
    # The stand-in looks for the same difference, so that its page says how many seeds would decide it.
    assert recipe.claims[0].paper_spread == ({"focal": 0.13, "halted_logit": 0.09} if recipe.claims[0].paper else {})
    assert recipe.claims[0].sought == pytest.approx(0.15)
    assert recipe.stands_in == ("other data" in recipe.paper) == (name == "bccd-retinanet")
    assert "not comparable" in recipe.departs


@pytest.mark.skipif(bool(missing("bccd", data_dir())), reason=f"BCCD is not in the data directory ({VARIABLE})")
def test_the_smallest_cells_have_an_anchor_at_the_sizes_of_the_recipe():
    """A box that no anchor overlaps by half is taught by its nearest anchor alone, and in tests rarely found."""
    options = Options(**read_recipe("bccd-retinanet").options)
    lost = {size: without_anchor(size) for size in (*options.sizes, options.test_size)}
    assert lost[options.test_size] < 0.02
    assert sum(lost[size] for size in options.sizes) / len(options.sizes) < 0.05
    assert without_anchor(288) > 0.3


def without_anchor(size: int) -> float:
    """The share of the platelets that no anchor of RetinaNet overlaps by half, with this shorter side."""
    data = read_boxes("bccd")
    boxes = torch.cat([image.boxes[image.labels == data.names.index("Platelets")]
                       for image in data.parts["train"].images])
    high, wide = (-(-side // 32) * 32 for side in (size, size * 640 // 480))
    levels = [torch.zeros(1, 1, -(-high // stride), -(-wide // stride)) for stride in (8, 16, 32, 64, 128)]
    (anchors,) = _default_anchorgen()(ImageList(torch.zeros(1, 3, high, wide), [(high, wide)]), levels)
    small = anchors[(anchors[:, 2] - anchors[:, 0] < 100) & (anchors[:, 3] - anchors[:, 1] < 100)]
    best = torch.cat([box_iou(part * (size / 480), small).amax(1) for part in boxes.split(16)])
    return float((best < 0.5).double().mean())


@pytest.mark.parametrize(("name", "anchors", "classes", "divisor"), [
    ("coco-retinanet", 8 * 201_600, 80, FIRST * MOMENTUM),  # 8 images of 800 x 1344, and few positives
    ("bccd-retinanet", 51_084, 3, 1)])  # the mean over images: one of 448 x 608 with a single positive
def test_the_loss_of_a_fresh_detector_is_not_taken_for_divergence(name, anchors, classes, divisor):
    """Each of the logits says 1%, RetinaNet's prior, and nearly all of them are right."""
    recipe = read_recipe(name)
    for arm in recipe.arms:
        stage = recipe.stages_of(arm)[0]
        objective = stage.objective.at(Clock(1, 1, 0))
        curve = objective.negative_curve or objective.curve
        easy = curve.value(torch.tensor(99.0).log()).item() - least_value(curve)
        first = anchors * classes * (1 - objective.alpha) * easy / divisor
        assert 0 < first < stage.train.diverge_above / 2, arm


def test_cocos_schedule_is_the_1x_one():
    recipe = read_recipe("coco-retinanet")
    train = recipe.stages_of("focal")[0].train
    assert (train.max_steps, train.batch_size, train.lr, train.milestone_steps) == (90_000, 8, 0.005, (60_000, 80_000))
    assert (train.momentum, train.weight_decay, train.warmup_steps) == (0.9, 1e-4, 1000)
    assert Options(**recipe.options).divisor == "moving_positives"


@pytest.mark.parametrize(("done", "rate"), [(0, 5e-6 + 0.004995 / 1000), (999, 0.005), (59_999, 0.005),
                                             (60_000, 0.0005), (79_999, 0.0005), (80_000, 0.00005)])
def test_milestones_in_updates_do_not_depend_on_epochs(done, rate):
    train = read_recipe("coco-retinanet").stages_of("focal")[0].train
    for epoch, steps in ((1, 100_000), (7, 14_658)):
        assert learning_rate(train, epoch, done, steps) == pytest.approx(rate)


def test_a_config_without_milestones_in_updates_is_what_it_was():
    assert "milestone_steps" not in Train(epochs=1, lr=0.1, milestones=(3,)).config()
    assert Train(epochs=1, lr=0.1, milestone_steps=(3,)).config()["milestone_steps"] == [3]
    for wrong in ({"milestones": (2,), "milestone_steps": (3,)}, {"milestone_steps": (4, 3)}):
        with pytest.raises(ValueError, match="milestone_steps"):
            Train(epochs=1, lr=0.1, **wrong)
    objective = read_recipe("mnist").config("ce", 0)["objectives"][0]
    assert not {"alpha", "halt_on"} & objective.keys()


def test_an_arm_with_alpha_and_halt_on_has_them_in_its_loss():
    g = generator(0)
    logits, present = 3 * torch.randn(6, 4, generator=g), torch.randint(2, (6, 4), generator=g)
    config = ObjectiveConfig(curve="halted_focal", gamma=1.0, halt=0.3, link="sigmoid", alpha=0.25, halt_on="logit",
                             divisor="positives")
    curve = curves.halted_focal(1.0, 0.3)
    expected = sigmoid_curve_loss(logits, present, curve, alpha=0.25, negative_curve=curve.on_logit(), reduction="sum")
    loss = config.at(Clock()).loss(logits, present)
    assert loss.mean.item() == pytest.approx(expected.item() / int(present.sum()), rel=1e-6)
    for wrong in ({"alpha": 0.5}, {"curve": "halted_focal", "halt_on": "logit"}):
        with pytest.raises(ValueError, match="link = 'sigmoid'"):
            ObjectiveConfig(**wrong)


@pytest.mark.parametrize("name", ["coco-retinanet", "bccd-retinanet"])
def test_every_arm_trains_on_small_files_of_the_same_layout(name, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    if name == "coco-retinanet":
        write_coco(tmp_path / "coco")
    else:
        write_voc(tmp_path / "BCCD", {"train": 5, "val": 2, "test": 2})
    words = [f"model={tiny_retinanet.__code__.co_filename}:tiny_retinanet", "train.max_steps=2", "train.batch_size=2",
             "train.workers=0", "train.evaluate_every=1", "options.sizes=[48, 56]", "options.test_size=48"]
    recipe = read_recipe(name, words)
    for arm in recipe.arms:
        final = RunDir(train(recipe, tmp_path / "out", arm)).final()
        assert final["steps"] == 2
        assert math.isfinite(final["train_loss"])
        assert 0 <= final["ap"] <= 100
        assert final["skipped_boxes"]["test"] == (name == "coco-retinanet")
