"""One file that appears whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PART = re.compile(r".+\.[0-9a-f]{8}\.part")  # the name of a file that is being written


def replace_file(path: Path, content: bytes) -> None:
    """Write ``content`` as :func:`open_whole` does."""
    with open_whole(path) as file:
        file.write(content)


@contextmanager
def open_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write beside the target, which is flushed to the disk and renamed over it at the end: a reader sees the
    old file or the new one.

    Every call writes to a file of its own: where several processes write the same target, the last rename wins.
    Whatever ends the writing, a signal too, leaves nothing behind.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):  # what cannot be written to cannot always be cleaned up either
            part.unlink(missing_ok=True)
        raise
