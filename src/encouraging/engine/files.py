"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import RunError

LOOKS_FILE = "looks.json"  # of a recipe's folder: the planned looks of its claims
_PART = re.compile(r".+\.[0-9a-f]{8}\.part")  # a file that is being written


def write_whole(path: Path, content: bytes) -> None:
    """Write beside the target, flush to the disk, rename over it: a reader sees the old file or the new one.

    Every call writes to a file of its own: where several processes write the same target, the last rename wins.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except BaseException as error:  # a signal, too, leaves nothing behind
        with suppress(OSError):  # what cannot be written to cannot always be cleaned up either
            part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
        raise RunError(f"{path} ({len(content)} bytes) could not be written: {reason}. What was there before is "
                       "untouched; make room and run again to continue.") from error


def remove_parts(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder and below it; nobody may be writing there."""
    for path in folder.rglob("*.part"):
        if _PART.fullmatch(path.name):
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
