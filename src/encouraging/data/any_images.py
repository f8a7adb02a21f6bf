"""Images that no recipe knows: a folder of picture files, or an ``.npz`` file, made to fit a model block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError
from .arrays import FLOATS, Array, in_npz, shown
from .fit import fit_images
from .folder import ENDINGS

ROWS = 500  # images per block
KEYS = ("images", "x")
CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class AnyImages:
    """A set of images of which nothing but the names, or the header, has been read."""

    path: Path
    files: tuple[Path, ...] = ()
    array: Array | None = None

    def __len__(self) -> int:
        return len(self.files) if self.array is None else self.array.shape[0]

    def blocks(self, channels: int, side: tuple[int, int]) -> Iterator[Tensor]:
        """Bytes (N, channels, height, width): every image made grey or coloured, resized and cut to the middle."""
        if self.array is not None:
            for block in self.array.blocks(ROWS):
                yield fit_images(_as_bytes(block, self.array.where), channels, side)
            return
        for first in range(0, len(self.files), ROWS):
            files = self.files[first : first + ROWS]
            yield torch.cat([fit_images(read_picture(file), channels, side) for file in files])

    def words(self) -> str:
        """What the images are like, from the first one."""
        if self.array is not None:
            first = _as_bytes(next(self.array.blocks(1)), self.array.where)
        else:
            first = read_picture(self.files[0])
        channels, high, wide = first.shape[1:]
        colours = "grey" if channels == 1 else "in colour"
        return f"{len(self)} image{'s' if len(self) > 1 else ''}, the first of {wide} x {high} pixels and {colours}"


def open_images(path: str | Path) -> AnyImages:
    """A folder, whose subfolders are searched too, or an ``.npz`` file with the array ``images`` or ``x``, or a single
    array.

    Hidden files (``._a.png``, or in ``.thumbnails/``) and files that are no images by their names are left out.

    Raises:
        DataError: there are no images, or not such as can be used; the message says why.
    """
    path = Path(path)
    if path.is_dir():
        files = tuple(sorted(file for file in path.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file()
                             and not _hidden(file.relative_to(path))))
        if not files:
            raise DataError(f"{shown(path)}: no images; expected files ending in {', '.join(ENDINGS)} in it or below.")
        return AnyImages(path, files)
    if path.suffix != ".npz" or not path.is_file():
        raise DataError(f"{shown(path)}: expected a folder of images, or an .npz file.")
    names = list(in_npz(path, ()))
    name = next((key for key in KEYS if key in names), names[0] if len(names) == 1 else None)
    if name is None:
        raise DataError(f"{shown(path)}: has the arrays {', '.join(names) or 'none'}; expected one called "
                        f"{' or '.join(map(repr, KEYS))}, or a single one.")
    array = in_npz(path, (name.partition(".")[0],))[name]
    _check(array)
    return AnyImages(path, array=array)


def _hidden(file: Path) -> bool:
    return any(part.startswith(".") for part in file.parts)


def _check(array: Array) -> None:
    if array.dtype != "uint8" and array.dtype not in FLOATS:
        raise DataError(f"{array.where}: {array.dtype}; expected bytes (uint8) from 0 to 255, or floats from 0 to 1.")
    if len(array.shape) not in (3, 4) or 0 in array.shape:
        raise DataError(f"{array.where}: the shape {array.shape}; expected (N, H, W), (N, H, W, C) or (N, C, H, W).")
    if len(array.shape) == 4:
        _channels_last(array.shape, array.where)


def _channels_last(shape: tuple[int, ...], where: str) -> bool:
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last:
        raise DataError(f"{where}: in the shape {shape} " + ("both the second and the last number could be" if first
                        else "neither the second nor the last number is") + " that of channels (1, 3 or 4). Expected "
                        "(N, H, W, C) or (N, C, H, W).")
    return last


def _as_bytes(block: Tensor, where: str) -> Tensor:
    if block.is_floating_point():
        block = block.float()
        if not bool(((block >= 0) & (block <= 1)).all()):
            raise DataError(f"{where}: floats from {float(block.min()):g} to {float(block.max()):g}; expected 0 to 1, "
                            "before any normalisation. Save bytes from 0 to 255 otherwise.")
        block = (block * 255).round().to(torch.uint8)
    if block.ndim == 3:
        return block[:, None].clone()
    return (block.permute(0, 3, 1, 2) if _channels_last(tuple(block.shape), where) else block).clone()


def read_picture(file: Path) -> Tensor:
    """One picture as bytes (1, C, H, W): grey ones with one channel, all others as red, green and blue.

    Sixteen bits per pixel are scaled to eight; transparency is left out.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as picture:
            if picture.mode.startswith("I"):
                values = np.asarray(picture, dtype=np.int64)
                if values.min() < 0 or values.max() > 65535:
                    raise DataError(f"{shown(file)}: pixels from {values.min()} to {values.max()}; expected 8 or 16 "
                                    "bits per pixel.")
                return torch.from_numpy((values // 257).astype(np.uint8))[None, None]
            if picture.mode == "F":
                raise DataError(f"{shown(file)}: floating-point pixels, whose range is not known; save 8 bits per "
                                "pixel.")
            grey = picture.mode in ("1", "L", "LA", "La")
            picture.info.pop("transparency", None)  # with it, Pillow warns of every palette that it converts
            pixels = torch.from_numpy(np.array(picture.convert("L" if grey else "RGB")))
    except (OSError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise DataError(f"{shown(file)}: not an image that can be read ({error}). Repair or remove it.") from error
    return pixels[None, None] if grey else pixels.permute(2, 0, 1)[None]
