"""Pixels of picture files: their modes and bits, both decoders, and what is broken."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from encouraging.data.decode import _decode_by_simplejpeg, decode
from encouraging.data.pictures import BrokenImageError
from encouraging.errors import DataError
from tiny_files import truncate, write_picture


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize(("mode", "kind"), [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG"),
                                            ("P", "PNG"), ("RGBA", "PNG"), ("LA", "PNG"), ("1", "PNG"), ("I;16", "PNG"),
                                            ("RGB", "WEBP")])
def test_every_mode_becomes_colours_whatever_the_ending_says(tmp_path, mode, kind):
    path = tmp_path / "picture.JPEG"
    pixels = np.full((21, 30), 102, np.uint8)  # a colour of the usual palette
    picture = Image.fromarray(pixels.astype(np.uint16) * 256) if mode == "I;16" else Image.fromarray(pixels)
    (picture if mode == "I;16" else picture.convert("RGB").convert(mode)).save(path, kind)
    decoded = decode(str(path))
    assert (decoded.dtype, decoded.shape) == (np.uint8, (21, 30, 3))
    if mode != "1":
        assert np.abs(decoded.astype(int) - 102).max() <= 4


@pytest.fixture(params=["simplejpeg", "Pillow"])
def decoder(request, monkeypatch):
    if request.param == "Pillow":
        monkeypatch.setattr("encouraging.data.decode.simplejpeg", None)


@pytest.mark.parametrize("seed", range(12))
def test_both_decoders_give_the_same_pixels(tmp_path, monkeypatch, seed):
    random = np.random.default_rng(seed)
    wide, high = random.integers(1, 200, 2)
    noise = random.integers(0, 256, (high // 4 + 1, wide // 4 + 1, 3), dtype=np.uint8)
    path = tmp_path / "a.jpg"
    Image.fromarray(noise).resize((wide, high), Image.Resampling.BICUBIC).save(
        path, quality=int(random.integers(10, 96)), subsampling=seed % 3, progressive=seed % 2 == 1)
    assert _decode_by_simplejpeg(path.read_bytes(), None) is not None
    quick = decode(str(path))
    monkeypatch.setattr("encouraging.data.decode.simplejpeg", None)
    assert np.array_equal(decode(str(path)), quick)


@pytest.mark.usefixtures("decoder")
def test_a_picture_is_not_turned_although_its_exif_data_say_so(tmp_path):
    """As torchvision's ImageFolder has it, and with it every published number on ImageNet."""
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    Image.new("RGB", (30, 21)).save(tmp_path / "a.JPEG", exif=exif)
    assert decode(str(tmp_path / "a.JPEG")).shape == (21, 30, 3)


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("content", [b"", b"no image at all", b"\xff\xd8\xff\xe0 only a head"])
def test_what_is_no_image_is_broken(tmp_path, content):
    path = tmp_path / "a.JPEG"
    path.write_bytes(content)
    with pytest.raises(BrokenImageError, match=r"a\.JPEG"):
        decode(str(path))


def test_sixteen_bits_are_scaled_in_every_format_and_thirty_two_are_refused(tmp_path):
    path = tmp_path / "a.pgm"
    path.write_bytes(b"P5 3 2 65535\n" + np.full((2, 3), 102 * 257, ">u2").tobytes())
    assert decode(str(path)).tolist() == [[[102] * 3] * 3] * 2
    Image.fromarray(np.zeros((2, 3), np.int32)).save(path, "TIFF")
    with pytest.raises(BrokenImageError, match="32 bits per pixel"):
        decode(str(path))


def test_a_file_that_leads_before_its_own_beginning_is_broken_and_no_fault_of_the_disk(tmp_path):
    """Pillow seeks there, and the system answers with an error number of its own."""
    path = tmp_path / "a.tif"
    Image.new("RGB", (4, 4)).save(path)
    content = bytearray(path.read_bytes())
    first = int.from_bytes(content[4:8], "little")
    entries = [first + 2 + 12 * number for number in range(int.from_bytes(content[first : first + 2], "little"))]
    strips = next(at for at in entries if int.from_bytes(content[at : at + 2], "little") == 273)  # where the pixels are
    content[strips + 2 : strips + 12] = (9).to_bytes(2, "little") + (1).to_bytes(4, "little") + b"\xf0\xff\xff\xff"
    path.write_bytes(content)
    with pytest.raises(BrokenImageError, match=r"a\.tif: "):
        decode(str(path))


@pytest.mark.parametrize("error", [RuntimeError("no item"), KeyError(7), IndexError(), ZeroDivisionError()])
def test_whatever_pillow_raises_on_a_content_it_is_broken_and_named(tmp_path, monkeypatch, error):
    """A damaged AVIF file, for one, is a RuntimeError."""
    def raises(*_: object) -> None:
        raise error

    path = tmp_path / "a.png"
    Image.new("RGB", (4, 4)).save(path)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", raises)
    with pytest.raises(BrokenImageError, match=r"a\.png: \w+"):
        decode(str(path))


@pytest.mark.usefixtures("decoder")
def test_a_truncated_file_is_broken_and_a_file_that_is_gone_is_another_fault(tmp_path):
    path = tmp_path / "a.JPEG"
    write_picture(path, 4, 1)
    truncate(path)
    with pytest.raises(BrokenImageError, match="runcated"):
        decode(str(path))
    path.unlink()
    with pytest.raises(DataError, match="cannot be read from the disk") as caught:
        decode(str(path))
    assert not isinstance(caught.value, BrokenImageError)
