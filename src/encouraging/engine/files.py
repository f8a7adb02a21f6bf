"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..whole_file import PART, replace_file

LOOKS_FILE = "looks.json"  # of a recipe's folder: the planned looks of its claims


def write_whole(path: Path, content: bytes) -> None:
    """:func:`replace_file`, also after a loss of power; what goes wrong is said in words."""
    try:
        replace_file(path, content)
        _sync_folder(path.parent)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise RunError(f"{path} ({len(content)} bytes) could not be written: {'the disk is full' if full else error}. "
                       f"What was there before is untouched; {'make room' if full else 'choose another place'} and run "
                       "again.") from error


def remove_parts(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder and below it; nobody may be writing there."""
    for path in folder.rglob("*.part"):
        if PART.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_whole(path, (json.dumps(value, indent=1, allow_nan=True) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or an error that names it."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise RunError(f"{path}: expected a JSON object ({error}). Move it away; where it belongs to a run, the rest "
                       "of the run's folder is untouched, and without the folder the run is made again.") from error
    if not isinstance(value, dict):
        raise RunError(f"{path}: expected a JSON object, found a {type(value).__name__}.")
    return value


def _sync_folder(folder: Path) -> None:
    """The rename itself must reach the disk. Windows has no handle of a folder, and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
