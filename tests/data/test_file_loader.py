"""Batches of pictures come out of shared slots whole, in any order of epochs, and are not overwritten afterwards."""

from __future__ import annotations

import gc
import multiprocessing

import numpy as np
import pytest
import torch
from PIL import Image

from encouraging.data import Clock, FileList, FileSplit, Shuffled
from encouraging.data.file_examples import FileExamples
from encouraging.data.file_loader import FileLoader
from encouraging.data.picture_transforms import training_transform
from encouraging.data.sources import AHEAD, Request
from encouraging.errors import DataError
from tiny_files import truncate

COUNT, BATCH = 11, 4


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(COUNT):
        Image.new("RGB", (20 + number, 30), (number, 2 * number, 3 * number)).save(folder / f"{number}.png")
    truncate(folder / "3.png")
    return FileSplit(FileList(folder, [f"{number}.png" for number in range(COUNT)]), torch.arange(COUNT))


def loader(split, workers, epochs=0):
    examples = FileExamples(split, training_transform(16), 16, erase=0.5)
    return FileLoader(examples, Shuffled(COUNT, BATCH), 5, batch=BATCH, workers=workers, epochs=epochs)


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))
        assert a[4:] == b[4:]


@pytest.mark.parametrize(("workers", "epochs"), [(1, 0), (1, 4), (3, 4)])
def test_four_epochs_are_those_of_one_process_and_stay_as_they_were_received(split, workers, epochs):
    ours, theirs = loader(split, workers, epochs), loader(split, 0)
    kept = [(list(ours.batches(Clock(1, epoch), 0, 0, 1)), list(theirs.batches(Clock(1, epoch), 0, 0, 1)))
            for epoch in range(1, 5)]
    for mine, other in kept:  # compared at the end, when every slot has been used several times
        assert_same(mine, other)
        images = torch.cat([loaded.images for loaded in mine])
        labels = torch.cat([loaded.labels for loaded in mine])
        assert sorted(labels.tolist()) == [number for number in range(COUNT) if number != 3]
        assert torch.equal(images[:, 5, 5].int(), labels[:, None].int() * torch.tensor([1, 2, 3]))
        assert sum(int(loaded.skipped) for loaded in mine) == 1
    assert len(ours.slots.memory) == AHEAD * workers + 1


def test_slots_are_not_lost_when_epochs_are_left_in_the_middle(split):
    ours, theirs = loader(split, 2, epochs=20), loader(split, 0)
    for epoch in range(1, 12):
        left = ours.batches(Clock(1, epoch), epoch % 2, 0, 1)
        for _ in range(epoch % 3):
            next(left)
    assert_same(ours.batches(Clock(1, 12), 0, 0, 1), theirs.batches(Clock(1, 12), 0, 0, 1))


def test_workers_end_with_the_last_reference_to_their_loader(split):
    before = set(multiprocessing.active_children())
    ours = loader(split, 2, epochs=3)
    batches = ours.batches(Clock(1, 1), 0, 0, 1)
    next(batches)
    workers = set(multiprocessing.active_children()) - before
    assert len(workers) == 2
    gc.disable()
    try:
        del ours, batches
        for worker in workers:
            worker.join(30)
        assert not any(worker.is_alive() for worker in workers)
    finally:
        gc.enable()


def test_workers_need_no_file_of_shared_memory_per_batch(split):
    """Containers keep /dev/shm small, and the number of open files too."""
    answer = loader(split, 1).reader[0, Request(1, 1, 0, [0, 3, 5], [0, 0, 0])]
    assert answer.slot == 0
    assert all(not isinstance(part, torch.Tensor) for part in answer)
    assert (answer.labels.tolist(), len(answer.faults)) == ([0, 5], 1)
    assert isinstance(answer.boxes, np.ndarray)


def test_too_little_memory_is_said_with_what_to_do(split):
    examples = FileExamples(split, training_transform(16), 16)
    with pytest.raises(DataError, match=r"5 batches of .* MiB, two per worker and one more, .* --set train.workers=2"):
        FileLoader(examples, Shuffled(COUNT, BATCH), 5, batch=2**50, workers=2)
