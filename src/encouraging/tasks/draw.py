"""Random numbers that follow from a few integers, whatever was drawn before."""

from __future__ import annotations

import numpy as np
import torch


def generator(*words: int) -> torch.Generator:
    """A generator for these words (seed, stage, epoch): a resumed run draws what an unbroken one would have drawn."""
    first, second = np.random.SeedSequence(words).generate_state(2, np.uint32).tolist()
    return torch.Generator().manual_seed(first << 31 | second >> 1)
