"""Files that are written completely or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..whole_file import PART, replace_file

LOOKS_FILE = "looks.json"  # in a recipe's folder: the planned looks of its claims


def write_whole(path: Path, content: bytes) -> None:
    """:func:`replace_file`, safe against power loss, with an error message that says what to do."""
    try:
        replace_file(path, content)
        _sync_folder(path.parent)
    except OSError as error:
        full = is_disk_full(error)
        remedy = "free some space" if full else "choose another folder"
        raise RunError(f"{path} ({len(content)} bytes) could not be written: {'the disk is full' if full else error}. "
                       f"An earlier version of it is untouched; {remedy} and run again.") from error


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def remove_parts(folder: Path) -> None:
    """Remove the partial files of killed writers in a folder and below it. No process may be writing there."""
    for path in folder.rglob("*.part"):
        if PART.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_whole(path, (json.dumps(value, indent=1, allow_nan=True) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; errors name the file."""
    try:
        value = json.loads(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError(f"found {'null' if value is None else f'a {type(value).__name__}'}")
    except (OSError, ValueError, RecursionError) as error:  # a ValueError, too, for a number of 5000 digits
        raise RunError(f"{path}: expected a JSON object ({error}). Move the file away. If it belongs to a run, move "
                       "the folder of the run away instead, and the run is trained again.") from error
    return value


def _sync_folder(folder: Path) -> None:
    """Make sure that the rename itself reaches the disk. Windows cannot open a folder, and does not need this."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
