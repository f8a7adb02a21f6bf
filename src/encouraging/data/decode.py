"""Decode one picture file, or raise an error that says what is wrong with it."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from ..errors import DataError
from .folder import eight_bits, sixteen_bits

try:
    import simplejpeg
except ImportError:
    simplejpeg = None


class BrokenImageError(DataError):
    """The content of a file is not an image, or only a part of one. Errors of the disk are plain DataErrors."""


def decode(path: str) -> np.ndarray:
    """The picture as bytes (height, width, 3). The format does not depend on the ending: one of ImageNet's ``.JPEG``
    files is a PNG. Grey, CMYK, palettes and 16 bits are converted; transparency is left out.

    Pillow decides whether a file is a picture. If the package simplejpeg is installed, it decodes ordinary JPEG files,
    with the same library and the same pixels, in four fifths of the time.

    Raises:
        BrokenImageError: the file is empty, truncated or not an image.
        DataError: the file does not exist or cannot be read from the disk.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        # Read first and decoded later, to distinguish errors of the disk from those of the content: Pillow, too, raises
        # OSError with a number, if a damaged file makes it seek before the beginning.
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read from the disk ({error.strerror or error}). Was it moved, or is the "
                        "disk gone? Run the same command again to continue.") from error
    try:
        picture = None if simplejpeg is None else _decode_by_simplejpeg(content, Image.MAX_IMAGE_PIXELS)
        return _decode_by_pillow(content) if picture is None else picture
    except MemoryError:
        raise
    except UnidentifiedImageError as error:
        raise BrokenImageError(f"{path}: not an image") from error
    except Exception as error:  # each of Pillow's formats raises other exceptions
        raise BrokenImageError(f"{path}: {str(error) or type(error).__name__}") from error


def _decode_by_pillow(content: bytes) -> np.ndarray:
    from PIL import Image

    with warnings.catch_warnings():
        # Damaged EXIF data, odd palettes, many pixels: the picture can be used all the same.
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(content)) as picture:
            if picture.mode == "RGB":
                return np.asarray(picture)  # convert would copy it
            return np.asarray((eight_bits(picture) if sixteen_bits(picture) else picture).convert("RGB"))


def _decode_by_simplejpeg(content: bytes, most: int | None) -> np.ndarray | None:
    """The picture of an intact, ordinary JPEG file; None for all other files, which are left to Pillow."""
    if not content.startswith(b"\xff\xd8\xff"):
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        if colours != "YCbCr" or (most is not None and height * width > most):
            return None
        decoded: Any = simplejpeg.decode_jpeg(content, "RGB")  # strict: warnings of libjpeg are errors
    except (ValueError, MemoryError):
        return None
    picture: np.ndarray = decoded
    return picture
