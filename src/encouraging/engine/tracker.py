"""Numbers for TensorBoard, with ``--track tensorboard``."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Self

from ..errors import RunError


def check_tracker(kind: str | None) -> None:
    """Raise a RunError for an unknown tracker, or one that is not installed."""
    if kind not in (None, "tensorboard"):
        raise RunError(f"--track {kind}: expected 'tensorboard'.")
    if kind is not None and importlib.util.find_spec("tensorboard") is None:
        raise RunError("--track tensorboard: the tensorboard package is not installed: pip install tensorboard.")


class Tracker:
    """Called with every epoch's line. ``kind`` is ``"tensorboard"``, or None for nothing."""

    def __init__(self, kind: str | None, folder: Path) -> None:
        check_tracker(kind)
        self.kind, self.folder = kind, folder
        self.writer: Any = None

    def __enter__(self) -> Self:
        if self.kind is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(self.folder / "tensorboard"))
        return self

    def __call__(self, line: dict[str, Any]) -> None:
        if self.writer is not None:
            for name, value in line.items():
                if name not in ("epoch", "stage", "step"):
                    self.writer.add_scalar(name, value, line["step"])

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()
