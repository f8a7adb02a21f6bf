"""Checkpoints that are written while the training goes on.

A ResNet-50 with its momentum and its best epoch takes 300 MB: copying them takes a tenth of a second, but digest, disk
and fsync take seconds. Only the copy is waited for; the rest is done by a thread, one checkpoint at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from ..errors import RunError
from .branches import branch_folder
from .checkpoint import snapshot, write_checkpoint

LARGE = 32 * 2**20  # bytes; smaller ones are written at once


class CheckpointWriter:
    """Called with a step, its tensors and its state. Leaving the context waits for the last checkpoint.

    What went wrong in the thread (a full disk) is raised by the next call, or at the end.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = folder, fingerprint
        self.thread: threading.Thread | None = None
        self.error: Exception | None = None

    def __call__(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any],
                 branch: int | None = None) -> None:
        """``branch`` is the epoch at whose end another run may start: see branches.py."""
        self.wait()
        folder = self.folder if branch is None else branch_folder(self.folder, branch)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{folder} could not be made ({error}). What was there before is untouched; make room and "
                           "run again to continue.") from error
        plain, rest = snapshot(step, tensors, {**state, "fingerprint": self.fingerprint})
        if sum(tensor.nbytes for tensor in plain.values()) < LARGE:
            write_checkpoint(folder, step, plain, rest)
            return
        self.thread = threading.Thread(target=self._write, args=(folder, step, plain, rest), name=f"checkpoint {step}")
        self.thread.start()

    def _write(self, folder: Path, step: int, plain: Mapping[str, Tensor], rest: str) -> None:
        try:
            write_checkpoint(folder, step, plain, rest)
        except Exception as error:
            self.error = error

    def wait(self) -> None:
        """Until the checkpoint at hand is on the disk."""
        if self.thread is not None:
            self.thread.join()
            self.thread = None
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
