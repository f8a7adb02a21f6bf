"""One file that appears whole or not at all."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

PART = re.compile(r".+\.[0-9a-f]{8}\.part")  # the name of a file that is being written


def replace_file(path: Path, content: bytes) -> None:
    """Write beside the target, flush to the disk, rename over it: a reader sees the old file or the new one.

    Every call writes to a file of its own: where several processes write the same target, the last rename wins.
    Whatever ends the writing, a signal too, leaves nothing behind.
    """
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):  # what cannot be written to cannot always be cleaned up either
            part.unlink(missing_ok=True)
        raise
