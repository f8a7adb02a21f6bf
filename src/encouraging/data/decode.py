"""One picture file as colours, or an error that says what is wrong with it."""

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
    """A file whose content is no image, or only a part of one. A disk that cannot be read is another error."""


def decode(path: str) -> np.ndarray:
    """The picture as bytes (height, width, 3), whatever its ending says: a PNG file may be called ``.JPEG``, as one of
    ImageNet's is. Grey, CMYK, palettes and 16 bits are converted; transparency is left out.

    Pillow decides what is a picture. Where the package simplejpeg is installed, it decodes ordinary JPEG files, with
    the same library and the same pixels, in four fifths of the time.

    Raises:
        BrokenImageError: the file is empty, truncated or not an image.
        DataError: the file is not there or cannot be read from the disk.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        # Read whole, so that errors of the disk are told from those of the content: Pillow, too, raises OSError with a
        # number where a damaged file leads it to a place before its beginning.
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise DataError(f"{path}: cannot be read from the disk ({error.strerror or error}). Was it moved, or is the "
                        "disk gone? Run the same command again to continue.") from error
    try:
        picture = None if simplejpeg is None else _quickly(content, Image.MAX_IMAGE_PIXELS)
        return _by_pillow(content) if picture is None else picture
    except MemoryError:
        raise
    except UnidentifiedImageError as error:
        raise BrokenImageError(f"{path}: not an image") from error
    except Exception as error:  # each of Pillow's formats raises others
        raise BrokenImageError(f"{path}: {str(error) or type(error).__name__}") from error


def _by_pillow(content: bytes) -> np.ndarray:
    from PIL import Image

    with warnings.catch_warnings():
        # Damaged EXIF data, odd palettes, many pixels: none of them keeps the picture from being used.
        warnings.simplefilter("ignore")
        with Image.open(io.BytesIO(content)) as picture:
            if picture.mode == "RGB":
                return np.asarray(picture)  # convert would copy it
            return np.asarray((eight_bits(picture) if sixteen_bits(picture) else picture).convert("RGB"))


def _quickly(content: bytes, most: int | None) -> np.ndarray | None:
    """The picture of a whole and ordinary JPEG file; None for all others, which Pillow must judge."""
    if not content.startswith(b"\xff\xd8\xff"):
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        if colours != "YCbCr" or (most is not None and height * width > most):
            return None
        decoded: Any = simplejpeg.decode_jpeg(content, "RGB")  # strict: what libjpeg only warns of is an error
    except (ValueError, MemoryError):
        return None
    picture: np.ndarray = decoded
    return picture
