"""What ranks refuse of a split vocabulary, for ``ops/test_parallel.py``: all of them, so that none waits."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.distributed as dist

from encouraging import curves, parallel_curve_loss
from encouraging.errors import DerivativeError, ShapeError, TargetError
from split_logits import draw, split


def a_wrong_label_is_an_error_on_every_rank() -> None:
    logits, target = draw(14)
    local = logits[:, :3].contiguous()
    total = 3 * dist.get_world_size()
    for smoothing, wrong in itertools.product((0.0, 0.1), (total, -1)):
        target = target.clamp(max=total - 1)
        target[4] = wrong
        with pytest.raises(TargetError, match=str(total)):
            parallel_curve_loss(local, target, curves.normal(), label_smoothing=smoothing)
    everyone = torch.ones(())
    dist.all_reduce(everyone)  # nobody was left behind
    assert everyone == dist.get_world_size()


def a_split_with_holes_is_an_error_on_every_rank() -> None:
    local = torch.zeros(3, 2 + dist.get_rank())
    target = torch.tensor([0, 1, 2])
    with pytest.raises(ShapeError, match="class_offset"):
        parallel_curve_loss(local, target, curves.normal())
    with pytest.raises(ShapeError, match="class_offset"):  # one rank alone is wrong
        parallel_curve_loss(torch.zeros(3, 2), target, curves.normal(), class_offset=2 * dist.get_rank()
                            + (dist.get_rank() == 1))


def second_derivatives_and_transforms_are_refused() -> None:
    local, target = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 3])
    for smoothing in (0.0, 0.1):
        loss = parallel_curve_loss(local, target, curves.normal(), label_smoothing=smoothing)
        with pytest.raises(DerivativeError, match="second derivative"):
            torch.autograd.grad(loss, local, create_graph=True)
    with pytest.raises(DerivativeError, match=r"torch\.func"):
        torch.func.grad(lambda z: parallel_curve_loss(z, target, curves.normal()))(local)


def weights_that_need_a_gradient_are_refused() -> None:
    logits, target = draw(72)
    start, end = split(12, dist.get_world_size(), False)[dist.get_rank()]
    weight = torch.ones(end - start, dtype=torch.float64, requires_grad=True)
    with pytest.raises(DerivativeError, match=r"weight\.detach\(\)"):
        parallel_curve_loss(logits[:, start:end], target, curves.normal(), weight=weight)
