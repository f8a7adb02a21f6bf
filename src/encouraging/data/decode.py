"""One picture file as a colour image, or an error that says what is wrong with it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ..errors import DataError
from .folder import eight_bits

if TYPE_CHECKING:
    from PIL.Image import Image


class BrokenImageError(DataError):
    """A file whose content is no image, or only a part of one. A disk that cannot be read is another error."""


def decode(path: str) -> Image:
    """The picture in red, green and blue, whatever its ending says: a PNG file may be called ``.JPEG``, as one of
    ImageNet's is. Grey, CMYK, palettes and 16 bits are converted; transparency is left out.

    Raises:
        BrokenImageError: the file is empty, truncated or not an image.
        DataError: the file is not there or cannot be read from the disk.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # Damaged EXIF data, odd palettes, many pixels: none of them keeps the picture from being used.
            warnings.simplefilter("ignore")
            with Image.open(path) as picture:
                if picture.mode in ("I", "F"):
                    raise BrokenImageError(f"{path}: 32 bits per pixel, mode {picture.mode}; expected 8 or 16")
                if picture.mode == "RGB":
                    picture.load()
                    return picture  # convert would copy it
                return (eight_bits(picture) if picture.mode.startswith("I;16") else picture).convert("RGB")
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:  # Pillow raises all
        if isinstance(error, BrokenImageError):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"{path}: cannot be read from the disk ({error.strerror or error}). Was it moved, or is "
                            "the disk gone? Run the same command again to continue.") from error
        reason = "not an image" if isinstance(error, UnidentifiedImageError) else str(error)
        raise BrokenImageError(f"{path}: {reason}") from error
