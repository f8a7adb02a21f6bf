"""One way to open a picture file, whoever reads it; damaged files give errors that name the file."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from encouraging.data.any_images import AnyImages, read_picture
from encouraging.data.boxes import make_image
from encouraging.data.decode import decode
from encouraging.data.folder import _read
from encouraging.data.pictures import BrokenImageError, open_picture
from encouraging.errors import DataError

FORMATS = ("png", "jpg", "gif", "bmp", "webp", "tif", "ppm")
RANDOM = np.random.default_rng(0)


def damaged(path: Path, count: int) -> list[bytes]:
    """The content of a picture with one byte changed."""
    Image.fromarray(RANDOM.integers(0, 256, (8, 9, 3), dtype=np.uint8)).save(path)
    whole, choose = path.read_bytes(), random.Random(1)
    contents = []
    for _ in range(count):
        at = choose.randrange(min(len(whole), 120))
        contents.append(whole[:at] + bytes([choose.randrange(256)]) + whole[at + 1 :])
    return contents


@pytest.mark.parametrize("ending", FORMATS)
def test_a_file_with_another_byte_is_read_or_refused_with_its_name(tmp_path: Path, ending: str):
    path, messages = tmp_path / f"one.{ending}", []
    for content in damaged(path, 120):
        path.write_bytes(content)
        try:
            assert open_picture(path).mode in ("L", "RGB")
        except BrokenImageError as error:
            messages.append(str(error))
    assert messages
    assert all(words.startswith(f"{path}: not an image that can be read") for words in messages)


def test_all_broken_files_of_a_folder_are_counted(tmp_path: Path):
    for ending in FORMATS:
        for number, content in enumerate(damaged(tmp_path / f"whole.{ending}", 40)):
            (tmp_path / f"{number}.{ending}").write_bytes(content)
    files = tuple(sorted(tmp_path.iterdir()))
    broken = 0
    for file in files:
        try:
            read_picture(file)
        except DataError:
            broken += 1
    assert broken > 10
    with pytest.raises(DataError, match=f"{broken} of {len(files)} files cannot be used"):
        list(AnyImages("mine", files).blocks(3, (8, 8)))


@pytest.mark.parametrize(("mode", "kind"), [
    ("1", "png"), ("L", "png"), ("LA", "png"), ("P", "png"), ("RGB", "png"), ("RGBA", "png"), ("I;16", "png"),
    ("I;16", "tif"), ("I;16", "pgm"), ("L", "jpg"), ("RGB", "jpg"), ("CMYK", "jpg"), ("P", "gif"), ("L", "bmp")])
def test_one_picture_has_one_reading(tmp_path: Path, mode: str, kind: str):
    path = tmp_path / f"one.{kind}"
    if mode == "I;16":
        Image.fromarray(RANDOM.integers(0, 65536, (8, 9), dtype=np.uint16)).save(path)
    else:
        Image.fromarray(RANDOM.integers(0, 256, (8, 9, 3), dtype=np.uint8)).convert(mode).save(path)
    expected = torch.from_numpy(np.array(open_picture(path).convert("RGB"))).permute(2, 0, 1)
    grey = mode in ("1", "L", "LA", "I;16")
    assert open_picture(path).mode == ("L" if grey else "RGB")
    assert torch.equal(read_picture(path)[0], expected[:1] if grey else expected)
    assert torch.equal(torch.from_numpy(decode(str(path)).copy()).permute(2, 0, 1), expected)
    assert torch.equal(make_image(path, 1, 9, 8, [], [])[0].read(), expected)
    assert np.array_equal(_read(path, None), expected[0].numpy() if grey else expected.permute(1, 2, 0).numpy())


def test_sixteen_bits_keep_their_upper_eight(tmp_path: Path):
    Image.fromarray(np.array([[0, 255, 256, 257, 40_000, 65_279, 65_535]], dtype=np.uint16)).save(tmp_path / "a.png")
    assert np.asarray(open_picture(tmp_path / "a.png")).tolist() == [[0, 0, 1, 1, 156, 254, 255]]


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_thirty_two_bits_are_refused(tmp_path: Path, dtype: type):
    Image.fromarray(np.zeros((4, 4), dtype)).save(tmp_path / "a.tif")
    with pytest.raises(BrokenImageError, match=r"a\.tif: .*32 bits per pixel"):
        open_picture(tmp_path / "a.tif")


def test_a_file_that_is_gone_is_no_broken_image(tmp_path: Path):
    with pytest.raises(DataError, match="cannot be read from the disk") as caught:
        open_picture(tmp_path / "gone.png")
    assert not isinstance(caught.value, BrokenImageError)


def test_what_pillow_only_warns_of_is_read(tmp_path: Path):
    Image.fromarray(RANDOM.integers(0, 256, (4, 5), dtype=np.uint8)).quantize(4).save(
        tmp_path / "a.png", transparency=bytes([0, 128, 255]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_picture(tmp_path / "a.png").mode == "RGB"
