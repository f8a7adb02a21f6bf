"""Numbers for TensorBoard, where someone asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from ..errors import RunError


class Tracker:
    """Called with every epoch's line. ``kind`` is ``"tensorboard"``, or None for nothing."""

    def __init__(self, kind: str | None, folder: Path) -> None:
        if kind not in (None, "tensorboard"):
            raise RunError(f"--track {kind}: expected 'tensorboard'.")
        self.kind, self.folder = kind, folder
        self.writer: Any = None

    def __enter__(self) -> Self:
        if self.kind is not None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise RunError("--track tensorboard: the tensorboard package is not installed: pip "
                               "install tensorboard.") from error
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
