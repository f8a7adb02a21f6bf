"""Checkpoints that are written while training continues.

A ResNet-50 with its momentum and its best epoch takes 300 MB. Copying it takes a tenth of a second, but digest, disk
and fsync take seconds. So training waits only for the copy, and a thread does the rest, one checkpoint at a time.
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

    An error in the thread (a full disk) is raised by the next call, or at the end of the context.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = folder, fingerprint
        self.thread: threading.Thread | None = None
        self.error: Exception | None = None

    def __call__(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any],
                 branch: int | None = None) -> None:
        """``branch`` is the epoch after which another run may start: see branches.py."""
        self.wait()
        folder = self.folder if branch is None else branch_folder(self.folder, branch)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{folder} could not be created ({error}). Earlier checkpoints are untouched; free some "
                           "space and run again to continue.") from error
        copies, state_json = snapshot(step, tensors, {**state, "fingerprint": self.fingerprint})
        if sum(tensor.nbytes for tensor in copies.values()) < LARGE:
            write_checkpoint(folder, step, copies, state_json)
            return
        self.thread = threading.Thread(target=self._write, args=(folder, step, copies, state_json),
                                       name=f"checkpoint {step}")
        self.thread.start()

    def _write(self, folder: Path, step: int, copies: Mapping[str, Tensor], state_json: str) -> None:
        try:
            write_checkpoint(folder, step, copies, state_json)
        except Exception as error:
            self.error = error

    def wait(self) -> None:
        """Wait until the current checkpoint is on the disk."""
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
