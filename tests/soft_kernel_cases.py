"""What the tests of the kernels for soft targets share: targets of every kind, the truth in float64, and errors."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton")

from encouraging.curves import Curve
from encouraging.ops import reference
from encouraging.ops.triton import soft_loss
from kernel_cases import CLASSES, draw, row_error


def draw_soft(rows: int, classes: int = CLASSES, seed: int = 0, **arguments: object) -> tuple[Tensor, Tensor]:
    """Logits at any confidence, with targets of every kind: one class, two, all, nearly one, and not summing to 1."""
    z, y = draw(rows, classes, seed=seed, **arguments)
    g = torch.Generator().manual_seed(seed + 1)
    hot = F.one_hot(y, classes).double()
    other = hot[torch.randperm(rows, generator=g)]
    spread = torch.randn(rows, classes, generator=g, dtype=torch.float64).mul(2).softmax(1)
    share = torch.rand(rows, 1, generator=g, dtype=torch.float64)
    kinds = [hot, share * hot + (1 - share) * other, spread, hot * (1 - 1e-4) + 1e-4 * spread, 3 * share * spread]
    return z, torch.stack(kinds)[torch.arange(rows) % len(kinds), torch.arange(rows)].float()


def truth(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
          **arguments: object) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and both gradients of the reference in float64."""
    z, q = (tensor.detach().double().requires_grad_() for tensor in (logits, target))
    if isinstance(arguments.get("weight"), Tensor):
        arguments["weight"] = arguments["weight"].double()
    loss = reference.soft_loss(z, q, curve, **arguments)
    loss.backward(None if upstream is None else upstream.double())
    return loss.detach(), z.grad, q.grad


def ours(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
         **arguments: object) -> tuple[Tensor, Tensor, Tensor]:
    z, q = (tensor.detach().clone().requires_grad_() for tensor in (logits, target))
    loss = soft_loss(z, q, curve, **arguments)
    loss.backward(upstream)
    return loss.detach(), z.grad, q.grad


def ours_for_logits(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
                    **arguments: object) -> tuple[Tensor, Tensor]:
    """Loss and gradient where only the logits have one: rows may keep their states, and be read in narrow tiles."""
    z = logits.detach().clone().requires_grad_()
    loss = soft_loss(z, target, curve, **arguments)
    loss.backward(upstream)
    assert z.grad is not None
    return loss.detach(), z.grad


def plain_error(logits: Tensor, target: Tensor, curve: Curve, slope: Tensor, **arguments: object) -> Tensor:
    """Errors of the plain code in float32: the measure where a gradient is a small difference of large terms."""
    leaf = logits.detach().clone().requires_grad_()
    reference.soft_loss(leaf, target, curve, reduction="sum", **arguments).backward()
    return row_error(leaf.grad, slope)
