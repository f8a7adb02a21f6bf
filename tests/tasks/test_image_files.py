"""Images in files: each once on any number of ranks, the same bits with any number of workers, broken ones named."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from encouraging.data import Clock
from encouraging.data.picture_transforms import training_transform
from encouraging.engine import Train
from encouraging.errors import DataError, RecipeError
from encouraging.tasks import ObjectiveConfig, Sampling, StageSpec, TaskSpec, build_task, check_task
from encouraging.tasks.broken_files import BrokenFiles
from encouraging.tasks.image_files import ImageFilesTask
from tiny_files import CLASSES, truncate, write_imagenet, write_inaturalist

SMALL = {"train_size": 32, "test_resize": 36}
BROKEN = f"{CLASSES[-1]}_4.JPEG"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_imagenet(folder)
    write_inaturalist(folder)
    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def spec_of(root: Path, options: dict[str, Any] | None = None, *, data: str = "imagenet", workers: int = 0,
            sampling: Sampling | None = None, model: str = "resnet20", **train: Any) -> TaskSpec:
    whole = Train(**{"epochs": 2, "lr": 0.1, "batch_size": 6, "workers": workers, **train})
    stage = StageSpec(whole, objective=ObjectiveConfig(), sampling=sampling or Sampling())
    return TaskSpec(data, model, (stage,), 0, root=root, options={**SMALL, **(options or {})})


def task_of(*arguments: Any, **more: Any) -> ImageFilesTask:
    task = build_task("image_files", spec_of(*arguments, **more))
    assert isinstance(task, ImageFilesTask)
    return task


def batches(task: ImageFilesTask, start: int = 0, rank: int = 0, world: int = 1) -> list[tuple[torch.Tensor, ...]]:
    return list(task.source(1).batches(Clock(1, 2), start, rank, world))


FULL = {"rand_augment": "rand-m9-mstd0.5", "interpolation": "random", "erase": 0.5}


def test_batches_have_the_same_bits_with_any_number_of_workers_and_from_any_batch_on(root):
    whole = batches(task_of(root, FULL))
    for workers, start in ((3, 0), (1, 2)):
        for ours, theirs in zip(batches(task_of(root, FULL, workers=workers), start), whole[start:], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_see_every_image_once_but_the_broken_one(root, world):
    task = task_of(root)
    shares = [batches(task, rank=rank, world=world) for rank in range(world)]
    whole = batches(task)
    images = [image for share in shares for batch in share for image in batch[0]]
    assert len(images) == 19
    assert sum(int(batch[3]) for share in shares for batch in share) == 1
    expected = {image.numpy().tobytes() for batch in whole for image in batch[0]}
    assert len(expected) == 19
    assert {image.numpy().tobytes() for image in images} == expected


def predictions(task: ImageFilesTask, model: nn.Module, final: bool, world: int) -> list[Any]:
    with torch.no_grad():
        return [piece for rank in range(world) for piece in task.predict(model.eval(), final, rank, world)]


@pytest.mark.parametrize("workers", [0, 2])
def test_the_evaluation_of_two_ranks_is_that_of_one(root, workers):
    task = task_of(root, {"ood": ["inaturalist2018"]}, workers=workers)
    task.piece = 3
    torch.manual_seed(0)
    model = task.build()
    one, two = (task.evaluate(predictions(task, model, False, world)) for world in (1, 2))
    assert one == two
    ends = [task.conclude(predictions(task, model, True, world), {}) for world in (1, 2)]
    assert ends[0].numbers == ends[1].numbers
    for name, tensor in ends[0].tensors.items():
        assert torch.equal(tensor, ends[1].tensors[name])
    assert ends[0].tensors["ood_logits"].shape == (8, 4)
    assert ends[0].numbers["train_accuracy"] >= 0
    assert BROKEN in ends[1].files["broken.txt"].decode()


def test_the_workers_of_the_test_set_stay_for_the_next_evaluation(root):
    task = task_of(root, workers=5)
    task.piece = 3
    model = task.build()
    before = {worker.pid for worker in multiprocessing.active_children()}
    pids = []
    for _ in range(2):
        predictions(task, model, False, 1)
        pids.append({worker.pid for worker in multiprocessing.active_children()} - before)
    assert pids[0] == pids[1]
    assert len(pids[0]) == 3  # for three pieces, although five are allowed
    task.piece, task._test_loaders = 100, {}
    predictions(task, model, False, 1)
    assert {worker.pid for worker in multiprocessing.active_children()} - before <= pids[0]  # none for a single piece


def test_a_broken_file_is_named_once_skipped_and_counted(root, capsys):
    task = task_of(root)
    model = task.build().train()
    broken = 0.0
    for batch in batches(task) + batches(task):
        loss = task.loss(model, batch, task.objective(Clock()))
        assert len(batch[0]) + int(batch[3]) in (6, 2)
        broken += float(loss.sums["broken"])
    assert broken == 2
    assert task.training_numbers({"correct": 1.0, "examples": 19.0, "broken": 1.0})["broken"] == 1
    said = capsys.readouterr().err
    assert said.count(BROKEN) == 1
    assert "skipped a broken image" in said


def test_a_name_that_is_not_utf8_is_listed_with_its_bytes():
    broken = BrokenFiles(refuse=False, count=100)
    broken.note([os.fsdecode(b"caf\xe9.jpg: not an image")])
    assert broken.text() == b"caf\xe9.jpg: not an image\n"


def test_a_broken_file_is_refused_where_the_recipe_says_so(root):
    for workers in (0, 2):
        with pytest.raises(DataError, match=rf"{BROKEN}.*\. Repair or remove the file.*options.broken=skip"):
            batches(task_of(root, {"broken": "refuse"}, workers=workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_is_gone_ends_the_run_in_one_sentence(tmp_path, workers):
    folder = write_imagenet(tmp_path)
    task = task_of(tmp_path, workers=workers)
    (folder / "train" / CLASSES[0] / f"{CLASSES[0]}_2.JPEG").unlink()
    with pytest.raises(DataError) as caught:
        batches(task)
    assert str(caught.value).startswith(str(folder / "train" / CLASSES[0]))
    assert "cannot be read from the disk (No such file or directory)" in str(caught.value)


def test_many_broken_files_are_a_damaged_copy(tmp_path):
    folder = write_imagenet(tmp_path)
    for path in sorted((folder / "train").rglob("*.JPEG"))[:12]:
        truncate(path)
    with pytest.raises(DataError, match="11 of 28 files are broken so far, more than 1%"):
        batches(task_of(tmp_path))


def test_broken_test_images_are_left_out_of_the_accuracy_and_counted(tmp_path):
    folder = write_imagenet(tmp_path)
    truncate(sorted((folder / "val").rglob("*.JPEG"))[0])
    task = task_of(tmp_path)
    model = task.build()
    numbers = task.evaluate(predictions(task, model, False, 2))
    assert numbers["broken_test"] == 1
    assert numbers["accuracy"] * 7 / 100 == pytest.approx(round(numbers["accuracy"] * 7 / 100))
    assert task.conclude(predictions(task, model, True, 1), {}).tensors["labels"].shape == (7,)


def test_a_share_without_images_leaves_weights_and_statistics_alone(root):
    task = task_of(root)
    model = task.build().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    empty = tuple(tensor[:0] if tensor.ndim else tensor for tensor in batches(task)[0])
    loss = task.loss(model, empty, task.objective(Clock()))
    loss.mean.backward()
    assert (float(loss.mean.detach()), loss.count) == (0.0, 0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(param.grad is not None and not param.grad.any() for param in model.parameters())
    assert model.training


def test_a_share_without_images_has_the_divisor_of_the_arm(root):
    """Ranks divide the gradient that they have exchanged, so they must divide it by the same number."""
    spec = spec_of(root)
    stage = replace(spec.stages[0], objective=ObjectiveConfig(divisor=4.0))
    task = build_task("image_files", replace(spec, stages=(stage,)))
    model, objective = task.build().train(), task.objective(Clock())
    whole = batches(task)[0]
    empty = tuple(tensor[:0] if tensor.ndim else tensor for tensor in whole)
    losses = [task.loss(model, batch, objective) for batch in (whole, empty)]
    assert [(loss.least, loss.size()) for loss in losses] == [(4.0, 4.0), (4.0, 4.0)]


def test_class_balanced_batches(root):
    task = task_of(root, data="inaturalist2018", sampling=Sampling(kind="class_balanced", per_class=2), batch_size=8)
    counts = torch.bincount(torch.cat([labels for _, labels, _, _ in batches(task)]), minlength=4)
    skipped = sum(int(batch[3]) for batch in batches(task))
    assert int(counts.sum()) + skipped == 20
    assert (counts[:3] - 5).abs().max() <= 1  # 20 examples of 4 classes; the broken file is of the last


def test_norms_and_biases_can_be_left_without_weight_decay(root):
    task = task_of(root, {"decay": "weights"})
    model = task.build()
    decayed, plain = task.groups(model)
    assert (decayed.weight_decay, plain.weight_decay) == (None, 0.0)
    assert all(param.ndim > 1 for param in decayed.params)
    assert len(decayed.params) + len(plain.params) == len(list(model.parameters()))
    assert len(task_of(root).groups(model)) == 1


def test_test_images_as_one_tensor_for_attacks(root):
    task = task_of(root)
    images = task.test[0][:3]
    assert (images.dtype, tuple(images.shape)) == (torch.uint8, (3, 3, 32, 32))
    assert task.unit(images).shape == (3, 3, 32, 32)
    larger = torch.zeros(2, 3, 36, 36, dtype=torch.uint8)  # what `encouraging ood` makes of a folder
    assert task.unit(larger).shape == (2, 3, 32, 32)


@pytest.mark.parametrize(("options", "data", "words"), [
    ({"mixup": 0.2}, "imagenet", "mixup belongs to task = 'image'"),
    ({"size": 64}, "imagenet", "size belongs to task = 'image'"),
    ({"rand_augment": "m9"}, "imagenet", "expected a string of timm's, such as 'rand-m9-mstd0.5'"),
    ({"rand_augment": "rand-m99"}, "imagenet", "magnitude 99: expected one from 0 to 10"),
    ({"rand_augment": "rand-m99-mmax20"}, "imagenet", "magnitude 99: expected one from 0 to 20"),
    ({"rand_augment": "rand-m5-mmax0"}, "imagenet", "magnitude 5: expected one from 0 to 0"),
    ({"rand_augment": "rand-mmax9999"}, "imagenet", "mmax = 9999, the largest magnitude: expected a number from 1"),
    ({"rand_augment": "rand-m9-n0"}, "imagenet", "n = 0, operations per image: expected a number from 1 to 15"),
    ({"rand_augment": "rand-m9-p1.5"}, "imagenet", "p = 1.5, the probability of an operation: expected"),
    ({"rand_augment": "rand-m9-m3"}, "imagenet", "m is given twice"),
    ({"rand_augment": "rand-m9.5"}, "imagenet", "m = 9.5: expected a whole number"),
    ({"rand_augment": "rand-m9-mstd.5"}, "imagenet", "expected a string of timm's"),  # timm stops at an assertion
    ({"rand_augment": "rand-m9-tweight"}, "imagenet", "expected one of weights, 3a, 3aw. Did you mean 'weights'?"),
    ({"rand_augmnt": "rand-m9"}, "imagenet", "Did you mean 'rand_augment'"),
    ({"broken": "ignore"}, "imagenet", "'skip' or 'refuse'"),
    ({"test_resize": 16}, "imagenet", "at least train_size"),
    ({"erase": 1.5}, "imagenet", "options.erase"),
    ({}, "mnist", "mnist fits on the device"),
    ({}, "imagnet", "Did you mean 'imagenet'"),
    ({"ood": ["cifar10"]}, "imagenet", "cifar10 fits on the device"),
])
def test_what_does_not_go_together_is_refused_before_anything_is_read(options, data, words):
    with pytest.raises(RecipeError) as caught:
        check_task("image_files", spec_of(Path("nowhere"), options, data=data))
    assert words in str(caught.value)


@pytest.mark.parametrize("words", ["rand", "rand-m0", "rand-m10", "rand-m9-n3-mstd0.5", "rand-m15-mmax20-inc1",
                                   "rand-m9-p0.5-mstd101", "rand-m7-tweights", "rand-t3aw-n15"])
def test_what_timm_understands_is_taken(words):
    check_task("image_files", spec_of(Path("nowhere"), {"rand_augment": words}))
    training_transform(32, "random", words)


def test_workers_leave_a_core_to_the_training_unless_the_recipe_says_otherwise(root, monkeypatch):
    spec = spec_of(root)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert ImageFilesTask(spec).workers == 0
    unset = StageSpec(Train(epochs=1, lr=0.1, batch_size=4), objective=ObjectiveConfig())
    assert ImageFilesTask(TaskSpec("imagenet", "resnet20", (unset,), root=root, options=SMALL)).workers == 7
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    assert ImageFilesTask(TaskSpec("imagenet", "resnet20", (unset,), root=root, options=SMALL)).workers == 1
