"""Detection through the engine: overfitting, kills, ranks, divisors, records and the page with its pictures."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from box_toys import RECIPE, train_on, voc_xml, write_recipe, write_voc
from encouraging.engine import RunDir
from encouraging.engine.distributed import World
from encouraging.engine.records import read_records
from encouraging.errors import DataError, DivergenceError, RecipeError
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task
from task_laws import assert_close_weights, assert_same_bits, call, page_words, train, train_with_kills
from two_ranks import on_two_ranks

DIVISORS = ("images", "positives", "moving_positives")
SAME_SIZE = "options.sizes=[48]"  # images of a batch are filled up to the largest one, which changes their features


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def runs(recipe, tmp_path_factory):
    """Every arm and seed, and what the command printed."""
    out = tmp_path_factory.mktemp("runs")
    return out, call("run", recipe, "--out", out, "--device", "cpu", "--jobs", "1")


@pytest.mark.parametrize("arm", ["focal", "halted", "halted_logit"])
def test_two_drawn_images_are_learnt_by_heart(tmp_path, arm):
    write_voc(tmp_path / "two", {"train": 2})
    lists = tmp_path / "two" / "ImageSets" / "Main"
    (lists / "test.txt").write_text((lists / "train.txt").read_text())
    path = tmp_path / "two.toml"
    path.write_text(RECIPE.format(data=tmp_path / "two", here=train_on.__code__.co_filename))
    words = ["train.epochs=100", "train.evaluate_every=20", "train.lr=5e-3", "train.batch_size=2", "train.monitor=ap",
             "options.sizes=[48]", "options.flip=0"]
    folder = train(read_recipe(path, words), tmp_path / "out", arm)
    lines = RunDir(folder).metrics()
    assert RunDir(folder).final()["best_ap50"] == pytest.approx(100)
    assert all(line["loss"] > 0 for line in lines)  # although the halted form has a negative constant
    assert lines[-1]["classification_loss"] < 0.2 * lines[0]["classification_loss"]


def test_the_loss_of_an_epoch_is_the_sum_of_its_two_parts(runs):
    for record in read_records(runs[0]):
        for line in record.epochs:
            assert line["loss"] == pytest.approx(line["classification_loss"] + line["box_loss"], rel=1e-5)


def test_the_numbers_are_those_of_the_best_validation_epoch(runs):
    for record in read_records(runs[0]):
        best = max(record.epochs, key=lambda line: line["val_ap"])
        assert record.final["best_ap"] == best["ap"]
        assert record.final["concluded"]["ap"] == pytest.approx(best["ap"])
        assert record.final["images"] == {"train": 7, "validation": 2, "test": 3}
        assert record.final["boxes"] == {"train": 14, "validation": 4, "test": 6}
        assert record.final["skipped_boxes"] == {"train": 0, "validation": 0, "test": 0}
        assert set(record.final["class_ap"]) == {"blue", "red"}


def test_killed_at_any_instant_it_ends_with_the_same_bits(recipe, runs, tmp_path):
    recipes = [read_recipe(recipe, ["train.checkpoint_seconds=0", f"train.workers={number}"]) for number in (0, 2)]
    folder = train_with_kills(recipes, (3, 6), tmp_path, "halted")
    assert json.loads((folder / "timing.json").read_text())["resumed"] == 2
    assert_same_bits(folder, runs[0] / "squares" / "halted" / "seed0")


@pytest.mark.parametrize("divisor", DIVISORS)
def test_two_ranks_give_the_numbers_of_one_process(recipe, tmp_path, divisor):
    """The last batch has one image: the second rank takes part with nothing."""
    words = ("halted", f"options.divisor={divisor}", "train.optimizer=sgd", "train.lr=0.01", "train.epochs=2",
             SAME_SIZE)
    train_on(World(), recipe, tmp_path / "one", *words)
    on_two_ranks(train_on, recipe, tmp_path / "two", *words)
    assert_close_weights(tmp_path / "two", tmp_path / "one")
    ours, theirs = (RunDir(tmp_path / name).metrics() for name in ("two", "one"))
    for line, expected in zip(ours, theirs, strict=True):
        assert line == pytest.approx(expected, rel=1e-3, abs=1e-3), expected["epoch"]


@pytest.mark.parametrize("divisor", ["images", "positives"])
def test_accumulated_batches_are_one_batch(recipe, tmp_path, divisor):
    words = ["train.optimizer=sgd", "train.lr=0.01", "train.epochs=2", f"options.divisor={divisor}",
             SAME_SIZE]
    whole = train(read_recipe(recipe, [*words, "train.batch_size=4"]), tmp_path / "whole", "focal")
    words += ["train.batch_size=1", "train.accumulate=4"]
    parts = train(read_recipe(recipe, words), tmp_path / "parts", "focal")
    assert_close_weights(parts, whole)
    for line, expected in zip(RunDir(parts).metrics(), RunDir(whole).metrics(), strict=True):
        assert line["loss"] == pytest.approx(expected["loss"], rel=1e-4)


def test_bf16_and_a_probe_train_too(recipe, tmp_path):
    words = ["train.precision=bf16", "train.probe_every=2", "train.epochs=1"]
    final = RunDir(train(read_recipe(recipe, words), tmp_path, "halted_logit")).final()
    assert 0 < final["gradient_norm_ratio"]["ce"] < 1.5


def test_a_loss_that_grows_is_still_noticed(recipe, tmp_path):
    with pytest.raises(DivergenceError):
        train(read_recipe(recipe, ["train.optimizer=sgd", "train.lr=1e6"]), tmp_path, "halted")


@pytest.mark.parametrize("kind", ["runs", "records", "by arm"])
def test_the_page_has_test_images_with_true_and_predicted_boxes(runs, tmp_path, kind):
    folder = runs[0]
    if kind != "runs":
        call("collect", folder, "-o", tmp_path / "records", *(["--by-arm"] if kind == "by arm" else []))
        folder = tmp_path / "records"
    figures = tmp_path / "figures"
    call("report", folder, "-o", tmp_path / "page.html", *(["--figures", figures] if kind == "runs" else []))
    text, page = page_words(tmp_path / "page.html"), (tmp_path / "page.html").read_text()
    for words in ("Detections", "test AP at the best epoch", "test AP50 at the best epoch", "predicted box"):
        assert words in text, words
    photos = re.findall(r'<svg class="fig photo".*?</svg>', page, re.DOTALL)
    assert len(photos) == 2 * 3  # two images, three arms
    for photo in photos:
        content = base64.b64decode(re.search(r"data:image/jpeg;base64,([^\"]+)\"", photo)[1])
        assert content.startswith(b"\xff\xd8")
        assert len(re.findall(r'<rect class="true"', photo)) == 2
    records = {(record.arm, record.seed): record for record in read_records(folder)}
    drawn = [records[arm, 0].diagnosis["boxes"]["images"][0]["predicted"] for arm in ("focal", "halted",
                                                                                     "halted_logit")]
    assert [len(re.findall(r'<rect class="predicted"', photo)) for photo in photos[:3]] == list(map(len, drawn))
    if kind == "runs":
        assert {"boxes-1.png", "boxes-1.svg", "boxes-2.png"} <= {path.name for path in figures.iterdir()}
    call("results", folder, "-o", tmp_path / "results.md")
    assert "`best_ap`" in (tmp_path / "results.md").read_text()


def test_the_terminal_has_the_words_of_the_task(runs):
    assert "focal seed 0: test AP " in runs[1]
    assert "halted beats focal: best_ap" in runs[1]


def test_a_damaged_picture_is_an_error_in_words(runs, tmp_path):
    call("collect", runs[0], "-o", tmp_path / "records")
    path = tmp_path / "records" / "squares" / "focal-seed0.json"
    content = json.loads(path.read_text())
    content["diagnosis"]["boxes"]["images"][0]["jpeg"] = '"/><script>'
    path.write_text(json.dumps(content))
    assert "photograph that is not base64" in call("report", tmp_path / "records", "-o", tmp_path / "page.html", code=2)


@pytest.mark.parametrize(("override", "words"), [
    ("data=mnist", "mnist has no boxes"), ("data=bcd", "Did you mean 'bccd'"),
    ("data=nowhere.py:read", "data: 'nowhere.py:read': there is no file nowhere.py"),
    ("options.divisor=image", "options.divisor"), ("options.size=48", "Did you mean 'sizes'"),
    ("options.sizes=[0]", "expected numbers of pixels"), ("arms.focal.divisor=positives", "options.divisor = 'images'"),
    ("arms.focal.link=softmax", "link = 'sigmoid'"), ("arms.focal.halt_on=logit", "it belongs to 'halted_focal'"),
    ("model=retinanet", "no detector is called"), ("train.compile=true", "every batch of images has another shape"),
    ("arms.focal.alpha=2", "alpha"),
])
def test_a_recipe_that_cannot_be_is_refused_before_anything_is_read(recipe, override, words):
    with pytest.raises(RecipeError, match=re.escape(words)):
        read_recipe(recipe, [override])


def test_the_moving_average_takes_no_accumulation(recipe):
    with pytest.raises(RecipeError, match="accumulate = 1"):
        read_recipe(recipe, ["options.divisor=moving_positives", "train.accumulate=2"])


def test_stages_can_freeze_the_backbone(recipe):
    task = build_task("detection", read_recipe(recipe).task_spec("focal"))
    model = task.build()
    assert set(task.parts(model)) == {"body", "head"}
    params = [param for part in task.parts(model).values() for param in part.parameters()]
    assert len(params) == len(list(model.parameters()))


def test_an_image_of_which_nothing_would_be_left_is_refused_before_training(tmp_path):
    """A test image too: else a training would end at its first evaluation."""
    recipe = write_recipe(tmp_path)
    Image.fromarray(np.zeros((3, 1000, 3), np.uint8)).save(tmp_path / "squares" / "JPEGImages" / "line.jpg")
    (tmp_path / "squares" / "Annotations" / "line.xml").write_text(voc_xml(1000, 3, [("red", (0, 0, 1000, 3))]))
    names = tmp_path / "squares" / "ImageSets" / "Main" / "test.txt"
    names.write_text(names.read_text() + "line\n")
    spec = read_recipe(recipe).task_spec("focal")
    with pytest.raises(DataError, match=r"line\.jpg: 1000 x 3 pixels are too long and narrow.*max_size = 96"):
        build_task("detection", spec)
