"""Runs whose first epochs are identical: these epochs are trained once, and the other runs start after them.

A run writes a checkpoint to ``branches/epoch-<n>`` at the end of each epoch after which other runs differ from it. Such
a run starts there if the first run has the expected config and was trained on the same device with the same versions;
otherwise it trains the first epochs itself. On the CPU the numbers are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, RunError
from .checkpoint import Checkpoint, load_checkpoint
from .run_dir import RunDir, fingerprint


def branch_folder(run: Path, epoch: int) -> Path:
    return run / "branches" / f"epoch-{epoch}"


@dataclass(frozen=True)
class Branch:
    """The directory of another run, its config, and how many first epochs it has in common with this one."""

    run: Path
    config: Mapping[str, Any]
    epochs: int

    def fits(self, environment: Mapping[str, Any]) -> bool:
        """Whether the other run has the expected config, device and versions."""
        try:
            run = RunDir(self.run)
            return run.read_config().get("fingerprint") == fingerprint(self.config) \
                and run.environment() == environment
        except RunError:
            return False

    def checkpoint(self, say: Callable[[str], None]) -> Checkpoint | None:
        """The other run's checkpoint at the end of the last common epoch; None if there is no intact one."""
        try:
            checkpoint = load_checkpoint(branch_folder(self.run, self.epochs), fingerprint(self.config), say)
        except CheckpointError:
            return None
        if checkpoint is not None:
            checkpoint.state["log"] |= {"shared_epochs": self.epochs, "resumed": 0}
        return checkpoint
