"""Rows that the next power of two would pad: tiles side by side give what one wide tile gives."""

from __future__ import annotations

import math

import pytest
import torch

pytest.importorskip("triton")

from encouraging import curves
from encouraging.curves import Curve
from encouraging.ops.triton import soft_loss, tiling
from encouraging.ops.triton.tiling import soft_narrowed, soft_tiling_for
from kernel_cases import CURVES, MARKS, ULP, row_error
from soft_kernel_cases import draw_soft, ours_for_logits, plain_error
from soft_kernel_cases import truth as soft_truth

pytestmark = MARKS


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("curve", [*CURVES, curves.aggressive(0.3), curves.aggressive(0.5)], ids=repr)
def test_soft_targets_in_narrow_tiles_are_float64s(curve: Curve, reduction: str) -> None:
    z, q = draw_soft(18, 147, seed=11)  # two programs, the second of which is not full
    z[4, [1, 140]] = z[4].max() + 1  # two on top, in different tiles
    above = torch.randn(18) if reduction == "none" else torch.tensor(1.5)
    loss, gradient = ours_for_logits(z, q, curve, above, reduction=reduction)
    expected, slope, _ = soft_truth(z, q, curve, above, reduction=reduction)
    torch.testing.assert_close(loss.double(), expected, rtol=2e-6, atol=2e-6)
    theirs = plain_error(z, q, curve, soft_truth(z, q, curve, reduction="sum")[1])
    assert (row_error(gradient, slope) <= (2 * theirs).clamp(min=32 * ULP)).all()


@pytest.mark.parametrize("classes", [65, 148, 200, 290, 385])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_narrow_tiles_give_what_a_wide_one_gives(classes: int, dtype: torch.dtype,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    z, q = draw_soft(9, classes, seed=12)
    z = z.clamp(-30, 30).to(dtype)
    z[1, 3] = math.nan
    z[2] = -math.inf
    z[3, 5:] = -math.inf  # masked classes, without mass
    q[3, 5:] = 0
    q = q.to(dtype)
    weight = torch.rand(classes) + 0.5
    for arguments in ({}, {"label_smoothing": 0.1}, {"weight": weight}, {"reduction": "none"}, {"divisor": 7.0}):
        for curve in (curves.cross_entropy(), curves.conservative(0.75), curves.focal(2.0)):
            above = torch.linspace(1, 2, 9) if "reduction" in arguments else torch.tensor(3.0)
            each = {}
            for narrow in (True, False):
                monkeypatch.setattr(tiling, "narrow_soft", narrow)
                each[narrow] = ours_for_logits(z, q, curve, above, **arguments)
            rtol = 1e-5 if dtype is torch.float32 else 2e-2
            for ours, wide in zip(each[True], each[False], strict=True):
                torch.testing.assert_close(ours, wide, rtol=rtol, atol=1e-6, equal_nan=True)


def test_what_narrow_tiles_do_not_serve_is_made_as_before() -> None:
    z, q = draw_soft(6, 147, seed=13)
    _, slope, by_target = soft_truth(z, q, curves.normal(0.0), reduction="sum")
    leaf, masses = z.clone().requires_grad_(), q.clone().requires_grad_()
    soft_loss(leaf, masses, curves.normal(0.0), reduction="sum").backward()  # unbounded, with a gradient on the targets
    assert row_error(leaf.grad, slope).max() <= 64 * ULP
    torch.testing.assert_close(masses.grad.double(), by_target, rtol=1e-5, atol=1e-5)
    apart = z.T.contiguous().T  # classes that lie apart
    loss, gradient = ours_for_logits(apart, q, curves.conservative(0.75), reduction="sum")
    near = ours_for_logits(z, q, curves.conservative(0.75), reduction="sum")
    torch.testing.assert_close(loss, near[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, near[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("vector", [1, 2, 4, 8])
def test_narrow_tiles_cover_every_class_once(vector: int) -> None:
    for classes in range(2, 1200):
        for grad in (True, False):
            chosen = soft_narrowed(soft_tiling_for(classes, False), classes, vector, grad)
            if chosen.repeat > 1:
                assert (chosen.repeat - 1) * chosen.block < classes <= chosen.repeat * chosen.block
                assert chosen.repeat * chosen.block <= 7 / 8 * soft_tiling_for(classes, False).block
                assert chosen.rows * chosen.block == 128 * vector
