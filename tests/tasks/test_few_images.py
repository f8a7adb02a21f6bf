"""A recipe rehearsed on a few images of each part."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from encouraging.data import load
from encouraging.errors import RecipeError
from encouraging.recipes import departures_of, read_recipe
from encouraging.tasks import build_task
from encouraging.tasks.image_parts import few_positions
from synthetic_runs import record
from task_laws import call
from tiny_files import write_imagenet
from tiny_images import IMBALANCE, any_size, short, write_cifar

FEW = ["options.train_images=50", "options.test_images=20"]


def test_only_the_first_images_of_every_part_are_trained_on_and_evaluated(tmp_path: Path) -> None:
    changed = [*FEW, "train.epochs=1", 'options.ood=["digits"]', "options.validation=30"]
    said = call("run", "digits", "--arm", "ce", "--seeds", "1", "--device", "cpu", "--out", tmp_path,
                *(word for change in changed for word in ("--set", change)))
    assert "options.train_images = 50 (recipe: not set)" in " ".join(said.split())
    kept = read_logits(tmp_path / "digits/ce/seed0")
    assert torch.equal(kept["labels"], load("digits", "test")[1][:20])
    assert len(kept["ood_logits"]) == 20
    it = build_task("image", read_recipe("digits", changed).task_spec("ce"))
    assert len(it.train[1]) == len(it.pixels) == 50
    assert len(it.validation[1]) == 20
    assert int(it.counts.sum()) == 1170  # classes are counted before the cut
    plain = build_task("image", read_recipe("digits", FEW).task_spec("ce"))
    assert torch.equal(plain.train[0], load("digits", "train")[0][:50])


def read_logits(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "logits.safetensors")


@pytest.mark.parametrize("key", ["train_images", "test_images"])
@pytest.mark.parametrize("number", [0, -3])
def test_numbers_that_are_not_positive_are_refused(key: str, number: int) -> None:
    with pytest.raises(RecipeError, match=rf"options\.{key} = {number}"):
        read_recipe("digits", [f"options.{key}={number}"])


@pytest.mark.parametrize("change", FEW)
def test_a_rehearsal_does_not_test_the_claims(change: str) -> None:
    recipe = read_recipe("mnist", [change])
    runs = [record("mnist", arm, seed, 3.0, config=recipe.config(arm, seed)) for arm in recipe.arms for seed in (0, 1)]
    found = departures_of("mnist", runs)
    key, _, value = change.partition("=")
    assert [setting[:2] for setting in found.settings] == [(key, int(value))]
    assert all(map(found.covers, recipe.claims))
    assert found.sentences[0].endswith("(recipe: not set): they do not test the paper's claims.")


def test_a_tail_is_made_before_it_is_cut_and_its_classes_are_counted_whole(tmp_path: Path) -> None:
    write_cifar(tmp_path, train=40, test=40)
    whole = short("cifar10-lt").options | {"imbalance": IMBALANCE}
    with any_size():
        made = short("cifar10-lt", options={**whole, "train_images": 5, "test_images": 7})
        for arm in ("balanced_softmax", "drw", "ldam_drw"):  # they need every class at least once
            it = build_task("image", made.task_spec(arm, root=str(tmp_path)))
            assert len(it.train[1]) == 5
            assert it.counts.tolist() == [4, 3, 2, 2, 2, 1, 1, 1, 1, 1]
        tail, _ = load("cifar10-lt", "train", tmp_path, IMBALANCE)
        assert torch.equal(it.train[0], tail[:5])
        with torch.no_grad():
            end = it.conclude(list(it.predict(it.build().eval(), True, 0, 1)), {"lines": []})
    assert 0 <= end.numbers["adjusted"]["accuracy"] <= 100


def test_of_images_that_lie_by_class_some_of_all_are_drawn(tmp_path: Path) -> None:
    for split, count in (("train", 30), ("test", 30)):
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(count):
                Image.new("L", (8, 8), 4 * number).save(tmp_path / split / name / f"{number:02}.png")
    recipe = read_recipe("digits", [f'data="folder:{tmp_path}"', *FEW])
    it = build_task("image", recipe.task_spec("ce"))
    again = build_task("image", recipe.task_spec("ce", 1))
    assert len(it.train[1]) == 50
    assert it.test[1].bincount(minlength=2).min() > 2
    assert torch.equal(it.test[0], again.test[0])


def test_more_than_there_are_is_all_of_them() -> None:
    labels = torch.tensor([1, 0, 1])
    assert few_positions(labels, 3) is few_positions(labels, 4) is few_positions(labels, None) is None


def test_images_in_files_can_be_few_too(tmp_path: Path) -> None:
    write_imagenet(tmp_path, broken=False)
    recipe = read_recipe("imagenet-resnet50", ["options.train_size=32", "model=resnet20", "options.train_images=9",
                                               "options.test_images=3", "options.train_sample=5"])
    it = build_task("image_files", recipe.task_spec("ce", root=str(tmp_path)))
    train, sample, test = it.sets["train"], it.sample, it.sets["test"]
    assert (len(train), len(sample), len(test)) == (9, 5, 3)
    assert int(it.counts.sum()) == 20
    names = [train.path(index) for index in range(9)]
    assert {sample.path(index) for index in range(5)} <= set(names)  # a part of a part
    assert len(set(names)) == 9
