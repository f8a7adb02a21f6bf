"""The position of a run, for sources of batches and objectives."""

from __future__ import annotations

from typing import NamedTuple


class Clock(NamedTuple):
    """Stage and epoch are counted from 1; ``update`` is the number of finished updates of the stage."""

    stage: int = 1
    epoch: int = 1
    update: int = 0
