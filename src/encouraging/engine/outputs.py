"""Where a command may write: never over its inputs, and never to a name that a run or a record uses."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..errors import ArgumentError, RunError
from .files import is_disk_full, write_whole

# Names that the package reads in folders of runs, records and arrays.
DATA_SUFFIXES = (".json", ".jsonl", ".npy", ".npz", ".safetensors")
RUN_FILES = re.compile(r"checkpoint-.*|lock|lock\.pid")
RECORD = re.compile(r".+-seed(\d+|s)\.json")


def check_output(out: Path, inputs: Iterable[Path] = (), *, make_parents: bool = False) -> None:
    """Refuse a path that cannot be written, that is an input, or whose name a run or a record uses.

    Args:
        out: the file that a command is to write; links are followed.
        inputs: files and folders that the command reads.
        make_parents: whether missing folders will be created.

    Raises:
        ArgumentError: the path is refused; the message says why and what to do.
    """
    if out.is_dir():
        raise ArgumentError(f"{out}: expected the name of a file to write, and this is a folder.")
    target = out.resolve()
    if not make_parents and not target.parent.is_dir():
        raise ArgumentError(f"{out}: there is no folder {out.parent}; create it first, or choose another folder.")
    for path in inputs:
        if path.is_dir():
            if target.is_relative_to(path.resolve()) and _is_data(target):
                raise ArgumentError(f"{out}: this name inside {path}, which is read, belongs to runs, records or "
                                    "arrays; choose another name or folder.")
        elif path.exists() and out.exists() and out.samefile(path):
            raise ArgumentError(f"{out}: this file is read by the command itself; choose another name.")
    if RECORD.fullmatch(target.name):
        raise ArgumentError(f"{out}: this is the name of a record; choose another name.")
    if (target.parent / "config.json").is_file() and _is_data(target):
        raise ArgumentError(f"{out}: {out.parent} is a run directory, where such names are reserved; choose another "
                            "name or folder.")


def check_outputs(page: Path | None, numbers: Path | None, inputs: Sequence[Path]) -> None:
    """:func:`check_output` of a page and of its numbers, where they are wanted; one file cannot be both."""
    for target in filter(None, (page, numbers)):
        check_output(target, inputs)
    if page is not None and numbers is not None and page.resolve() == numbers.resolve():
        raise ArgumentError(f"{page}: the page and the numbers cannot be one file.")


def write_output(out: Path, content: bytes) -> None:
    """Write a file completely or not at all. A link stays a link, and what is not a regular file (a device, a pipe)
    is written to instead of being replaced."""
    if out.exists() and not out.is_file():
        try:
            with open(out, "wb") as file:
                file.write(content)
        except OSError as error:
            raise _failed(out, error) from error
        return
    write_whole(out.resolve(), content)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents.

    Raises:
        RunError: this fails, or nothing can be written into the folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _failed(folder, error) from error


def _is_data(path: Path) -> bool:
    return path.suffix in DATA_SUFFIXES or RUN_FILES.fullmatch(path.name) is not None


def _failed(path: Path, error: OSError) -> RunError:
    reason = "the disk is full" if is_disk_full(error) else str(error)
    return RunError(f"{path}: cannot be written to ({reason}). Choose another folder.")
