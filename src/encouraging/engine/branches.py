"""Runs that begin alike: the beginning is trained once, and the others start where they part.

A run leaves a checkpoint in ``branches/epoch-<n>`` at the end of each epoch that others part from. A run that may start
there does so if that run has the config that was expected, and was made on the same device with the same versions;
else it trains the beginning itself. On the CPU the numbers are the same, bit for bit.
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
        """Whether the other run has the config that was expected, and was made as this one is."""
        try:
            run = RunDir(self.run)
            return run.read_config().get("fingerprint") == fingerprint(self.config) \
                and run.environment() == environment
        except RunError:
            return False

    def checkpoint(self, say: Callable[[str], None]) -> Checkpoint | None:
        """The other run at the end of the last common epoch; None where it left no whole one."""
        try:
            found = load_checkpoint(branch_folder(self.run, self.epochs), fingerprint(self.config), say)
        except CheckpointError:
            return None
        if found is not None:
            found.state["log"] |= {"shared_epochs": self.epochs, "resumed": 0}
        return found
