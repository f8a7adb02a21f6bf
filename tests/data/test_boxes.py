"""Images with boxes: what is read of both layouts, and that flips and sizes keep boxes and pixels together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from box_toys import COLOURS, NAMES, drawn, write_coco, write_voc
from encouraging.data import Boxes, BoxImage, BoxSet, Clock, LoaderSource, Shuffled, download, load
from encouraging.data.box_examples import BoxExamples
from encouraging.data.boxes import make_image, read_boxes
from encouraging.data.coco import read_coco
from encouraging.data.draw import generator
from encouraging.data.voc import read_voc
from encouraging.errors import DataError
from seeded import seeded
from strategies import SEEDS


@pytest.fixture(scope="module")
def voc(tmp_path_factory):
    return write_voc(tmp_path_factory.mktemp("voc") / "squares", {"train": 5, "val": 2, "test": 3})


def square_of(pixels: torch.Tensor, label: int) -> torch.Tensor:
    """Where an image (3, H, W) has the colour of a class: corners from the first to after the last such pixel."""
    colour = torch.tensor(COLOURS[label])[:, None, None]
    rows, columns = ((pixels.int() - colour).abs().amax(0) < 60).nonzero().unbind(1)
    return torch.tensor([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]).float()


def test_a_folder_in_vocs_layout_has_its_lists_classes_and_pixels(voc):
    boxes = read_voc(voc)
    assert {part: len(images) for part, images in boxes.parts.items()} == {"train": 5, "validation": 2, "test": 3}
    assert (boxes.names, boxes.numbers, boxes.classes) == (NAMES, (1, 2), 2)
    for number, image in enumerate(boxes.parts["train"].images):
        _, corners, labels = drawn(number)
        assert image.boxes.tolist() == [list(map(float, box)) for box in corners]
        assert image.labels.tolist() == labels
        assert not image.crowd.any()
        assert image.read().shape == (3, 48, 60)


@pytest.mark.parametrize("number", range(3))
def test_a_read_box_holds_exactly_the_pixels_that_were_drawn(voc, number):
    """Corners count from 0 and end after the last pixel, although VOC's count from 1 and include it."""
    image = read_voc(voc).parts["test"].images[number]
    for label in set(image.labels.tolist()):
        whole = torch.cat([image.boxes[image.labels == label][:, :2].amin(0),
                           image.boxes[image.labels == label][:, 2:].amax(0)])
        assert torch.equal(square_of(image.read(), label), whole)


def one_square(size: int, left: int, top: int, width: int, height: int, tmp_path) -> BoxImage:
    pixels = np.full((height, width, 3), 90, np.uint8)
    pixels[top : top + size, left : left + size] = COLOURS[1]
    path = tmp_path / f"{size}-{left}-{top}-{width}-{height}.png"
    Image.fromarray(pixels).save(path)
    return make_image(path, 1, width, height, [(left, top, left + size, top + size)], [1])[0]


@given(seed=SEEDS, data=st.data())
def test_flips_and_sizes_keep_boxes_and_pixels_together(seed, data, tmp_path_factory):
    width, height = data.draw(st.integers(40, 90)), data.draw(st.integers(40, 90))
    size = data.draw(st.integers(14, 30))
    left, top = data.draw(st.integers(0, width - size)), data.draw(st.integers(0, height - size))
    sizes = data.draw(st.lists(st.integers(40, 120), min_size=1, max_size=3, unique=True))
    image = one_square(size, left, top, width, height, tmp_path_factory.mktemp("one"))
    examples = BoxExamples([image], sizes, max_size=150, flip=data.draw(st.sampled_from([0.0, 0.5, 1.0])))
    with seeded(generator(seed)):
        made = examples.example(0, generator(seed))
    (pixels,), (target,) = made.images, made.targets
    high, wide = pixels.shape[1:]
    # torchvision cuts the new side off, which can lose a pixel to rounding.
    assert min(abs(min(high, wide) - side) for side in sizes) <= 1 or max(high, wide) in (149, 150)
    assert wide / high == pytest.approx(width / height, rel=0.03)
    (box,) = target["boxes"]
    assert target["labels"].tolist() == [1]
    assert (box >= 0).all()
    assert box[2] <= wide
    assert box[3] <= high
    # Resizing blurs the edge by up to a pixel of the larger grid.
    assert (square_of(pixels, 1) - box).abs().max() <= 0.6 + max(high / height, 1)


@given(seed=SEEDS, thin=st.floats(1e-6, 1e-2), at=st.floats(0, 1), flip=st.sampled_from([0.0, 1.0]))
def test_no_box_without_area_is_taught_however_thin_it_was(seed, thin, at, flip):
    """torchvision's detectors refuse a batch with one, so a long training would end there."""
    width, height = 640, 480
    left, top = at * (width - thin), at * (height - thin)
    boxes = [(left, 10, left + thin, 60), (100, 100, 200, 200), (10, top, 60, top + thin), (width - thin, 1, width, 9)]
    image, _ = make_image(Path("none"), 1, width, height, boxes, [0, 1, 0, 0])
    examples = BoxExamples([image], [37, 352], max_size=600, flip=flip)
    examples._pixels[0] = torch.zeros(3, height, width, dtype=torch.uint8)
    with seeded(generator(seed)):
        (target,) = examples.example(0, generator(seed)).targets
    assert (target["boxes"][:, 2:] > target["boxes"][:, :2]).all()
    assert len(target["boxes"]) == len(target["labels"])
    assert 1 in target["labels"]


def test_a_certain_flip_mirrors_pixels_and_boxes_exactly(voc):
    image = read_voc(voc).parts["train"].images[0]
    made = BoxExamples([image], [48], flip=1.0).example(0, generator(0))
    assert torch.equal(made.images[0], image.read().flip(2))
    mirrored = torch.stack([60 - image.boxes[:, 2], image.boxes[:, 1], 60 - image.boxes[:, 0], image.boxes[:, 3]], 1)
    assert torch.equal(made.targets[0]["boxes"], mirrored)
    assert type(made.images[0]) is type(made.targets[0]["boxes"]) is torch.Tensor


def test_batches_follow_from_seed_epoch_and_index_alone(voc):
    images = read_voc(voc).parts["train"].images

    def batches(epoch: int, workers: int = 0, start: int = 0):
        source = LoaderSource(BoxExamples(images, [40, 48, 64], flip=0.5), Shuffled(5, 2), 3, workers=workers)
        return list(source.batches(Clock(1, epoch, 0), start, 0, 1))

    first, again = batches(1), batches(1, workers=2, start=1)
    assert sorted(number for batch in first for number in batch.numbers) == [0, 1, 2, 3, 4]
    for ours, expected in zip(again, first[1:], strict=True):
        assert ours.numbers == expected.numbers
        for mine, theirs in zip(ours.images, expected.images, strict=True):
            assert torch.equal(mine, theirs)
        assert torch.equal(ours.targets[0]["boxes"], expected.targets[0]["boxes"])
    looks = {tuple(batch.numbers) + tuple(image.shape for image in batch.images) for epoch in (1, 2, 3)
             for batch in batches(epoch)}
    assert len(looks) == 9


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_is_gone_is_named_in_the_same_words_by_a_worker(tmp_path, workers):
    images = read_voc(write_voc(tmp_path / "gone", {"train": 2, "test": 1})).parts["train"].images
    images[1].path.unlink()
    source = LoaderSource(BoxExamples(images, [48]), Shuffled(2, 1, False), 0, workers=workers)
    batches = source.batches(Clock(1, 1, 0), 0, 0, 1)
    assert next(batches).numbers == [0]
    with pytest.raises(DataError, match=r"^[^ ]*image001\.jpg: there is no such image"):
        next(batches)


@pytest.mark.parametrize(("box", "kept"), [
    ((3, 4, 3, 9), None), ((3, 4, 9, 4), None), ((9, 4, 3, 9), None), ((70, 4, 80, 9), None),
    ((-5, 4, 8, 60), [0, 4, 8, 48]), ((3, 4, 9, 9), [3, 4, 9, 9])])
def test_boxes_without_area_inside_the_image_are_skipped_and_counted_and_others_are_clipped(tmp_path, box, kept):
    image, skipped = make_image(tmp_path / "none.png", 1, 60, 48, [box, (1, 1, 5, 5)], [1, 0])
    assert skipped == (kept is None)
    assert image.boxes.tolist() == [*([kept] if kept else []), [1, 1, 5, 5]]
    assert image.labels.tolist() == [*([1] if kept else []), 0]


def test_crowds_are_not_taught(tmp_path):
    image = read_coco(write_coco(tmp_path)).parts["test"].images[3]
    assert len(BoxExamples([image], [48]).example(0, generator(0)).targets[0]["boxes"]) == 0
    assert len(BoxExamples([image]).example(0, generator(0)).targets[0]["boxes"]) == 2


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK"])
def test_images_of_any_8_bit_mode_become_rgb(tmp_path, mode):
    pixels, _, _ = drawn(3)
    path = tmp_path / f"one.{'jpg' if mode == 'CMYK' else 'png'}"
    Image.fromarray(pixels).convert(mode).save(path)
    image, _ = make_image(path, 1, 60, 48, [], [])
    assert image.read().shape == (3, 48, 60)


def test_a_grey_image_of_16_bits_is_scaled_instead_of_cut_off(tmp_path):
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((48, 60), 40_000, dtype=np.uint16)).save(path)
    assert (make_image(path, 1, 60, 48, [], [])[0].read() == 40_000 >> 8).all()


@pytest.mark.parametrize(("boxes", "labels", "words"), [
    ([(1, 2, 3)], [0], "four finite numbers"), ([(1, 2, 3, 4)], [0, 1], "1 boxes with 2 labels")])
def test_boxes_of_ones_own_that_cannot_be_are_refused_in_words(tmp_path, boxes, labels, words):
    with pytest.raises(DataError, match=words):
        make_image(tmp_path / "one.png", 1, 60, 48, boxes, labels)


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_without_a_name_is_refused(tmp_path, label):
    image, _ = make_image(tmp_path / "one.png", 1, 60, 48, [(1, 1, 20, 20)], [label])
    with pytest.raises(DataError, match=f"from {label} to {label}: expected 0 to 1"):
        Boxes({"train": BoxSet([image]), "test": BoxSet([image])}, ("blue", "red"))


def test_datasets_with_boxes_are_asked_for_in_words(tmp_path):
    for ask in (read_boxes, download):
        with pytest.raises(DataError, match=r"BCCD/ImageSets/Main/train.txt\n(.|\n)*: clone https"):
            ask("bccd", tmp_path)
    with pytest.raises(DataError, match='task = "detection"'):
        load("bccd", "train", tmp_path)
    with pytest.raises(DataError, match="mnist has no boxes"):
        read_boxes("mnist")
    with pytest.raises(DataError, match="expected Pascal VOC's layout"):
        read_boxes(f"folder:{tmp_path}")
    with pytest.raises(DataError, match="expected images in 'test'"):
        Boxes({"train": BoxSet([one_square(14, 1, 1, 40, 40, tmp_path)])}, ("red",))
