"""Logits for the tests of a split vocabulary, and which classes each rank holds."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor


def draw(seed: int, rows: int = 23, classes: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """The same logits on every rank, with labels from hopeless to certain."""
    g = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=g, dtype=torch.float64) * 2
    target = torch.randint(classes, (rows,), generator=g)
    logits[torch.arange(rows), target] += torch.linspace(-12, 16, rows, dtype=torch.float64)
    return logits.to(dtype), target


def split(classes: int, world: int, uneven: bool) -> list[tuple[int, int]]:
    """Where each rank's classes start and end."""
    if not uneven:
        edges = [classes * r // world for r in range(world + 1)]
    else:
        edges = [*(0, 1, 4, 5)[:world], classes]
    return list(itertools.pairwise(edges))
