"""Images from outside a recipe (a folder of picture files, an array in a file, or the test part of a dataset),
converted for a model block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError, did_you_mean
from ._load import absent, load
from .arrays import FLOATS, Array, in_npy, in_npz, shown
from .class_folders import ENDINGS
from .fit import fit_images
from .large import is_large, read_image_files
from .pictures import REPAIR, open_picture
from .registry import DATASETS, data_dir, dataset, missing

ROWS = 500  # images per block
KEYS = ("images", "x")
CHANNELS = (1, 3, 4)
NAMED = 10  # how many broken files a message names


@dataclass(frozen=True)
class AnyImages:
    """A set of images: ``files``, of which only the names have been read; an ``array``, of which only the header has
    been read; or ``pixels``, bytes (N, C, H, W)."""

    name: str
    files: tuple[Path, ...] = ()
    array: Array | None = None
    pixels: Tensor | None = None

    def __len__(self) -> int:
        if self.pixels is not None:
            return len(self.pixels)
        return len(self.files) if self.array is None else self.array.shape[0]

    def blocks(self, channels: int, side: tuple[int, int]) -> Iterator[Tensor]:
        """Bytes (N, channels, height, width): every image is converted to grey or colour, resized and centre-cropped.

        Raises:
            DataError: some files are not images; it is raised after all files are read, so that it counts all of them.
        """
        if self.pixels is not None:
            for block in torch.split(self.pixels, ROWS):
                yield fit_images(block, channels, side)
        elif self.array is not None:
            for block in self.array.blocks(ROWS):
                yield fit_images(_as_bytes(block, self.array.where), channels, side)
        else:
            broken: list[str] = []
            for first in range(0, len(self.files), ROWS):
                block = self._block(self.files[first : first + ROWS], channels, side, broken)
                if not broken:
                    yield block
            if broken:
                raise DataError(self._broken_words(broken))

    @staticmethod
    def _block(files: tuple[Path, ...], channels: int, side: tuple[int, int], broken: list[str]) -> Tensor:
        """The images of these files; errors are appended to ``broken``."""
        images = [torch.empty(0, channels, *side, dtype=torch.uint8)]
        for file in files:
            try:
                images.append(fit_images(read_picture(file), channels, side))
            except DataError as error:
                broken.append(shown(str(error)))
        return torch.cat(images)

    def _broken_words(self, broken: list[str]) -> str:
        if len(broken) == 1:
            return broken[0]
        lines = [f"  {words.removesuffix(REPAIR)}" for words in broken[:NAMED]]
        more = [f"  and {len(broken) - NAMED} more"] if len(broken) > NAMED else []
        return "\n".join([f"{self.name}: {len(broken)} of {len(self)} files cannot be used. Repair or remove them:",
                          *lines, *more])

    def first(self) -> Tensor:
        """The first image that can be read, as bytes (1, C, H, W)."""
        if self.pixels is not None:
            return self.pixels[:1]
        if self.array is not None:
            return _as_bytes(next(self.array.blocks(1)), self.array.where)
        broken: list[str] = []
        for file in self.files:
            try:
                return read_picture(file)
            except DataError as error:
                broken.append(shown(str(error)))
        raise DataError(self._broken_words(broken))

    def words(self) -> str:
        """The number of images, and size and colours of the first one, in words."""
        channels, high, wide = self.first().shape[1:]
        colours = "grey" if channels == 1 else "in colour"
        return f"{len(self)} image{'s' if len(self) > 1 else ''}, the first of {wide} x {high} pixels and {colours}"

    def fitting_words(self, channels: int, side: tuple[int, int]) -> str:
        """How the first image is converted for a model, in words; an empty string if it fits."""
        own_channels, high, wide = self.first().shape[1:]
        same_colours = (own_channels < 3) == (channels < 3)
        steps = [] if same_colours else ["made grey" if channels == 1 else "made three equal colours"]
        if (high, wide) != side:
            steps.append("resized")
        if high * side[1] != wide * side[0]:
            steps.append("cut to the middle")
        return f"{', '.join(steps[:-1])} and {steps[-1]}" if len(steps) > 1 else "".join(steps)


def image_datasets() -> list[str]:
    """The names of the datasets of images with labels; without the long-tailed ones, whose test parts are not new."""
    return [name for name, facts in DATASETS.items() if facts.shape and facts.long_tail is None]


def open_named(name: str, root: str | None, option: str) -> AnyImages:
    """The test part of a dataset; ``option`` is the command-line option that names the data directory."""
    if missing(name, data_dir(root), ("test",)):
        raise DataError(absent(name, ("test",), data_dir(root), fetch="`encouraging run RECIPE --download`",
                               option=option))
    if is_large(name):
        split = read_image_files(name, root, splits=("test",)).splits["test"]
        return AnyImages(name, files=tuple(Path(split.path(index)) for index in range(len(split))))
    images, _ = load(name, "test", root)
    highest = dataset(name).highest
    if highest != 255:
        images = (images.float() * (255 / highest)).round().to(torch.uint8)
    return AnyImages(name, pixels=images)


def open_images(path: str | Path, root: str | None = None, option: str = "--datasets") -> AnyImages:
    """Open a folder and its subfolders; an ``.npz`` file with the array ``images`` or ``x``, or a single array; an
    ``.npy`` file; or, if there is no such file or folder, the test part of the dataset of this name.

    Hidden files (``._a.png``, or in ``.thumbnails/``) and files with other endings than those of images are left out.

    Raises:
        DataError: there are no images, or they cannot be used; the message says why.
    """
    word, path = str(path), Path(path)
    if path.is_dir():
        files = tuple(sorted(file for file in path.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file()
                             and not _hidden(file.relative_to(path))))
        if not files:
            advice = " For the dataset of this name, start the command in another folder." \
                if word in image_datasets() else ""
            raise DataError(f"{shown(path)}: no images; expected files ending in {', '.join(ENDINGS)} in it or below."
                            + advice)
        return AnyImages(shown(path), files)
    if not path.exists():
        datasets = image_datasets()
        if word in datasets:
            return open_named(word, root, option)
        raise DataError(f"{shown(path)}: no such file or folder, and no dataset of images has this name; expected a "
                        f"folder of images, an .npz or .npy file, or one of {', '.join(datasets)}."
                        + did_you_mean(word, datasets))
    if path.suffix not in (".npz", ".npy"):
        raise DataError(f"{shown(path)}: expected a folder of images, or an .npz or .npy file.")
    array = in_npy(path) if path.suffix == ".npy" else _in_npz(path)
    _check(array)
    return AnyImages(shown(path), array=array)


def _in_npz(path: Path) -> Array:
    names = list(in_npz(path, ()))
    name = next((key for key in KEYS if key in names), names[0] if len(names) == 1 else None)
    if name is None:
        raise DataError(f"{shown(path)}: has the arrays {', '.join(names) or 'none'}; expected one called "
                        f"{' or '.join(map(repr, KEYS))}, or a single one.")
    return in_npz(path, (name.partition(".")[0],))[name]


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
    """One picture as bytes (1, C, H, W): grey ones with one channel, all others as red, green and blue."""
    pixels = torch.from_numpy(np.array(open_picture(file)))
    return pixels[None, None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)[None]
