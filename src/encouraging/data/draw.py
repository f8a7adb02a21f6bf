"""Random numbers that follow from a few integers, whatever was drawn before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def generator(*words: int) -> torch.Generator:
    """A generator for these words (seed, stage, epoch): a resumed run draws what an unbroken one would have drawn."""
    first, second = np.random.SeedSequence(words).generate_state(2, np.uint32).tolist()
    return torch.Generator().manual_seed(first << 31 | second >> 1)


def seed_all(draw: torch.Generator) -> None:
    """Let the global random states of torch, numpy and Python follow from ``draw``.

    For transforms that know no generator: what they draw for an example then depends on that example alone, and not on
    the process that loads it.
    """
    seed = int(torch.randint(2**31, (), generator=draw))
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


@contextmanager
def states_kept() -> Iterator[None]:
    """Put the global random states back afterwards."""
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(arrays)


@contextmanager
def seeded(draw: torch.Generator) -> Iterator[None]:
    """:func:`seed_all` inside, and the states as they were afterwards."""
    with states_kept():
        seed_all(draw)
        yield
