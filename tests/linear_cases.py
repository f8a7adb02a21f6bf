"""What the tests of the output layer in chunks share: a small layer with its labels, and how gradients are compared."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

ROWS, WIDTH, CLASSES = 37, 6, 11
ROW_BYTES = CLASSES * 8


def draw(seed: int, *, bias: bool = True, dtype: torch.dtype = torch.float64, rows: int = ROWS, classes: int = CLASSES,
         width: int = WIDTH) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """A layer with labels from hopeless to certain, on both sides of every edge of the curves."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, width, generator=g, dtype=torch.float64)
    target = torch.randint(classes, (rows,), generator=g)
    push = torch.linspace(-3, 6, rows, dtype=torch.float64)[:, None]
    hidden = torch.randn(rows, width, generator=g, dtype=torch.float64) + push * F.normalize(weight[target])
    shift = torch.randn(classes, generator=g, dtype=torch.float64) if bias else None
    leaves = [None if t is None else t.to(dtype).requires_grad_() for t in (hidden, weight, shift)]
    return *leaves, target  # type: ignore[return-value]


def gradients(loss: Tensor, leaves: list[Tensor | None], upstream: Tensor | None = None) -> list[Tensor]:
    return list(torch.autograd.grad(loss, [leaf for leaf in leaves if leaf is not None], upstream))


def assert_close(ours: list[Tensor], theirs: list[Tensor], rtol: float = 1e-11) -> None:
    for a, b in zip(ours, theirs, strict=True):
        scale = b.abs().max().item() if b.numel() else 0.0
        torch.testing.assert_close(a.double(), b.double(), rtol=rtol, atol=rtol * max(scale, 1e-300), equal_nan=True)
