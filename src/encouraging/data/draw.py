"""Random numbers that depend on a few integers only, and not on what was drawn before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def generator(*words: int) -> torch.Generator:
    """A generator for these integers (seed, stage, epoch), so that a resumed run draws the same numbers."""
    first, second = np.random.SeedSequence(words).generate_state(2, np.uint32).tolist()
    return torch.Generator().manual_seed(first << 31 | second >> 1)


def seed_all(draw: torch.Generator) -> None:
    """Seed the global random states of torch, numpy and Python from ``draw``.

    For transforms that take no generator: what they draw for an example then depends on that example alone, and not on
    the process that loads it.
    """
    seed = int(torch.randint(2**31, (), generator=draw))
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


@contextmanager
def preserve_random_states() -> Iterator[None]:
    """Restore the global random states afterwards."""
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
