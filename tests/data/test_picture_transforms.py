"""What workers do to a picture is what torchvision and timm do; what is erased is what timm erases."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from PIL import Image

from encouraging.data import generator
from encouraging.data.draw import seeded
from encouraging.data.picture_transforms import erase, erased_box, evaluation_transform, pixels, training_transform

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def picture(seed: int = 0, size: tuple[int, int] = (90, 61)) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 256, (size[1] // 4 + 1, size[0] // 4 + 1, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def assert_equal_pictures(ours, theirs):
    assert np.array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("seed", range(5))
def test_training_images_are_those_of_torchvisions_example(seed):
    from torchvision import transforms

    theirs = transforms.Compose([transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip()])
    with seeded(generator(seed)):
        ours = training_transform(32)(picture(seed))
    with seeded(generator(seed)):
        assert_equal_pictures(ours, theirs(picture(seed)))


def test_normalised_on_the_device_they_are_those_of_torchvision():
    from torchvision import transforms

    cut = evaluation_transform(37, 32)(picture())
    theirs = transforms.Compose([transforms.Resize(37), transforms.CenterCrop(32), transforms.ToTensor(),
                                 transforms.Normalize(MEAN, STD)])(picture())
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (MEAN, STD))
    ours = pixels(cut).permute(2, 0, 1).float() * (1 / (255 * std)) - mean / std  # as the task does it
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_rand_augment_is_timms(seed):
    """The whole list of timm's own training transforms, but for the crop, which torchvision draws in another order."""
    from timm.data.transforms_factory import transforms_imagenet_train

    theirs = transforms_imagenet_train(32, auto_augment="rand-m9-mstd0.5", interpolation="random", mean=MEAN,
                                       separate=True)[1]
    ours = training_transform(32, "random", "rand-m9-mstd0.5", MEAN)
    state = random.getstate(), np.random.get_state()
    results = []
    for transform in (theirs, ours.transforms[-1]):
        random.seed(seed)
        np.random.seed(seed)
        results.append(transform(picture(seed, (32, 32))))
    random.setstate(state[0])
    np.random.set_state(state[1])
    assert_equal_pictures(*results)


def test_both_interpolations_are_drawn():
    ours = training_transform(32, "random")
    plain = [training_transform(32, mode) for mode in ("bilinear", "bicubic")]
    kinds = {str(step.interpolation) for step in ours.transforms[0].transforms}
    assert kinds == {str(each.transforms[0].interpolation) for each in plain}


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
