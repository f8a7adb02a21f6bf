"""Random numbers of every library from one generator, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from encouraging.data.draw import preserve_random_states, seed_all


@contextmanager
def seeded(draw: torch.Generator) -> Iterator[None]:
    """``seed_all`` inside the context; the states are restored afterwards."""
    with preserve_random_states():
        seed_all(draw)
        yield
