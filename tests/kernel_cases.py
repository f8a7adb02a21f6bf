"""What the tests of the kernels share: logits at any confidence, the truth in float64, and measures of error."""

from __future__ import annotations

import math
import os

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from encouraging import curves
from encouraging.curves import Curve
from encouraging.ops import reference
from encouraging.ops.triton import Tiling, hard_loss

MARKS = [
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="these tests run in Triton's interpreter "
                       "(TRITON_INTERPRET=1); on a GPU run benchmarks/check_gpu.py"),
    # numpy, on which the interpreter runs, warns of the infinities that the kernels mean.
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),
]
CURVES = [
    curves.cross_entropy(), curves.normal(), curves.normal(eps=0), curves.conservative(0.75), curves.conservative(0.2),
    curves.aggressive(0.5), curves.power(2.0, 0.5), curves.poly(1.0), curves.poly(-1.0), curves.focal(2.0),
    curves.halted_focal(2.0, 0.5), curves.square(), curves.square(bonus=True),
]
# One curve for each way in which smoothing is computed.
TAILS = [curves.cross_entropy(), curves.conservative(0.75), curves.focal(2.0)]
ULP = 2.0**-23
WHOLE = Tiling(rows=64, block=64, warps=4)
SIXTEEN = Tiling(rows=16, block=64, warps=4)
READ_ALL = Tiling(rows=16, block=64, warps=4, skip=False)
STREAMED = Tiling(rows=1, block=32, warps=4, streamed=True, per_processor=1)
# Two segments, of two blocks and of one that is not full.
SPLIT = Tiling(rows=1, block=16, warps=4, streamed=True, segments=2)
CLASSES = 37  # odd, and more than one block of the streamed tiling


def draw(rows: int, classes: int = CLASSES, dtype: torch.dtype = torch.float32, seed: int = 0,
         lowest: float = 1e-6, highest: float = 1 - 1e-7) -> tuple[Tensor, Tensor]:
    """Logits whose labels have probabilities spread evenly in the gap, from one end to the other; shifted rows."""
    g = torch.Generator().manual_seed(seed)
    z = 3 * torch.randn(rows, classes, generator=g, dtype=torch.float64)
    y = torch.randint(classes, (rows,), generator=g)
    if classes > 1:
        ends = torch.tensor([lowest, highest], dtype=torch.float64).logit()
        gap = torch.linspace(*ends.tolist(), rows, dtype=torch.float64)[torch.randperm(rows, generator=g)]
        rivals = z.scatter(1, y[:, None], -math.inf).logsumexp(1)
        z.scatter_(1, y[:, None], (rivals + gap)[:, None])
    return (z + 10 * torch.rand(rows, 1, generator=g, dtype=torch.float64)).to(dtype), y


def with_mistakes(logits: Tensor, target: Tensor) -> Tensor:
    """Every fourth row is certain of a wrong class."""
    z = logits.clone()
    wrong = (target + 1) % z.shape[1]
    z[::4] = z[::4].scatter_add(1, wrong[::4, None], torch.full_like(z[::4], 25.0)[:, :1])
    return z


def truth(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
          **arguments: object) -> tuple[Tensor, Tensor]:
    """Loss and gradient of the reference in float64."""
    z = logits.detach().double().requires_grad_()
    if isinstance(arguments.get("weight"), Tensor):
        arguments["weight"] = arguments["weight"].double()
    loss = reference.hard_loss(z, target, curve, **arguments)
    loss.backward(None if upstream is None else upstream.double())
    return loss.detach(), z.grad


def ours(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
         **arguments: object) -> tuple[Tensor, Tensor]:
    z = logits.detach().clone().requires_grad_()
    loss = hard_loss(z, target, curve, **arguments)
    loss.backward(upstream)
    return loss.detach(), z.grad


def row_error(gradient: Tensor, expected: Tensor) -> Tensor:
    """Error of every row of a gradient relative to its largest element."""
    size = expected.abs().amax(1)
    return ((gradient.double() - expected).abs().amax(1) / torch.where(size == 0, 1.0, size))


def gaps_of(logits: Tensor, target: Tensor) -> Tensor:
    z = logits.double()
    own = z.gather(1, target[:, None])[:, 0]
    return own - z.scatter(1, target[:, None], -math.inf).logsumexp(1)
