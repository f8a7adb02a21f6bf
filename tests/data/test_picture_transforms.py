"""What workers do to a picture is what torchvision and timm do; what is erased is what timm erases."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from PIL import Image

from encouraging.data import generator
from encouraging.data.picture_transforms import erase, erased_box, evaluation_transform, training_transform
from seeded import seeded

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def picture(seed: int = 0, size: tuple[int, int] = (90, 61)) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 256, (size[1] // 4 + 1, size[0] // 4 + 1, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def pixels(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).int()


def assert_within_one_level(ours: torch.Tensor, theirs: Image.Image) -> None:
    """torch's weights have 16 bits, Pillow's 22: some results are rounded to the neighbour."""
    difference = (ours.int() - pixels(theirs)).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.25


SIZES = [(90, 61), (61, 90), (500, 375), (17, 200), (200, 3), (1, 1), (1, 40), (32, 32), (33, 31)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_training_images_are_those_of_torchvision_within_one_grey_level(seed, size):
    from torchvision.transforms import v2

    theirs = v2.Compose([v2.RandomResizedCrop(32, antialias=True), v2.RandomHorizontalFlip()])
    for number in range(10):
        image = picture(seed, size)
        with seeded(generator(seed, number)):
            ours = training_transform(32)(np.asarray(image))
            state = torch.get_rng_state()
        with seeded(generator(seed, number)):
            assert_within_one_level(ours, theirs(image))
            assert torch.equal(torch.get_rng_state(), state)  # number by number the same draws


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_test_images_are_those_of_torchvision_within_one_grey_level(size):
    from torchvision.transforms import v2

    image = picture(1, size)
    theirs = v2.Compose([v2.Resize(37, antialias=True), v2.CenterCrop(32)])(image)
    assert_within_one_level(evaluation_transform(37, 32)(np.asarray(image)), theirs)


@pytest.mark.parametrize("interpolation", ["bicubic", "random"])
def test_other_interpolations_are_torchvisions_to_the_bit(interpolation):
    from torchvision.transforms import InterpolationMode, v2

    modes = [InterpolationMode.BILINEAR, InterpolationMode.BICUBIC][interpolation == "bicubic" :]
    crops = [v2.RandomResizedCrop(32, interpolation=mode, antialias=True) for mode in modes]
    theirs = v2.Compose([v2.RandomChoice(crops) if len(crops) > 1 else crops[0], v2.RandomHorizontalFlip()])
    for number in range(6):
        with seeded(generator(number)):
            ours = training_transform(32, interpolation)(np.asarray(picture(number)))
        with seeded(generator(number)):
            assert torch.equal(ours.int(), pixels(theirs(picture(number))))
    middle = v2.Compose([v2.Resize(37, InterpolationMode.BICUBIC, antialias=True), v2.CenterCrop(32)])
    assert torch.equal(evaluation_transform(37, 32, "bicubic")(np.asarray(picture())).int(), pixels(middle(picture())))


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(1, 20_000), (20_000, 1), (3, 9000)], ids=str)
def test_a_very_long_picture_does_not_fill_the_memory(size, interpolation):
    """A shorter side of 1 pixel, resized to 256, would make 4 gigabytes of this one."""
    image = np.zeros((size[1], size[0], 3), np.uint8)
    middle = np.argmax(size)
    image[(slice(None), slice(9000, 11000)) if middle == 0 else slice(9000, 11000)] = 200
    cut = evaluation_transform(256, 224, interpolation)(image)
    assert cut.shape == (224, 224, 3)
    assert (cut == (200 if max(size) == 20_000 else 0)).all()
    assert training_transform(224)(image).shape == (224, 224, 3)


def test_normalised_on_the_device_they_are_those_of_torchvision():
    from torchvision import transforms

    cut = evaluation_transform(37, 32)(np.asarray(picture()))
    theirs = transforms.Compose([transforms.Resize(37), transforms.CenterCrop(32), transforms.ToTensor(),
                                 transforms.Normalize(MEAN, STD)])(picture())
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (MEAN, STD))
    ours = cut.permute(2, 0, 1).float() * (1 / (255 * std)) - mean / std  # as the task does it
    assert ((ours - theirs).abs() * 255 * std).max() <= 1.001


@pytest.mark.parametrize("seed", range(8))
def test_rand_augment_is_timms(seed):
    """The whole list of timm's own training transforms, but for the crop, which torchvision draws in another order."""
    from timm.data.transforms_factory import transforms_imagenet_train

    theirs = transforms_imagenet_train(32, auto_augment="rand-m9-mstd0.5", interpolation="random", mean=MEAN,
                                       separate=True)[1]
    ours = training_transform(32, "random", "rand-m9-mstd0.5", MEAN)
    state = random.getstate(), np.random.get_state()
    results = []
    for transform in (theirs, ours.steps[-1]):
        random.seed(seed)
        np.random.seed(seed)
        results.append(transform(picture(seed, (32, 32))))
    random.setstate(state[0])
    np.random.set_state(state[1])
    assert np.array_equal(*map(np.asarray, results))


def test_erased_boxes_are_as_frequent_as_large_and_as_long_as_timms():
    draw = generator(3)
    boxes = torch.stack([erased_box(224, 0.2, draw) for _ in range(4000)]).double()
    erased = boxes[boxes[:, 2] > 0]
    assert len(erased) / len(boxes) == pytest.approx(0.2, abs=0.02)
    area, ratio = erased[:, 2] * erased[:, 3] / 224**2, erased[:, 2] / erased[:, 3]
    assert 0.019 < area.min() < 0.03
    assert 0.3 < area.max() < 0.337
    assert area.mean() == pytest.approx((0.02 + 1 / 3) / 2, abs=0.012)
    assert 0.29 < ratio.min() < 0.4
    assert 2.5 < ratio.max() < 3.4
    assert ((erased[:, 0] + erased[:, 2] <= 224) & (erased[:, 1] + erased[:, 3] <= 224)).all()
    middle = erased[:, 0] + erased[:, 2] / 2
    assert middle.mean() == pytest.approx(112, abs=5)


def test_only_the_box_becomes_noise_of_unit_deviation():
    torch.manual_seed(0)
    images = torch.full((3, 3, 40, 50), 7.0)
    boxes = torch.tensor([[0, 0, 0, 0], [3, 5, 30, 20], [0, 0, 40, 50]])
    erased = erase(images, boxes)
    assert torch.equal(erased[0], images[0])
    inside = erased[1, :, 3:33, 5:25]
    assert (inside != 7).all()
    assert (erased[1] != 7).sum() == inside.numel()
    assert erased[2].mean().item() == pytest.approx(0, abs=0.05)
    assert erased[2].std().item() == pytest.approx(1, abs=0.05)
