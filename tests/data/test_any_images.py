"""Images of any size and mode: made to fit, or refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from encouraging.data.any_images import open_images, read_picture
from encouraging.data.fit import fit_images
from encouraging.errors import DataError

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
    with pytest.raises(DataError, match=r"expected a folder of images, or an \.npz file"):
        open_images(tmp_path / "nowhere")
    (tmp_path / "a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"a\.png: not an image"):
        all_of(tmp_path)
    Image.fromarray(np.zeros((4, 4), dtype=np.float32)).save(tmp_path / "b.tiff")
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match="floating-point pixels"):
        all_of(tmp_path)
