"""One picture file with 8 bits per channel, grey or in colour, or an error that names the file."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

REPAIR = " Repair or remove it."


class BrokenImageError(DataError):
    """The content of a file is not an image, or only a part of one. Errors of the disk are plain DataErrors."""


def open_picture(path: str | Path) -> Image:
    """The picture in a file: mode ``L`` if it is grey, or else ``RGB``. The format does not depend on the ending.

    Palettes and CMYK become RGB, transparency is left out, and of 16 bits per pixel the upper 8 are kept.

    Raises:
        BrokenImageError: the file is empty, truncated or not an image, or has 32 bits per pixel.
        DataError: the file does not exist or cannot be read from the disk.
    """
    return picture_of(read_file(path), path)


def read_file(path: str | Path) -> bytes:
    """The content of a file.

    It is read first and decoded later, to distinguish errors of the disk from those of the content: Pillow, too, raises
    OSError with a number, if a damaged file makes it seek before the beginning.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read from the disk ({error.strerror or error}). Was it moved, or is the "
                        "disk gone? Run the same command again to continue.") from error


def picture_of(content: bytes, path: str | Path) -> Image:
    """:func:`open_picture` for a content that was read from ``path``."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # Damaged EXIF data, odd palettes, many pixels: the picture can be used all the same.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as picture:
                picture.load()
                return _eight_bits(picture)
    except MemoryError:
        raise
    except UnidentifiedImageError as error:
        raise BrokenImageError(f"{path}: not an image that can be read.{REPAIR}") from error
    except Exception as error:  # each of Pillow's formats raises other exceptions
        reason = str(error) or type(error).__name__
        raise BrokenImageError(f"{path}: not an image that can be read ({reason}).{REPAIR}") from error


def _eight_bits(picture: Image) -> Image:
    from PIL import Image

    # Pillow opens 16 bits as 32 for some formats.
    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in ("PNG", "PPM")):
        # Its own conversion would make everything above 255 white.
        return Image.fromarray((np.asarray(picture).astype(np.uint16) >> 8).astype(np.uint8))
    if picture.mode in ("I", "F"):
        raise ValueError(f"32 bits per pixel, mode {picture.mode}, whose range is not known; expected 8 or 16")
    picture.info.pop("transparency", None)  # some values of it end a conversion
    mode = "L" if picture.mode in ("1", "L", "LA", "La") else "RGB"
    return picture if picture.mode == mode else picture.convert(mode)
