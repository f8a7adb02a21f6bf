"""Images of any size and mode: made to fit, or refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from encouraging.data import load
from encouraging.data.any_images import image_datasets, open_images, read_picture
from encouraging.data.fit import fit_images
from encouraging.errors import DataError
from tiny_files import write_imagenet
from tiny_images import write_mnist

RANDOM = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def all_of(path: Path, channels: int = 1, side: tuple[int, int] = (8, 8)) -> torch.Tensor:
    return torch.cat(list(open_images(path).blocks(channels, side)))


def test_images_that_fit_are_left_alone() -> None:
    images = torch.from_numpy(pixels(5, 3, 8, 6))
    assert fit_images(images, 3, (8, 6)) is images


@pytest.mark.parametrize("value", [0, 7, 255])
@pytest.mark.parametrize("shape", [(2, 1, 5, 9), (2, 3, 32, 32), (2, 4, 8, 60), (1, 2, 100, 7)])
@pytest.mark.parametrize("channels", [1, 3])
def test_one_colour_stays_what_it_is_at_any_size(value: int, shape: tuple[int, ...], channels: int) -> None:
    fitted = fit_images(torch.full(shape, value, dtype=torch.uint8), channels, (28, 20))
    assert fitted.shape == (shape[0], channels, 28, 20)
    assert set(fitted.unique().tolist()) == {value}


def test_the_middle_is_cut_out() -> None:
    wide = torch.zeros(1, 1, 8, 24, dtype=torch.uint8)
    wide[..., 8:16] = 200
    assert set(fit_images(wide, 1, (8, 8)).unique().tolist()) == {200}


def test_grey_has_the_luma_of_its_colours() -> None:
    red, green, blue = (fit_images(torch.tensor(one, dtype=torch.uint8).view(1, 3, 1, 1), 1, (1, 1)).item()
                        for one in ([255, 0, 0], [0, 255, 0], [0, 0, 255]))
    assert (red, green, blue) == (76, 150, 29)


@pytest.mark.parametrize("shape", [(7, 8, 8), (7, 3, 8, 8), (1203, 8, 8, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, ">f8"])
def test_arrays_in_fortran_order_are_the_same_images(tmp_path: Path, shape: tuple[int, ...], dtype: str) -> None:
    """``np.savez(images=matlab.T)``: a transposed array is saved as it lies in memory."""
    images = pixels(*shape) if dtype is np.uint8 else (pixels(*shape) / 255).astype(dtype)
    np.savez(tmp_path / "c.npz", images=images)
    np.savez(tmp_path / "f.npz", images=np.asfortranarray(images))
    channels = 3 if shape[1] == 3 else 1
    assert torch.equal(all_of(tmp_path / "f.npz", channels), all_of(tmp_path / "c.npz", channels))


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(DataError, match="5 channels"):
        fit_images(torch.zeros(1, 5, 4, 4, dtype=torch.uint8), 1, (4, 4))
    with pytest.raises(DataError, match=r"torch.float32 \(1, 1, 4, 4\)"):
        fit_images(torch.zeros(1, 1, 4, 4), 1, (4, 4))


def test_hidden_files_and_files_of_other_kinds_are_left_out(tmp_path: Path) -> None:
    (tmp_path / ".thumbnails").mkdir()
    Image.fromarray(pixels(8, 8)).save(tmp_path / "a.png")
    for name in ("._a.png", ".thumbnails/a.png", "notes.txt", "a.png.part"):
        (tmp_path / name).write_bytes(b"no image")
    assert [file.name for file in open_images(tmp_path).files] == ["a.png"]
    hidden = tmp_path / ".thumbnails"
    Image.fromarray(pixels(8, 8)).save(hidden / "a.png")
    assert len(open_images(hidden)) == 1  # whoever names a hidden folder means it


def test_a_folder_of_every_size_and_mode(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for mode in ("L", "RGB", "RGBA", "LA", "P", "1", "CMYK"):
        Image.fromarray(pixels(13, 9 + len(mode))).convert("L").convert("RGB").convert(
            mode if mode != "CMYK" else "RGB").save(tmp_path / "deep" / f"{mode}.png")
    Image.fromarray(RANDOM.integers(0, 65536, (6, 7), dtype=np.uint16)).save(tmp_path / "sixteen.png")
    (tmp_path / "notes.txt").write_text("no image")
    images = open_images(tmp_path)
    assert len(images) == 8
    assert "8 images" in images.words()
    assert all_of(tmp_path, 1, (8, 8)).shape == (8, 1, 8, 8)
    assert all_of(tmp_path, 3, (5, 9)).shape == (8, 3, 5, 9)


def test_a_palette_with_transparent_colours_has_its_colours(tmp_path: Path) -> None:
    picture = Image.fromarray(pixels(4, 5)).quantize(4)
    picture.save(tmp_path / "a.png", transparency=bytes([0, 128, 255]))
    assert torch.equal(read_picture(tmp_path / "a.png")[0].permute(1, 2, 0),
                       torch.from_numpy(np.array(picture.convert("RGB"))))
    assert open_images(tmp_path).words().startswith("1 image,")


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 257, 32896, 65535]], dtype=np.uint16)).save(tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png").flatten().tolist() == [0, 1, 128, 255]


@pytest.mark.parametrize(("shape", "order"), [((6, 8, 8), (0, 1, 2)), ((6, 8, 8, 3), (0, 3, 1, 2)),
                                              ((6, 3, 8, 8), (0, 1, 2, 3))])
def test_arrays_of_every_layout(tmp_path: Path, shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    array = pixels(*shape)
    np.savez(tmp_path / "a.npz", images=array, labels=np.zeros(6))
    expected = torch.from_numpy(array.transpose(order)).reshape(6, -1, 8, 8)
    assert torch.equal(all_of(tmp_path / "a.npz", expected.shape[1]), expected)
    np.savez(tmp_path / "floats.npz", whatever=array / 255)
    assert torch.equal(all_of(tmp_path / "floats.npz", expected.shape[1]), expected)


def test_blocks_together_are_the_whole(tmp_path: Path) -> None:
    array = pixels(1203, 4, 5)
    np.savez_compressed(tmp_path / "a.npz", images=array)
    assert torch.equal(all_of(tmp_path / "a.npz", 1, (4, 5)), torch.from_numpy(array)[:, None])


@pytest.mark.parametrize(("arrays", "words"), [
    ({"images": np.zeros((3, 8, 8), dtype=np.int32)}, "int32; expected bytes"),
    ({"images": np.full((3, 8, 8), 1.5)}, "floats from 1.5 to 1.5; expected 0 to 1"),
    ({"images": np.full((3, 8, 8), np.nan)}, "expected 0 to 1"),
    ({"images": np.zeros((8, 8), dtype=np.uint8)}, r"expected \(N, H, W\)"),
    ({"images": np.zeros((0, 8, 8), dtype=np.uint8)}, r"the shape \(0, 8, 8\)"),
    ({"images": np.zeros((2, 3, 8, 3), dtype=np.uint8)}, "both the second and the last"),
    ({"images": np.zeros((2, 5, 8, 9), dtype=np.uint8)}, "neither the second nor the last"),
    ({"a": np.zeros(3), "b": np.zeros(3)}, "has the arrays a, b; expected one called 'images'"),
    ({"images": np.array([{"a": 1}], dtype=object)}, "pickled"),
])
def test_arrays_that_are_no_images_are_refused(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=words):
        all_of(tmp_path / "a.npz")


def test_folders_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images; expected files ending in"):
        open_images(tmp_path)
    with pytest.raises(DataError, match=r"nowhere: no such file or folder.* expected a folder of images, an \.npz"):
        open_images(tmp_path / "nowhere")
    (tmp_path / "one.txt").write_text("no array")
    with pytest.raises(DataError, match=r"one\.txt: expected a folder of images, or an \.npz or \.npy file"):
        open_images(tmp_path / "one.txt")
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"a\.png: not an image"):
        all_of(tmp_path)
    Image.fromarray(np.zeros((4, 4), dtype=np.float32)).save(tmp_path / "b.tiff")
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match="32 bits per pixel, mode F"):
        all_of(tmp_path)


@pytest.mark.parametrize("count", [1, 3, 14])
def test_all_broken_files_are_named_or_the_first_ten_and_how_many_there_are(tmp_path: Path, count: int) -> None:
    for number in range(20):
        Image.fromarray(pixels(8, 8)).save(tmp_path / f"{number:02}.png")
    for number in range(count):
        (tmp_path / f"{number:02}.png").write_bytes(b"no picture")
    images = open_images(tmp_path)
    assert "20 images, the first of 8 x 8 pixels" in images.words()  # of those that can be read
    with pytest.raises(DataError) as caught:
        all_of(tmp_path)
    said = str(caught.value)
    assert said.count(".png: not an image that can be read") == min(count, 10)
    assert said.count("Repair or remove") == 1
    assert (f"{count} of 20 files cannot be used" in said) == (count > 1)
    assert ("and 4 more" in said) == (count == 14)


def test_a_folder_of_nothing_but_broken_files_names_them(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"2 of 2 files cannot be used(.|\n)*a\.png(.|\n)*b\.png"):
        open_images(tmp_path).words()


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_an_npy_file_is_one_array(tmp_path: Path, dtype: str) -> None:
    array = pixels(6, 8, 8, 3)
    np.save(tmp_path / "a.npy", array if dtype == "uint8" else (array / 255).astype(dtype))
    assert torch.equal(all_of(tmp_path / "a.npy", 3), torch.from_numpy(array).permute(0, 3, 1, 2))
    np.save(tmp_path / "flat.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"expected \(N, H, W\)"):
        open_images(tmp_path / "flat.npy")


def test_a_known_dataset_is_its_test_part(tmp_path: Path) -> None:
    images, _ = load("digits", "test")
    taken = torch.cat(list(open_images("digits").blocks(1, (8, 8))))
    assert torch.equal(taken, (images * (255 / 16)).round().to(torch.uint8))
    write_mnist(tmp_path)
    raw, _ = load("fashion_mnist", "test", tmp_path)
    assert torch.equal(torch.cat(list(open_images("fashion_mnist", str(tmp_path)).blocks(1, (28, 28)))), raw)
    write_imagenet(tmp_path, broken=False)
    assert len(torch.cat(list(open_images("imagenet", str(tmp_path)).blocks(3, (16, 16))))) == 8


@pytest.mark.parametrize("name", [name for name in image_datasets() if name != "digits"])
def test_a_known_dataset_that_is_missing_is_called_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=rf"the test part of {name} is not in(.|\n)*point --datasets or ENCOURAGING"):
        open_images(name, str(tmp_path))


def test_what_is_missing_is_called_missing_with_the_nearest_dataset() -> None:
    with pytest.raises(DataError, match=r"fashion-mnist: no such file or folder.*Did you mean 'fashion_mnist'\?"):
        open_images("fashion-mnist")
    assert {"digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "imagenet"} <= set(image_datasets())
    assert not {"proteins", "coco", "multi30k-de-en", "cifar10-lt"} & set(image_datasets())


def test_a_folder_comes_before_a_dataset_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    with pytest.raises(DataError, match="For the dataset of this name, start the command in another folder"):
        open_images("digits")
    Image.fromarray(pixels(8, 8)).save(tmp_path / "digits/a.png")
    assert len(open_images("digits")) == 1


@pytest.mark.parametrize(("shape", "channels", "side", "words"), [
    ((5, 8, 8), 1, (8, 8), ""), ((5, 8, 8, 3), 3, (8, 8), ""), ((5, 8, 8), 3, (8, 8), "made three equal colours"),
    ((5, 16, 16), 1, (8, 8), "resized"), ((5, 9, 17, 3), 1, (8, 8), "made grey, resized and cut to the middle"),
])
def test_what_is_done_to_the_first_image_is_said_and_nothing_else(tmp_path: Path, shape: tuple[int, ...],
                                                                 channels: int, side: tuple[int, int],
                                                                 words: str) -> None:
    np.save(tmp_path / "a.npy", pixels(*shape))
    assert open_images(tmp_path / "a.npy").fitting_words(channels, side) == words
