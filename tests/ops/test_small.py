"""Small batches on the CPU keep their exponentials: the same bits as without, and the same derivatives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from encouraging import curve_loss, curves
from encouraging.curves import Curve
from encouraging.ops import rows, small
from strategies import CURVES, SEEDS


def loss_and_gradient(logits: Tensor, target: Tensor, curve: Curve, kept: bool, **how: object) -> tuple[Tensor, Tensor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "is_small", small.is_small if kept else lambda logits: False)
        leaf = logits.clone().requires_grad_()
        assert rows.is_small(leaf) == kept
        loss = curve_loss(leaf, target, curve, **how)
        return loss.detach(), torch.autograd.grad(loss.sum(), leaf)[0]


@given(curve=CURVES, seed=SEEDS, dtype=st.sampled_from([torch.float32, torch.float64]), classes=st.integers(1, 5),
       odd=st.sampled_from([None, torch.inf, -torch.inf, torch.nan, 1e30]), scale=st.sampled_from([1.0, 60.0]),
       reduction=st.sampled_from(["mean", "none"]))
def test_they_have_the_bits_of_large_ones(curve: Curve, seed: int, dtype: torch.dtype, classes: int, odd: float | None,
                                          scale: float, reduction: str) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(6, classes, generator=draw, dtype=dtype)
    target = torch.randint(classes, (6,), generator=draw)
    target[2] = -100
    if odd is not None:
        logits[1, seed % classes] = logits[2, 0] = odd
    for ours, theirs in zip(loss_and_gradient(logits, target, curve, True, reduction=reduction),
                            loss_and_gradient(logits, target, curve, False, reduction=reduction), strict=True):
        assert torch.equal(ours.nan_to_num(7.0), theirs.nan_to_num(7.0))


def test_they_are_differentiated_twice_and_backwards_twice() -> None:
    logits, target = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.tensor([0, 2, -100, 1])
    assert torch.autograd.gradgradcheck(lambda z: curve_loss(z, target, curves.encouraging(0.75)), logits)
    loss = curve_loss(logits, target, curves.focal(2.0))
    first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_what_is_larger_than_a_block_keeps_nothing_of_its_size() -> None:
    assert small.is_small(torch.zeros(256, 1024, requires_grad=True))
    assert not small.is_small(torch.zeros(257, 1024, requires_grad=True))
    assert rows._BLOCK_BYTES["cpu"] == small.LARGEST
