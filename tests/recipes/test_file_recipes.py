"""Every recipe whose images stay in files: trained for two updates on twenty odd pictures, stopped, resumed and shown;
killed ten times; on two ranks."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from encouraging.data.draw import generator
from encouraging.data.samplers import Shuffled
from encouraging.engine import RunDir
from encouraging.errors import RunError
from encouraging.recipes import Recipe, check_recipe, names, read_recipe, read_runs
from encouraging.recipes.grid import Job, train_job
from encouraging.recipes.trained import load_trained
from encouraging.report.page import build_report
from encouraging.report.templates import code
from encouraging.tasks.image_files_options import file_option_words
from page_text import PageText
from task_laws import (
    assert_close_weights,
    assert_same_bits,
    call,
    run_on_two_ranks,
    train_stopped,
    train_to_end,
    train_with_kills,
)
from task_laws import train as train_here
from tiny_files import CLASSES, write_imagenet, write_inaturalist

pytestmark = pytest.mark.usefixtures("one_thread")
FILES = [name for name in names() if read_recipe(name).task == "image_files"]
SMALL = {"train_size": 64, "test_resize": 73}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_imagenet(folder)
    write_inaturalist(folder)
    return folder


def short(name: str, **changes: Any) -> Recipe:
    """A shipped recipe as it is, but for two updates per stage, small batches and small images."""
    tree = tomllib.loads((resources.files("encouraging.recipes") / f"{name}.toml").read_text())
    stages = [stage for arm in tree["arms"].values() for stage in arm.get("stages", [])]
    for table in (tree["train"], *(stage["train"] for stage in stages)):
        # The rates are for large batches: two updates with them would leave numbers beyond float32.
        table.update(max_steps=2, batch_size=7, workers=0, lr=1e-4)
    tree["options"].update(SMALL)
    return check_recipe({**tree, **changes}, name, f"{name}.toml")


def train(recipe: Recipe, arm: str, out: Path, data: Path, stops: bool = False) -> Path:
    job = Job(recipe, arm, recipe.seeds[0], str(out), "cpu", str(data), threads=1)
    return train_stopped(job) if stops else train_to_end(job)


ARMS = {"imagenet-resnet50": "el_075", "imagenet-efficientnet-b0": "el_075", "imagenet-ood": "ce",
        "inaturalist2018": "drw_authors"}


@pytest.mark.parametrize("name", FILES)
def test_a_shipped_recipe_runs_resumes_and_has_its_page(name, data, tmp_path, without_figures):
    recipe, arm = short(name), ARMS[name]
    if recipe.arms[arm].after is not None:
        train(short("imagenet-resnet50"), "ce", tmp_path, data)
    folder = train(recipe, arm, tmp_path, data, stops=True)
    final, timing = (json.loads((folder / f"{part}.json").read_text()) for part in ("final", "timing"))
    trained = recipe.train.epochs > 0
    assert final["steps"] == 2 * trained
    assert timing["resumed"] == 1
    assert 0 <= final["accuracy"] <= final["best_accuracy"] <= 100
    assert final.get("broken", 0) <= 1
    assert final["broken_test"] == 0
    if not trained:
        before = json.loads((tmp_path / "imagenet-resnet50/ce/seed0/final.json").read_text())
        assert final["accuracy"] == before["accuracy"]
        assert 0 <= final["ood"]["min_energy"]["auroc"] <= 100
    records = [record for record in read_runs(tmp_path) if record.recipe == name]
    html = build_report(records, {name: recipe})
    page = PageText(html)
    assert any(arm in row for row in page.cells)
    assert f"{final['accuracy']:.2f}" in str(page.cells)
    assert code(recipe.about) in html
    shutil.rmtree(tmp_path)  # the weights of a ResNet-50 several times over, which pytest would keep


@pytest.mark.parametrize("name", FILES)
def test_every_arm_can_be_read_and_starts_from_one_that_exists(name):
    recipe = read_recipe(name)
    for arm in recipe.arms.values():
        if arm.after is not None and "/" in arm.after:
            other, _, before = arm.after.partition("/")
            assert before in read_recipe(other).arms


def test_an_arm_after_one_of_another_recipe_says_what_to_train_first(data, tmp_path):
    with pytest.raises(RunError, match=r"imagenet-resnet50/ce/seed0 holds no finished run. Train `encouraging run "
                                       r"imagenet-resnet50` with --arm ce first"):
        train(short("imagenet-ood"), "ce", tmp_path, data)


def test_the_page_shows_every_option_and_a_recipe_that_can_be_read():
    page = (Path(__file__).parents[2] / "docs" / "imagenet.md").read_text()
    words = set(re.findall(r"\w+", page))
    assert [key for key in file_option_words(()) if key not in words and key != "augment"] == []
    blocks = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for block in blocks:
        check_recipe(tomllib.loads(block), "shown", "shown.toml")
    assert blocks
    assert all(f"`{name}`" in page for name in FILES)


NET = '''
from torch import nn


def net(classes, channels):
    """Without batch norm, whose statistics are those of each rank's own share."""
    return nn.Sequential(nn.Conv2d(channels, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(DROPOUT), nn.Linear(64, classes))
'''
TOML = """
task = "image_files"
data = "folder:{data}/imagenet"
model = "net.py:net"
seeds = 1
options = {{ train_size = 24, test_resize = 28, interpolation = "random", erase = {erase} }}
[train]
epochs = 3
batch_size = 3
accumulate = 2
optimizer = "rmsprop_tf"
lr = 0.002
momentum = 0.9
eps = 1e-3
ema = 0.9
every = 0.8
gamma = 0.97
warmup_epochs = 1
warmup_from = 1e-6
workers = {workers}
checkpoint_seconds = 0
[arms.ce]
label_smoothing = 0.1
[arms.el]
curve = "encouraging"
label_smoothing = 0.1
"""


def write_recipe(folder: Path, data: Path, workers: int = 0, dropout: float = 0.2, erase: float = 0.5) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "net.py").write_text(NET.replace("DROPOUT", str(dropout)))
    path = folder / "odd.toml"
    path.write_text(TOML.format(data=data, workers=workers, erase=erase))
    return path


def test_ten_kills_in_mid_epoch_with_four_workers_leave_no_trace(data, tmp_path):
    """Seven batches and four updates per epoch, a checkpoint after each update; the last kills are in the third."""
    plain, four = (read_recipe(write_recipe(tmp_path / str(workers), data, workers)) for workers in (0, 4))
    killed = train_with_kills([four] * 10, [3, 4, 3, 4, 3, 4, 3, 4, 3, 4], tmp_path / "killed", "el")
    # Kills at the end of an epoch tear the newest checkpoint, and with it the count of one start.
    assert json.loads((killed / "timing.json").read_text())["resumed"] >= 8
    assert_same_bits(killed, train_here(plain, tmp_path / "whole", "el"))


def test_two_ranks_train_and_evaluate_as_one_process(data, tmp_path):
    path = write_recipe(tmp_path / "recipe", data, dropout=0.0, erase=0.0)
    run_on_two_ranks(path, tmp_path / "two", "--arm", "el")
    one = train_here(read_recipe(path), tmp_path / "one", "el")
    two = tmp_path / "two" / "odd" / "el" / "seed0"
    assert_close_weights(two, one)
    ours, theirs = (json.loads((folder / "final.json").read_text()) for folder in (two, one))
    assert ours["broken"] == theirs["broken"] == 1
    for name in ("accuracy", "best_accuracy", "train_accuracy", "batch_accuracy"):
        assert ours[name] == theirs[name]
    assert ours["test_loss"] == pytest.approx(theirs["test_loss"], rel=1e-4)
    assert f"{CLASSES[-1]}_4.JPEG" in (two / "files" / "broken.txt").read_text()


def test_a_worker_that_the_system_ends_ends_the_run_with_a_message(data, tmp_path):
    recipe = read_recipe(write_recipe(tmp_path, data, workers=2), ["train.epochs=1000"])

    def end_a_worker(line: dict[str, Any]) -> None:
        os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)

    job = Job(recipe, "el", 0, str(tmp_path), "cpu", threads=1)
    with pytest.raises(RunError, match=r"loads data has ended .*train.workers=2.* run again to continue"):
        train_job(job, end_a_worker)


def test_the_rank_that_meets_a_broken_file_names_it(tmp_path):
    """Where it is not rank 0, that one knows only that it has lost the other."""
    for split in ("train", "val"):
        for kind in ("cat", "dog"):
            (tmp_path / "pictures" / split / kind).mkdir(parents=True)
            for number in range(2):
                Image.new("RGB", (40, 40)).save(tmp_path / "pictures" / split / kind / f"{number}.png")
    (tmp_path / "pictures" / "train" / "dog" / "0.png").write_bytes(b"no image")
    path = tmp_path / "mine.toml"
    path.write_text(f"""
        task = "image_files"
        data = "folder:{tmp_path / 'pictures'}"
        model = "resnet20"
        options = {{ train_size = 32, broken = "refuse" }}
        train = {{ epochs = 1, batch_size = 4, lr = 0.1 }}
        [arms.ce]
    """)
    order = Shuffled(4, 4).batches(generator(4, 1, 1))[0].tolist()
    assert order.index(2) == 3  # seed 4 has the broken image last: it is loaded by rank 1
    with pytest.raises(AssertionError, match=r"dog.0\.png"):
        run_on_two_ranks(path, tmp_path / "runs", "--seeds", "4,")


def test_a_run_that_was_refused_for_a_broken_file_continues_without_it(data, tmp_path):
    run = ["run", write_recipe(tmp_path / "recipe", data), "--out", tmp_path / "out", "--device", "cpu", "--arm", "ce"]
    assert "options.broken=skip" in " ".join(call(*run, "--set", "options.broken=refuse", code=1).split())
    assert "ce seed 0: accuracy" in call(*run, "--set", "options.broken=skip")


def test_a_user_trains_from_the_command_line_attacks_and_scores_other_images(data, tmp_path):
    path = write_recipe(tmp_path / "recipe", data)
    said = call("run", path, "--out", tmp_path / "out", "--device", "cpu", "--set", "train.epochs=1", "--set",
                "model=resnet20", "--set", "options.rand_augment=rand-m9-mstd0.5", "--arm", "ce")
    assert "ce seed 0: accuracy" in said
    run = tmp_path / "out" / "odd" / "ce" / "seed0"
    assert load_trained(run, torch.device("cpu")).task.classes == 4
    said = call("ood", run, "--data", data / "inaturalist2018" / "train_val2018" / "Plantae" / "0", "--device", "cpu")
    assert "11 images" in said  # of both parts
    assert "MaxLogit" in said
    call("attack", run, "--attack", "fgsm", "--eps", "0,0.1", "--examples", "4", "--device", "cpu")
    assert RunDir(run).done
