"""Whether installed packages can be imported: one that was built for another torch is found, but cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence

LIMIT = 120.0  # seconds per package; on a busy machine the first import of a large one takes half a minute
SIGN = "imported: "  # packages may print lines of their own
# All packages are imported by one process as long as they succeed, because most of them import torch.
SCRIPT = f"""
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        lines = str(error).strip().splitlines()
        print({SIGN!r} + type(error).__name__ + (": " + lines[-1].strip() if lines else ""), flush=True)
        break
    print({SIGN!r}, flush=True)
"""


def import_failures(packages: Sequence[str], limit: float = LIMIT) -> Iterator[tuple[str, str]]:
    """Each package with the last line of the error that its import raises, or nothing where it succeeds.

    The imports happen in another process, so that a package that crashes or does not return cannot stop this one. After
    a failure the rest is imported by a fresh process.
    """
    left = list(packages)
    while left:
        # Keras imports the backend that it is told to use, and its losses here are for torch.
        with subprocess.Popen([sys.executable, "-P", "-c", SCRIPT, *left], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL, env={**os.environ, "KERAS_BACKEND": "torch"}) as process:
            try:
                failed = ""
                while left and not failed:
                    failed = _next_result(process, limit)
                    yield left.pop(0), failed
            finally:
                process.kill()


def _next_result(process: subprocess.Popen[str], limit: float) -> str:
    """The error of the next import, or nothing."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(limit, stop)
    timer.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(SIGN):
                return line.removeprefix(SIGN).strip()
    finally:
        timer.cancel()
    return f"no answer after {limit:.0f} s" if late.is_set() else f"the process ended with exit code {process.wait()}"
