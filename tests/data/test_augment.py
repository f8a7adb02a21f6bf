"""Crops of a batch against torchvision's of one image, on the same boxes; draws against torchvision's by counting."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy import stats
from torch import Tensor
from torchvision import transforms
from torchvision.transforms import functional as T

from encouraging.data import augment
from encouraging.errors import ArgumentError, ShapeError
from strategies import SEEDS, generator

BILINEAR = T.InterpolationMode.BILINEAR


def pictures(n: int, height: int, width: int, seed: int = 0) -> Tensor:
    images = torch.randint(256, (n, 3, height, width), generator=generator(seed), dtype=torch.uint8)
    images[0], images[1] = 0, 255
    return images


def torchvisions(images: Tensor, boxes: Tensor, size: int, flip: Tensor | None = None) -> Tensor:
    cut = [T.resized_crop(image, *box, [size, size], BILINEAR, antialias=True)
           for image, box in zip(images, boxes.tolist(), strict=True)]
    flips = [False] * len(cut) if flip is None else flip.tolist()
    return torch.stack([T.hflip(one) if mirrored else one for one, mirrored in zip(cut, flips, strict=True)])


@given(seed=SEEDS, shape=st.sampled_from([(32, 32), (40, 23), (9, 60)]), size=st.sampled_from([1, 8, 32, 57]))
def test_a_batch_of_crops_is_torchvision_s_to_one_grey_level(seed: int, shape: tuple[int, int], size: int) -> None:
    images, index = pictures(12, *shape, seed), torch.arange(12)
    boxes, flip = augment.random_boxes(index, *shape, (seed,)), augment.random_flips(index, (seed,))
    ours, theirs = augment.resized_crop(images, boxes, size, flip), torchvisions(images, boxes, size, flip)
    assert ours.dtype == torch.uint8
    difference = (ours.int() - theirs.int()).abs()
    assert int(difference.max()) <= 1
    assert float((difference > 0).float().mean()) < 0.01  # only where a half is rounded
    torch.testing.assert_close(augment.resized_crop(images / 255, boxes, size, flip),
                               torchvisions(images / 255, boxes, size, flip), rtol=0, atol=1e-5)


def test_at_the_paper_s_size_it_is_torchvision_s_and_pillow_s() -> None:
    images, index = pictures(24, 32, 32), torch.arange(24)
    boxes = augment.random_boxes(index, 32, 32, (0, 1))
    ours = augment.resized_crop(images, boxes, 224)
    assert int((ours.int() - torchvisions(images, boxes, 224).int()).abs().max()) <= 1
    for image, box, result in zip(images, boxes.tolist(), ours, strict=True):
        pillow = T.resized_crop(Image.fromarray(image.permute(1, 2, 0).numpy()), *box, [224, 224], BILINEAR)
        assert int((result.int() - torch.from_numpy(np.array(pillow)).permute(2, 0, 1).int()).abs().max()) <= 1


@pytest.mark.parametrize("shape", [(32, 32), (40, 32), (300, 256), (256, 311), (500, 333)])
@pytest.mark.parametrize(("resize", "crop"), [(256, 224), (36, 32), (128, 128)])
def test_the_test_images_are_torchvision_s(shape: tuple[int, int], resize: int, crop: int) -> None:
    images = pictures(3, *shape)
    theirs = transforms.Compose([transforms.Resize(resize), transforms.CenterCrop(crop)])
    assert int((augment.resize_center_crop(images, resize, crop).int() - theirs(images).int()).abs().max()) <= 1
    torch.testing.assert_close(augment.resize_center_crop(images / 255, resize, crop), theirs(images / 255),
                               rtol=0, atol=1e-5)
    ours = augment.resize_center_crop(images, resize, crop)[2]
    pillow = torch.from_numpy(np.array(theirs(Image.fromarray(images[2].permute(1, 2, 0).numpy())))).permute(2, 0, 1)
    assert int((ours.int() - pillow.int()).abs().max()) <= 1


def test_a_share_without_images_has_the_shape_of_one() -> None:
    """Of two ranks one has nothing of a last batch of one image."""
    none = torch.zeros(0, 3, 8, 6, dtype=torch.uint8)
    boxes, flips = augment.random_boxes(torch.arange(0), 8, 6, (0,)), augment.random_flips(torch.arange(0), (0,))
    assert augment.resized_crop(none, boxes, 4, flips).shape == (0, 3, 4, 4)
    assert augment.resize_center_crop(none, 8, 7).shape == (0, 3, 7, 7)


@given(seed=SEEDS, size=st.sampled_from([4, 16]))
def test_whole_images_at_their_size_stay_as_they_are(seed: int, size: int) -> None:
    images = pictures(3, size, size, seed)
    whole = torch.tensor([[0, 0, size, size]]).expand(3, 4)
    assert torch.equal(augment.resized_crop(images, whole, size), images)
    assert torch.equal(augment.resized_crop(images, whole, size, torch.ones(3, dtype=torch.bool)), images.flip(3))
    assert torch.equal(augment.resize_center_crop(images, size, size), images)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (20, 60), (64, 9), (3, 3)])
def test_boxes_are_drawn_as_torchvision_draws_them(height: int, width: int) -> None:
    """The same distribution of sizes and positions, by two-sample Kolmogorov-Smirnov tests at 1 in 10000."""
    count = 6000
    ours = augment.random_boxes(torch.arange(count), height, width, (3,))
    torch.manual_seed(0)
    image = torch.zeros(1, height, width)
    theirs = torch.tensor([transforms.RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3])
                           for _ in range(count)])
    top, left, tall, wide = ours.unbind(1)
    assert bool(((top >= 0) & (left >= 0) & (tall > 0) & (wide > 0)).all())
    assert bool(((top + tall <= height) & (left + wide <= width)).all())
    for name, measure in {"top": lambda b: b[:, 0], "left": lambda b: b[:, 1], "height": lambda b: b[:, 2],
                          "width": lambda b: b[:, 3], "area": lambda b: b[:, 2] * b[:, 3],
                          "ratio": lambda b: b[:, 3] / b[:, 2]}.items():
        assert stats.ks_2samp(measure(ours).numpy(), measure(theirs).numpy()).pvalue > 1e-4, name


@pytest.mark.parametrize(("height", "width"), [(8, 100), (100, 8), (50, 50)])
def test_a_box_that_never_fits_is_the_largest_central_one(height: int, width: int) -> None:
    """Three times the image's area never fits."""
    boxes = augment.random_boxes(torch.arange(5), height, width, (0,), scale=(3.0, 3.0))
    image = torch.zeros(1, height, width)
    assert boxes.tolist() == [list(transforms.RandomResizedCrop.get_params(image, [3.0, 3.0], [3 / 4, 4 / 3]))] * 5


@given(seed=SEEDS, epoch=st.integers(0, 300))
def test_what_is_drawn_follows_from_the_words_and_the_example_alone(seed: int, epoch: int) -> None:
    order = torch.randperm(50, generator=generator(seed))
    for draw in (lambda index, words: augment.random_boxes(index, 32, 32, words), augment.random_flips):
        whole = draw(torch.arange(50), (seed, epoch))
        torch.rand(3)
        assert torch.equal(draw(order[7:20], (seed, epoch)), whole[order[7:20]])
        assert not torch.equal(draw(torch.arange(50), (seed, epoch + 1)), whole)


def test_the_random_numbers_are_splitmix64_and_uniform() -> None:
    """The published generator in Python's integers, and a test of uniformity and of neighbours."""
    key = int(np.random.SeedSequence((5, 7)).generate_state(1, np.uint64)[0])
    drawn = augment.uniforms(torch.arange(1000), 22, (5, 7))
    for example, number in ((0, 0), (3, 21), (999, 4)):
        z = (key + (example * 22 + number + 1) * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        assert drawn[example, number].item() == ((z ^ (z >> 31)) >> 11) * 2.0**-53
    assert stats.kstest(drawn.flatten().numpy(), "uniform").pvalue > 1e-4
    for one, other in ((drawn[:, 0], drawn[:, 1]), (drawn[:-1, 0], drawn[1:, 0])):
        assert abs(stats.pearsonr(one.numpy(), other.numpy()).statistic) < 0.13
    other = augment.uniforms(torch.arange(1000), 22, (5, 8))
    assert abs(stats.pearsonr(drawn.flatten().numpy(), other.flatten().numpy()).statistic) < 0.03


def test_autocast_does_not_coarsen_the_pixels() -> None:
    images, boxes = pictures(4, 32, 32), augment.random_boxes(torch.arange(4), 32, 32, (0,))
    with torch.autocast("cpu", torch.bfloat16):
        cut = augment.resized_crop(images, boxes, 40)
    assert torch.equal(cut, augment.resized_crop(images, boxes, 40))


def test_what_does_not_fit_is_refused() -> None:
    images = pictures(2, 8, 8)
    with pytest.raises(ShapeError, match=r"boxes \(N, 4\), got \(2, 3, 8, 8\) and \(3, 4\)"):
        augment.resized_crop(images, torch.zeros(3, 4, dtype=torch.int64), 4)
    with pytest.raises(ShapeError, match=r"got \(3, 8, 8\)"):
        augment.resize_center_crop(images[0])
    with pytest.raises(ArgumentError, match="expected 0 < crop <= resize"):
        augment.resize_center_crop(images, 8, 9)
    with pytest.raises(ArgumentError, match="the lowest and then the highest"):
        augment.random_boxes(torch.arange(2), 8, 8, (0,), scale=(1.0, 0.5))
