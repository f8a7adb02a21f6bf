"""What the tests of autograd's transforms and of torch.compile share: a small batch and the amounts of smoothing."""

from __future__ import annotations

import torch
from torch import Tensor

from strategies import rows_with_gaps

ROWS, CLASSES = 4, 5
SMOOTHING = [0.0, 0.2]


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows on both sides of every edge of the curves, none close to one."""
    return rows_with_gaps(torch.tensor([-3.1, -0.9, 1.3, 4.2], dtype=torch.float64), CLASSES, seed)
