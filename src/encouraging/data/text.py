"""Running text to predict token by token: Tiny Shakespeare, your own files, or what your own function returns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError
from ..plugins import is_reference, load_function
from ._load import checked_files
from ._once import read_once
from .images import folder_path
from .registry import data_dir, dataset

PARTS = ("train", "validation", "test")
HALF = re.compile("[\ud800-\udfff]")  # surrogates: Python holds what is not UTF-8 as one of them
_NAMES = {"train": ("train",), "validation": ("val", "valid", "validation", "dev"), "test": ("test",)}


@dataclass(frozen=True)
class Text:
    """The three parts of a text."""

    train: str
    validation: str
    test: str

    def __post_init__(self) -> None:
        for part in PARTS:
            text = getattr(self, part)
            if not isinstance(text, str):
                raise DataError(f"the {part} part is a {type(text).__name__}: expected a string.")
            if len(text) < 2:
                raise DataError(f"the {part} part is {text!r}: expected two characters or more, because a character is "
                                "predicted from those before it.")
            if halves := HALF.search(text):
                raise DataError(f"the {part} part has {halves[0]!r} at place {halves.start()}, which is half of a "
                                "character and cannot be written to a file. Read the text as UTF-8, without "
                                "errors='surrogateescape'.")


def read_text(name: str, root: str | Path | None = None, folder: str | None = None, *, validation: float = 0.05,
              test: float = 0.05) -> Text:
    """The text that ``name`` names: of a known dataset, ``folder:PATH`` with ``train.txt``, ``val.txt`` and
    ``test.txt`` or with a single ``.txt`` file, or what ``module:function`` returns: a string, or a dict of the three
    parts.

    Args:
        name: as above.
        root: the data directory; by default ``ENCOURAGING_DATA``, or else the user's cache.
        folder: the folder of the recipe's file, for your own paths and modules.
        validation: the share of a text in one piece that is for validation, before the test part.
        test: the share at its end that is for tests.

    Raises:
        DataError: files are missing, damaged or too short.
    """
    if is_reference(name):
        return _as_text(name, load_function(name, folder, "data")(), validation, test)
    if name.startswith("folder:"):
        return _from_folder(folder_path(name, root, folder), validation, test)
    if dataset(name).reader != "text":
        raise DataError(f"{name} is no running text: expected tinyshakespeare, folder:PATH or module:function.")
    (path,) = checked_files(name, "train", data_dir(root))
    return _from_file(path, validation, test)


def split_text(text: str, validation: float, test: float) -> Text:
    """A text in three parts, in its order.

    >>> split_text("to be or not to be", 0.2, 0.2)
    Text(train='to be or no', validation='t t', test='o be')
    """
    first, second = int(len(text) * (1 - validation - test) + 0.5), int(len(text) * (1 - test) + 0.5)
    return Text(text[:first], text[first:second], text[second:])


@read_once(lambda path, validation, test: [path])
def _from_file(path: Path, validation: float, test: float) -> Text:
    return split_text(_read(path), validation, test)


def _from_folder(path: Path, validation: float, test: float) -> Text:
    files_of = {part: next((path / f"{name}.txt" for name in _NAMES[part] if (path / f"{name}.txt").is_file()), None)
                for part in PARTS}
    if all(files_of.values()):
        return Text(*(_read(file) for file in files_of.values() if file is not None))
    files = sorted(file for file in path.glob("*.txt") if file.is_file() and not file.name.startswith("."))
    if len(files) == 1:
        return _from_file(files[0], validation, test)
    raise DataError(f"{path} has {', '.join(file.name for file in files) or 'no text file'}: expected train.txt, "
                    "val.txt and test.txt, or a single .txt file, which is split.")


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected text in UTF-8 ({error}).") from error


def _as_text(name: str, returned: object, validation: float, test: float) -> Text:
    """The text that your own function has returned."""
    if isinstance(returned, Text):
        return returned
    if isinstance(returned, str):
        return split_text(returned, validation, test)
    if isinstance(returned, Mapping) and set(returned) == set(PARTS):
        return Text(**returned)
    keys = f" with {', '.join(map(str, returned)) or 'nothing in it'}" if isinstance(returned, Mapping) else ""
    raise DataError(f"{name} returned a {type(returned).__name__}{keys}: expected a string, or a dict of "
                    f"{', '.join(PARTS)}, each a string.")
