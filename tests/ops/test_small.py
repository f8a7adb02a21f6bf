"""Small batches on the CPU keep their exponentials: the same bits as without, and the same derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from encouraging import curve_loss, curves, encouraging_loss
from encouraging.curves import Curve
from encouraging.errors import TargetError
from encouraging.losses import _softmax
from encouraging.ops import reference, rows, small
from strategies import CURVES, REDUCTIONS, SEEDS

GENERAL = "the general way"  # as a batch of any size
THROUGH_ROWS = "through its rows"  # what a caller of rows.py has
PLAIN = "plain"  # what most calls take
WAYS = (GENERAL, THROUGH_ROWS, PLAIN)


def take(way: str, patch: pytest.MonkeyPatch) -> None:
    if way != PLAIN:
        patch.setattr(_softmax, "plain_loss", lambda *arguments: None)
        patch.setattr(reference, "is_small", lambda logits: False)
    if way == GENERAL:
        patch.setattr(rows, "is_small", lambda logits: False)


def loss_and_gradient(logits: Tensor, target: Tensor, curve: Curve, way: str, **how: Any) -> tuple[Tensor, ...]:
    with pytest.MonkeyPatch.context() as patch:
        take(way, patch)
        leaf = logits.clone().requires_grad_()
        assert small.is_small(leaf)
        loss = curve_loss(leaf, target, curve, **how)
        with torch.no_grad():
            alone = curve_loss(leaf, target, curve, **how)
        return loss.detach(), alone, torch.autograd.grad((loss * torch.arange(1.0, 1 + loss.numel())).sum(), leaf)[0]


@given(curve=CURVES, seed=SEEDS, dtype=st.sampled_from([torch.float32, torch.float64]), classes=st.integers(1, 5),
       odd=st.sampled_from([None, torch.inf, -torch.inf, torch.nan, 1e30]), scale=st.sampled_from([1.0, 60.0]),
       reduction=REDUCTIONS, weighted=st.booleans(), ignore_index=st.sampled_from([-100, 0, 7]))
def test_they_have_the_bits_of_large_ones(curve: Curve, seed: int, dtype: torch.dtype, classes: int, odd: float | None,
                                          scale: float, reduction: str, weighted: bool, ignore_index: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(6, classes, generator=draw, dtype=dtype)
    target = torch.randint(classes, (6,), generator=draw)
    target[2] = ignore_index if seed % 3 else 0
    weight = torch.rand(classes, generator=draw, dtype=dtype) if weighted else None
    if odd is not None:
        logits[1, seed % classes] = logits[2, 0] = odd
    how = {"reduction": reduction, "weight": weight, "ignore_index": ignore_index}
    general, *others = (loss_and_gradient(logits, target, curve, way, **how) for way in WAYS)
    for other in others:
        for ours, theirs in zip(other, general, strict=True):
            assert torch.equal(ours.nan_to_num(7.0), theirs.nan_to_num(7.0))


def test_a_label_at_infinity_is_noticed_by_curves_that_are_flat_there() -> None:
    """Cross-entropy of a gap of +inf would be 0, with a gradient of 0: nothing but the gap shows it."""
    for curve in (curves.cross_entropy(), curves.conservative(), curves.square()):
        logits = torch.zeros(3, 4)
        logits[1, 2] = torch.inf
        logits.requires_grad_()
        loss = curve_loss(logits, torch.tensor([0, 2, 1]), curve)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isnan()
        assert gradient[1].isnan().any()
        assert gradient[[0, 2]].isfinite().all()


@pytest.mark.parametrize("how", [{}, {"reduction": "sum"}, {"reduction": "none"},
                                 {"weight": torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)}], ids=str)
def test_they_are_differentiated_twice_and_backwards_twice(how: dict[str, Any]) -> None:
    logits, target = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), torch.tensor([0, 2, -100, 1])
    assert torch.autograd.gradcheck(lambda z: curve_loss(z, target, curves.encouraging(0.75), **how), logits)
    assert torch.autograd.gradgradcheck(lambda z: curve_loss(z, target, curves.encouraging(0.75), **how), logits)
    loss = curve_loss(logits, target, curves.focal(2.0), **how).sum()
    first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_a_gradient_penalty_is_that_of_the_curve_differentiated_by_autograd() -> None:
    """Its derivative is the second one, which the numbers kept for the first cannot give."""
    torch.manual_seed(0)
    target = torch.tensor([0, 2, 1, 1])
    logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)

    def penalty(loss: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), logits)[0]

    torch.testing.assert_close(penalty(curve_loss(logits, target, curves.cross_entropy())),
                               penalty(F.cross_entropy(logits, target)))


def test_many_upstream_gradients_at_once() -> None:
    logits, target = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 2, 1, 1])
    for reduction in ("mean", "none"):
        loss = encouraging_loss(logits, target, reduction=reduction)
        upstream = torch.randn(5, *loss.shape)
        (batched,) = torch.autograd.grad(loss, logits, upstream, is_grads_batched=True, retain_graph=True)
        for one, together in zip(upstream, batched, strict=True):
            torch.testing.assert_close(torch.autograd.grad(loss, logits, one, retain_graph=True)[0], together)


def test_a_weight_that_learns_gets_its_gradient() -> None:
    logits, target = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 2, 1, 1])
    weight = torch.rand(3, requires_grad=True)
    ours = torch.autograd.grad(curve_loss(logits, target, curves.cross_entropy(), weight, reduction="sum"), weight)
    theirs = torch.autograd.grad((weight[target] * F.cross_entropy(logits, target, reduction="none")).sum(), weight)
    torch.testing.assert_close(ours, theirs)


def test_what_does_not_fit_is_left_to_the_checks() -> None:
    logits, target = torch.zeros(2, 3), torch.tensor([0, 2])
    fitting: dict[str, Any] = {"input": logits, "target": target, "curve": curves.normal(), "weight": None,
                               "ignore_index": -100, "reduction": "mean"}
    assert small.plain_loss(**fitting) is not None
    others: list[dict[str, Any]] = [
        {"input": logits.half()}, {"input": logits[:, :0]}, {"input": logits.to("meta")}, {"input": logits.tolist()},
        {"input": logits.T[:2]}, {"input": logits[None]}, {"target": target.int()}, {"target": target[:1]},
        {"target": logits}, {"curve": "normal"}, {"weight": torch.ones(4)}, {"weight": 1.0}, {"ignore_index": 1.5},
        {"reduction": "avg"},
    ]
    for other in others:
        assert small.plain_loss(**(fitting | other)) is None
    with pytest.raises(TargetError, match="label 3"):
        curve_loss(logits, torch.tensor([0, 3]), curves.normal())


def test_no_rows_have_torchs_mean() -> None:
    logits, target = torch.zeros(0, 3, requires_grad=True), torch.zeros(0, dtype=torch.int64)
    for reduction in ("mean", "sum", "none"):
        ours, theirs = (loss(logits, target, reduction=reduction) for loss in (encouraging_loss, F.cross_entropy))
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_after_inference_mode_it_can_be_differentiated_twice() -> None:
    logits, target = torch.randn(5, 3, requires_grad=True), torch.tensor([0, 2, 1, 1, 0])
    with torch.inference_mode():
        encouraging_loss(logits, target, log_end=0.61)
    (gradient,) = torch.autograd.grad(encouraging_loss(logits, target, log_end=0.61), logits, create_graph=True)
    gradient.square().sum().backward()
    assert logits.grad is not None


def test_more_than_8_mib_keep_nothing_of_their_size() -> None:
    assert small.is_small(torch.zeros(2048, 1024, requires_grad=True))
    assert not small.is_small(torch.zeros(2049, 1024, requires_grad=True))
