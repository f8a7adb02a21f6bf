"""Where a run stands, as a source of batches and an objective see it."""

from __future__ import annotations

from typing import NamedTuple


class Clock(NamedTuple):
    """Stage and epoch count from 1; ``update`` counts the updates of the stage that are done."""

    stage: int = 1
    epoch: int = 1
    update: int = 0
