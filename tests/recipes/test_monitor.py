"""``train.monitor``: a number that is measured after every epoch, or it is refused before anything is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import box_toys
import graph_toys
import translation_toys
from encouraging.engine import Metric, Needs, RunDir, RunSpec, Train, execute
from encouraging.errors import RecipeError, RunError
from encouraging.recipes import read_recipe
from encouraging.recipes.monitor import check_monitors
from encouraging.tasks import StageSpec, build_task
from toy_tasks import run_spec


@pytest.mark.parametrize(("recipe", "monitor", "words"), [
    ("digits", "acuracy", "monitor = 'acuracy' is not measured after an epoch. Expected one of "
                          "accuracy, test_loss, batch_accuracy, loss. Did you mean 'accuracy'?"),
    ("digits", "epoch", "monitor = 'epoch' is not measured after an epoch"),
    ("digits", "lr", "monitor = 'lr' is not measured after an epoch"),
    ("digits", "grad_norm", "monitor = 'grad_norm' is not measured after an epoch"),
    ("digits", "best_accuracy", "monitor = 'best_accuracy' is measured only at the end"),
    ("digits", "ece", "monitor = 'ece' is measured only at the end"),
    ("digits", "val_accuracy", "Did you mean"),  # without options.validation
    ("digits", "loss", "would choose the worst epoch. Add better = 'lower'"),
    ("proteins", "best_epoch", "monitor = 'best_epoch' is not measured after an epoch"),
    ("proteins", "val_acc", "Did you mean 'val_accuracy'?"),
    ("imagenet-resnet50", "accurcy", "Did you mean 'accuracy'?"),
    ("multi30k-de-en", "test_loss", "monitor = 'test_loss' is measured only at the end"),
    ("multi30k-de-en", "val_blue", "Did you mean 'val_bleu'?"),
    ("bccd-retinanet", "box_loss", "would choose the worst epoch. Add better = 'lower'"),
    ("digits", "test_loss", "would choose the worst epoch. Add better = 'lower'"),
    ("bccd-retinanet", "class_ap.RBC", "monitor = 'class_ap.RBC' is measured only at the end"),
])
def test_what_is_not_measured_after_every_epoch_is_refused_when_the_recipe_is_read(recipe, monitor, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        read_recipe(recipe, [f"train.monitor={monitor}"])


def test_a_stage_of_its_own_and_an_arm_are_checked_too():
    with pytest.raises(RecipeError, match="monitor = 'step'"):
        read_recipe("digits", ["stages=[{}, {train={epochs=1, lr=0.1, monitor='step'}}]"])
    with pytest.raises(RecipeError, match=r"monitor = 'accurate'.*Did you mean 'accuracy'"):
        read_recipe("digits", ["arms.ce.train={monitor='accurate'}"])


def test_the_training_loss_may_choose():
    assert read_recipe("digits", ["train.monitor=loss", "train.better=lower"]).train.monitor == "loss"


@pytest.mark.parametrize(("recipe", "overrides", "words"), [
    ("digits", ["options.validation=100", "train.monitor=val_loss"],
     "monitor = 'val_loss' with better = 'higher' would choose the worst epoch. Add better = 'lower'"),
    ("digits", ["train.monitor=accuracy", "train.better=lower"],
     "monitor = 'accuracy' with better = 'lower' would choose the worst epoch. Add better = 'higher'"),
    ("digits", ["train.better=lower"],
     "better = 'lower' without monitor: the best epoch is that of 'accuracy', which is better when higher"),
    ("proteins", ["train.better=lower"], "monitor = 'val_accuracy' with better = 'lower' would choose the worst"),
    ("multi30k-de-en", ["train.better=higher"], "monitor = 'val_loss' with better = 'higher' would choose the worst"),
    ("imagenet-resnet50", ["train.monitor=accuracy", "train.better=lower"], "would choose the worst epoch"),
])
def test_a_direction_that_is_not_the_metrics_is_refused(recipe, overrides, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        read_recipe(recipe, overrides)


def test_a_number_without_a_declared_direction_needs_one_in_the_recipe():
    needs = Needs(metrics=(Metric("accuracy", "accuracy", primary=True),), monitors=("accuracy", "distance"))
    with pytest.raises(RecipeError, match=r"the task does not say .* Add better = 'higher' or better = 'lower'"):
        check_monitors(needs, [StageSpec(Train(epochs=1, lr=0.1, monitor="distance"))])
    for better in ("higher", "lower"):
        check_monitors(needs, [StageSpec(Train(epochs=1, lr=0.1, monitor="distance", better=better))])


def test_every_monitor_of_the_packages_tasks_has_a_direction():
    """So that no recipe of them needs ``better`` for a number of which higher is better."""
    for recipe in ("bccd-retinanet", "cifar10-lt", "digits", "imagenet-resnet50", "multi30k-de-en", "proteins"):
        needs = read_recipe(recipe, ["options.validation=100"] if recipe == "digits" else []).needs()
        assert set(needs.monitored) <= {metric.path for metric in needs.metrics}, recipe


def written(folder: Path, text: str) -> Path:
    (folder / "mine.toml").write_text(text)
    return folder / "mine.toml"


@pytest.mark.parametrize(("write", "overrides", "absent"), [
    (lambda folder: "digits", ["train.milestones=[]"], set()),
    (lambda folder: "digits", ["options.validation=100", "options.shots={many=111, few=109}"], set()),
    (lambda folder: written(folder, graph_toys.RECIPE), [], set()),
    (lambda folder: written(folder, translation_toys.RECIPE), ["train.conclude_on=last"], set()),
    (box_toys.write_recipe, [], {"ap_large", "ap_medium", "val_ap_large", "val_ap_medium"}),  # its boxes are small
])
def test_what_may_be_monitored_is_measured_after_every_epoch(tmp_path, write, overrides, absent):
    recipe = read_recipe(write(tmp_path), [*overrides, "train.epochs=1"])
    arm = next(iter(recipe.arms))
    spec = recipe.task_spec(arm)
    execute(RunSpec(lambda: build_task(recipe.task, spec), spec.stages, RunDir(tmp_path / "run"), {}, 0, spec.device))
    line, = RunDir(tmp_path / "run").metrics()
    assert set(recipe.needs(arm).monitored) - absent <= line.keys()


def test_without_a_validation_part_nothing_is_trained(tmp_path):
    recipe = box_toys.write_recipe(tmp_path)
    box_toys.write_voc(tmp_path / "squares", {"train": 3, "test": 3})
    (tmp_path / "squares/ImageSets/Main/val.txt").unlink(missing_ok=True)
    spec = read_recipe(recipe).task_spec("focal")
    with pytest.raises(RecipeError, match=r"has no validation part\. Expected 'ap'"):
        build_task("detection", spec)


def test_the_engine_refuses_a_name_of_its_own_before_the_first_update(tmp_path):
    with pytest.raises(RunError, match="'epoch' does not say how good an epoch was"):
        execute(run_spec(tmp_path, stages=(Train(epochs=1, lr=0.1, monitor="epoch"),)))
    assert RunDir(tmp_path).metrics() == []
