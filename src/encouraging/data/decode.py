"""Decode one picture file, or raise an error that says what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from .pictures import picture_of, read_file

try:
    import simplejpeg
except ImportError:
    simplejpeg = None


def decode(path: str) -> np.ndarray:
    """The picture as bytes (height, width, 3). The format does not depend on the ending: one of ImageNet's ``.JPEG``
    files is a PNG. Grey, CMYK, palettes and 16 bits are converted; transparency is left out.

    Pillow decides whether a file is a picture. If the package simplejpeg is installed, it decodes ordinary JPEG files,
    with the same library and the same pixels, in four fifths of the time.

    Raises:
        BrokenImageError: the file is empty, truncated or not an image.
        DataError: the file does not exist or cannot be read from the disk.
    """
    from PIL import Image

    content = read_file(path)
    decoded = None if simplejpeg is None else _decode_by_simplejpeg(content, Image.MAX_IMAGE_PIXELS)
    if decoded is not None:
        return decoded
    picture = picture_of(content, path)
    return np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))


def _decode_by_simplejpeg(content: bytes, most: int | None) -> np.ndarray | None:
    """The picture of an intact, ordinary JPEG file; None for all other files, which are left to Pillow."""
    if not content.startswith(b"\xff\xd8\xff"):
        return None
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        if colours != "YCbCr" or (most is not None and height * width > most):
            return None
        decoded: Any = simplejpeg.decode_jpeg(content, "RGB")  # strict: warnings of libjpeg are errors
    except Exception:  # Pillow says what is wrong with it
        return None
    picture: np.ndarray = decoded
    return picture
