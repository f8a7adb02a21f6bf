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

    def checkpoint(self, environment: Mapping[str, Any], say: Callable[[str], None]) -> Checkpoint | None:
        """The other run at the end of the last common epoch; None where there is none, or not a fitting one."""
        mark = fingerprint(self.config)
        try:
            run = RunDir(self.run)
            if run.read_config().get("fingerprint") != mark or run.environment() != environment:
                return None
            found = load_checkpoint(branch_folder(self.run, self.epochs), mark, say)
        except (CheckpointError, RunError):
            return None
        if found is not None:
            found.state["log"]["shared_epochs"] = self.epochs
        return found
