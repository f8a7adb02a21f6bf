"""Images in a folder per class: what is read of any picture file, and what is refused in words."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from encouraging.data.class_folders import list_class_folders
from encouraging.data.images import folder_path, read_images
from encouraging.errors import DataError


def draw(path, mode="L", size=(8, 8), value=100):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new(mode, size, value if mode in ("L", "I;16") else (value, 0, 0, 255)[: len(mode)])
    picture.save(path)


@pytest.fixture
def folder(tmp_path):
    for split, count in (("train", 4), ("test", 2)):
        for label, name in enumerate(("ant", "bee")):
            for number in range(count):
                draw(tmp_path / "images" / split / name / f"{number}.png", value=50 + 150 * label + number)
    return tmp_path / "images"


def read(folder, **how):
    return read_images(f"folder:{folder}", **how)


def test_a_folder_per_class_is_a_dataset(folder):
    images = read(folder)
    assert (images.names, images.classes, images.channels) == (("ant", "bee"), 2, 1)
    x, y = images.splits["train"]
    assert (x.shape, x.dtype, y.tolist()) == ((8, 1, 8, 8), torch.uint8, [0, 0, 0, 0, 1, 1, 1, 1])
    assert x[:, 0, 0, 0].tolist() == [50, 51, 52, 53, 200, 201, 202, 203]
    assert images.mean[0] == pytest.approx(x.double().mean().item() / 255)
    assert images.std[0] == pytest.approx((x.double() / 255).std(unbiased=False).item())


def test_grey_images_become_coloured_where_one_is(folder):
    """Also where the coloured one is in the other split."""
    draw(folder / "test" / "bee" / "red.png", "RGB", value=255)
    images = read(folder)
    assert images.channels == 3
    assert images.splits["train"][0].shape[1:] == images.splits["test"][0].shape[1:] == (3, 8, 8)
    assert images.splits["train"][0][0, :, 0, 0].tolist() == [50, 50, 50]
    draw(folder / "train" / "ant" / "clear.png", "RGBA", value=200)
    assert read(folder).splits["train"][0][4, :, 0, 0].tolist() == [200, 0, 0]


def test_mixed_sizes_need_a_size(folder):
    draw(folder / "train" / "ant" / "wide.png", size=(16, 8))
    with pytest.raises(DataError, match=r"images of 2 sizes \(8 x 8, 16 x 8.*options.size"):
        read(folder)
    assert read(folder, size=6).splits["train"][0].shape == (9, 1, 6, 6)
    (folder / "train" / "ant" / "wide.png").unlink()
    for path in folder.glob("test/*/*.png"):
        draw(path, size=(9, 9))
    with pytest.raises(DataError, match=r"train has images of \(1, 8, 8\) and test has images of \(1, 9, 9\)"):
        read(folder)


def test_the_middle_of_a_resized_image_is_kept(folder):
    striped = np.zeros((8, 24), np.uint8)
    striped[:, 8:16] = 255
    Image.fromarray(striped).save(folder / "train" / "ant" / "a.png")
    images = read(folder, size=8).splits["train"][0]
    assert (images[4] == 255).all()  # after the digits in alphabetical order


def test_sixteen_bits_keep_their_shades_and_thirty_two_are_refused(folder):
    for number, value in enumerate((0, 257 * 30, 257 * 255)):
        draw(folder / "train" / "ant" / f"deep{number}.png", "I;16", value=value)
    assert read(folder).splits["train"][0][4:7, 0, 0, 0].tolist() == [0, 30, 255]
    (folder / "train" / "ant" / "deep3.pgm").write_bytes(b"P5 8 8 65535\n" + (257 * 40).to_bytes(2, "big") * 64)
    assert read(folder).splits["train"][0][7, 0, 0, 0] == 40
    Image.new("F", (8, 8), 0.5).save(folder / "train" / "ant" / "float.tiff")
    with pytest.raises(DataError, match=r"float.tiff: .*32 bits per pixel"):
        read(folder)


def test_a_palette_with_transparent_colours_is_read_without_a_warning(folder):
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, 200, 100, 50])
    picture.save(folder / "train" / "ant" / "palette.png", transparency=bytes([0, 128]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = read(folder).splits["train"][0]
    assert images[4, :, 0, 0].tolist() == [200, 100, 50]


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "bmp"])
def test_a_broken_file_is_named_whatever_is_wrong_with_it(folder, ending):
    """Cut off or changed at any byte it is either read or refused in words."""
    path = folder / "train" / "ant" / f"broken.{ending}"
    draw = np.random.default_rng(0)
    Image.fromarray(draw.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    whole, choose, refused = path.read_bytes(), random.Random(0), 0
    cuts = [whole[:at] for at in choose.sample(range(len(whole)), 25)]
    flips = [bytes(whole[:at]) + bytes([whole[at] ^ (1 << choose.randrange(8))]) + bytes(whole[at + 1 :])
             for at in choose.sample(range(len(whole)), 40)]
    for content in (*cuts, *flips):
        path.write_bytes(content)
        said = refusal(folder)
        refused += said is not None
        assert said is None or str(path) in said
    assert refused >= 5


def refusal(folder):
    try:
        read(folder, size=8)
    except DataError as error:
        return str(error)
    return None


def test_a_class_without_training_images_is_refused_and_one_without_test_images_is_not(folder):
    (folder / "train" / "cat" / "nested").mkdir(parents=True)
    with pytest.raises(DataError, match=r"cat: no images; expected files ending in \.png"):
        read(folder)
    draw(folder / "train" / "cat" / "nested" / "0.png")
    assert read(folder).classes == 3


@pytest.mark.parametrize(("name", "advised"), [("ant", True), ("test", False)])
def test_classes_that_are_not_divided_into_two_parts_are_noticed(tmp_path, name, advised):
    for kind in (name, "bee"):
        draw(tmp_path / kind / "0.png")
    with pytest.raises(DataError, match="expected a folder train in it") as error:
        read(tmp_path)
    assert ("between two folders, here train/ant and test/ant" in str(error.value)) == advised


def test_images_of_folders_are_those_that_are_listed_for_the_task_of_files(folder):
    """In folders within a class too; none is left out unnoticed."""
    for name in ("ant", "bee"):
        draw(folder / "train" / name / "sub" / "1.png", value=77)
    images, labels = read(folder).splits["train"]
    listed = list_class_folders(folder, "train")
    assert len(images) == len(listed)
    assert labels.tolist() == listed.labels.tolist()
    assert int((images == 77).all(3).all(2).all(1).sum()) == 2
    draw(folder / "train" / "loose.png")
    with pytest.raises(DataError, match=r"train/loose\.png: outside of the folders of classes"):
        read(folder)


def test_hidden_files_and_folders_are_neither_images_nor_classes(folder):
    before = [len(labels) for _, labels in read(folder).splits.values()]
    for split in ("train", "test"):
        (folder / split / "ant" / "._0.png").write_bytes(b"\0\5\x16\7")  # as macOS leaves them on other systems' disks
        draw(folder / split / ".ipynb_checkpoints" / "0.png")
    images = read(folder)
    assert [len(labels) for _, labels in images.splits.values()] == before
    assert images.names == ("ant", "bee")


def test_what_is_missing_in_a_folder_is_said(folder, tmp_path, monkeypatch):
    draw(folder / "test" / "cat" / "0.png")
    with pytest.raises(DataError, match="test has the class 'cat', which the training part does not have"):
        read(folder)
    with pytest.raises(DataError, match=r"no such folder; looked for .*nowhere"):
        read(tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:  # the folder of the recipe is the current one
        folder_path("folder:nowhere", tmp_path / "data", str(tmp_path))
    assert str(caught.value).count("nowhere") == 3  # the name itself and two places
    for name in ("0", "1"):
        (folder / "test" / "cat" / f"{name}.png").unlink(missing_ok=True)
    for path in folder.glob("test/*/*.png"):
        path.unlink()
    (folder / "test" / "cat").rmdir()
    with pytest.raises(DataError, match=r"test/ant.*: no images; expected files ending in .png"):
        read(folder)
    (folder / "only" / "train" / "ant").mkdir(parents=True)
    with pytest.raises(DataError, match="one folder per class, two or more; found 1"):
        read(folder / "only")
    (folder / "only" / "train" / "bee").mkdir()
    with pytest.raises(DataError, match="expected a folder test or val in it"):
        read(folder / "only", splits=("test",))
