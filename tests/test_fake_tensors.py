"""Losses of fake tensors, as tools make them that estimate memory: they leave nothing behind for real ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from encouraging import (
    curve_loss,
    curve_loss_and_gradient_,
    linear_curve_loss,
    mirror_mse_loss,
    sigmoid_curve_loss,
)
from encouraging.curves import Curve, _together
from encouraging.ops import small_mass
from paper_formulas import ALL_CURVES

Loss = Callable[[Tensor, Tensor, Curve], Tensor]
LOSSES: dict[str, Loss] = {
    "labels": curve_loss,
    "smoothed": lambda z, y, curve: curve_loss(z, y, curve, label_smoothing=0.1),
    "probabilities": lambda z, y, curve: curve_loss(z, torch.nn.functional.one_hot(y, z.shape[1]).float(), curve),
    "in place": lambda z, y, curve: curve_loss_and_gradient_(z.detach().clone(), y, curve, label_smoothing=0.1),
    "fused": lambda z, y, curve: linear_curve_loss(z, torch.ones(5, z.shape[1]), y, curve, label_smoothing=0.1),
    "sigmoid": sigmoid_curve_loss,
    "mse": lambda z, y, curve: mirror_mse_loss(z, y),
}
CACHES = (_together.constant, _together._normal_constants, _together._conservative_constants,
          small_mass._smoothing_masses, small_mass._numbers)


def computed(loss: Loss, curve: Curve) -> Tensor:
    logits = torch.linspace(-3, 3, 20).reshape(4, 5).requires_grad_()
    value = loss(logits, torch.arange(4), curve).sum()
    return torch.autograd.grad(value, logits)[0] if value.requires_grad else value


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
@pytest.mark.parametrize("name", LOSSES)
def test_fake_tensors_leave_nothing_behind(name: str, curve: Curve) -> None:
    expected = computed(LOSSES[name], curve)
    for cache in CACHES:
        cache.cache_clear()
    for _ in range(2):
        with FakeTensorMode():
            assert computed(LOSSES[name], curve).shape == expected.shape
    assert torch.equal(computed(LOSSES[name], curve), expected)
