"""What a repeated call must not be taken for: other curves, changed weights, negated views, wrong arguments."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from encouraging import curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss
from encouraging.curves import Curve
from encouraging.errors import ArgumentError, CurveError
from encouraging.ops import dispatch, repeat
from encouraging.ops.triton import soft_autograd
from kernel_cases import MARKS, draw
from repeated_calls import DTYPES, EL, OWN, ROWS, SOFT, WEIGHT, kernels

pytestmark = MARKS


def test_weights_that_change_between_calls_are_seen() -> None:
    z, y = draw(ROWS, seed=10)
    for dtype in DTYPES:
        weight = WEIGHT.to(dtype)
        for _ in range(3):
            torch.testing.assert_close(curve_loss(z, y, EL, weight, impl="triton"),
                                       curve_loss(z, y, EL, weight, impl="reference"), rtol=1e-4, atol=1e-6)
            weight[int(y[0])] *= 2


def test_weights_that_change_before_the_backward_pass_are_an_error() -> None:
    z, y = draw(ROWS, seed=10)
    z = z.half()  # whose gradient is made in the backward pass
    for _ in range(3):
        weight, leaf = WEIGHT.clone(), z.clone().requires_grad_()
        with kernels():
            loss = sigmoid_curve_loss(leaf, y, EL, weight)
        weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


class _Scaled(Curve):
    """A curve that is neither frozen nor hashable."""

    name = "scaled"
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, factor: float) -> None:
        object.__setattr__(self, "factor", factor)

    def __eq__(self, other: object) -> bool:
        return True

    def value(self, gap: Tensor) -> Tensor:
        return self.factor * torch.nn.functional.softplus(-gap)

    def pull(self, gap: Tensor) -> Tensor:
        return self.factor * torch.sigmoid(-gap)


class _Tripled(type(curves.focal(2.0))):  # type: ignore[misc]
    """A curve of the catalogue with another formula."""

    def value(self, gap: Tensor) -> Tensor:
        return 3 * super().value(gap)

    def pull(self, gap: Tensor) -> Tensor:
        return 3 * super().pull(gap)


def test_curves_of_ones_own_are_not_taken_for_each_other() -> None:
    repeat.forget()
    z, y = draw(ROWS, seed=11)
    changing = _Scaled(1.0)
    for i, curve in enumerate((changing, changing, _Scaled(2.0), OWN, curves.focal(2.0), _Tripled(2.0), changing)):
        object.__setattr__(changing, "factor", 1.0 + i)
        leaf, other = (z.clone().requires_grad_() for _ in range(2))
        loss, expected = (curve_loss(x, y, curve, impl=impl) for x, impl in ((leaf, "triton"), (other, "reference")))
        loss.backward()
        expected.backward()
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-4, atol=1e-7)
    assert len(repeat._remembered) == 2


@pytest.mark.parametrize("classes", [5, 100], ids=["short rows", "long rows"])
def test_a_pull_of_one_number_is_the_same_for_all_rows(classes: int) -> None:
    z, y = draw(ROWS, classes, seed=12)
    flat = curves.custom(lambda gap: torch.full_like(gap, 3.0), lambda gap: torch.tensor(0.0), check=False)
    for _ in range(2):
        leaf = z.clone().requires_grad_()
        loss = curve_loss(leaf, y, flat, impl="triton")
        loss.backward()
        assert loss.item() == pytest.approx(3.0)
        assert (leaf.grad == 0).all()


def test_the_default_type_of_tensors_does_not_matter() -> None:
    z, y = draw(7, 5, seed=13)
    other = z.clone().requires_grad_()
    curve_loss(other, y, OWN, impl="reference").backward()
    for dtype, _ in itertools.product((torch.float32, torch.bfloat16, torch.float64), range(2)):
        leaf, before = z.clone().requires_grad_(), torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            curve_loss(leaf, y, OWN, impl="triton").backward()
        finally:
            torch.set_default_dtype(before)
        torch.testing.assert_close(leaf.grad, other.grad, rtol=1e-5, atol=1e-8)


def test_views_that_are_still_to_be_negated_are_not_read_as_they_lie() -> None:
    z, y = draw(ROWS, seed=14)
    negated = torch.complex(z, -z).conj().imag
    assert negated.is_neg()
    assert torch.equal(negated, z)
    weight = torch.complex(WEIGHT, -WEIGHT).conj().imag
    for _ in range(2):
        curve_loss(torch.complex(z, z).imag, y, EL, impl="triton")  # of the same shape and strides
        assert dispatch.choose("auto", negated, y, EL) == "reference"
        for logits, factor in ((negated, None), (z, weight)):
            with pytest.raises(ArgumentError, match="resolve_neg"):
                curve_loss(logits, y, EL, factor, impl="triton")
    assert repeat.elementwise_signature(negated, y, (EL, None), None, None, None, "mean", None) is None


def test_what_is_checked_is_checked_although_a_call_like_it_was_remembered() -> None:
    z, y = draw(ROWS, seed=15)
    for _ in range(2):
        with kernels():
            sigmoid_curve_loss(z, SOFT, EL)
            mirror_mse_loss(z, y)
            curve_loss(z, y, EL, match_norm=True, impl="triton")
            with pytest.raises(ValueError, match="alpha"):
                sigmoid_curve_loss(z, SOFT, EL, alpha=2.0)
            with pytest.raises(ValueError, match="reduction"):
                sigmoid_curve_loss(z, SOFT, EL, reduction="max")
            with pytest.raises(ValueError, match="target"):
                sigmoid_curve_loss(z, SOFT[:, 1:], EL)
            with pytest.raises(ValueError, match="divisor"):
                mirror_mse_loss(z, y, divisor=torch.ones(1))
            with pytest.raises(ValueError, match="link"):
                mirror_mse_loss(z, y, link="tanh")
            with pytest.raises(TypeError, match="curve"):
                curve_loss(z, y, "focal", match_norm=True, impl="triton")
            with pytest.raises(TypeError, match="input"):
                sigmoid_curve_loss(z.long(), y, EL)
            with pytest.raises(TypeError, match="target"):
                sigmoid_curve_loss(z, [0] * ROWS, EL)


def test_an_index_to_ignore_may_be_a_bool() -> None:
    z, y = draw(ROWS, seed=17)
    y[:2] = 1
    for index in (True, 1, True):
        torch.testing.assert_close(curve_loss(z, y, EL, ignore_index=index, impl="triton"),
                                   curve_loss(z, y, EL, ignore_index=1, impl="reference"))


def test_transforms_and_learned_factors_take_the_other_way() -> None:
    z, y = draw(ROWS, seed=16)
    sigmoid_curve_loss(z, y, EL, WEIGHT)
    with kernels():
        for _ in range(2):
            sigmoid_curve_loss(z, y, EL, WEIGHT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repeat, "is_on_gpu", lambda input: True)
        expected = sigmoid_curve_loss(z, y, EL, WEIGHT)
        slope = torch.func.grad(lambda x: sigmoid_curve_loss(x, y, EL, WEIGHT))(z)
        weight, leaf = WEIGHT.clone().requires_grad_(), z.clone().requires_grad_()
        loss = sigmoid_curve_loss(leaf, y, EL, weight)
        loss.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(leaf.grad, slope)
    assert weight.grad is not None
    assert bool((weight.grad != 0).any())


def test_a_soft_target_at_another_alignment_has_another_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of unaligned rows are those of the target too."""
    repeat.forget()
    made = []
    plan_for = soft_autograd.soft_plan_for
    monkeypatch.setattr(soft_autograd, "soft_plan_for", lambda *words: made.append(1) or plan_for(*words))
    z, _ = draw(ROWS, 37, seed=9)
    storage = torch.empty(SOFT.numel() + 8)
    for offset, plans in ((0, 1), (0, 1), (1, 2), (1, 2), (0, 2)):
        target = storage[offset:offset + SOFT.numel()].view_as(SOFT).copy_(SOFT)
        leaf = z.clone().requires_grad_()
        curve_loss(leaf, target, EL, impl="triton").backward()
        assert len(made) <= plans
    assert len(made) == 2


@pytest.mark.parametrize("classes", [5, 100], ids=["short rows", "long rows"])
def test_numbers_that_a_curve_makes_on_another_device_are_refused(classes: int) -> None:
    """Calls with another curve have prepared the launches, which take addresses and look at no device."""
    z, y = draw(ROWS, classes, seed=15)

    def elsewhere(gap: Tensor) -> Tensor:
        return torch.ones(gap.shape, device="meta")

    def refused() -> pytest.RaisesExc[CurveError]:
        return pytest.raises(CurveError, match="gaps on cpu it made numbers on meta: expected the gaps' device")

    for _ in range(2):
        curve_loss(z.clone().requires_grad_(), y, OWN, impl="triton").backward()
    with refused():
        curve_loss(z, y, curves.custom(elsewhere, torch.ones_like, check=False), impl="triton")
    loss = curve_loss(z.clone().requires_grad_(), y, curves.custom(torch.neg, elsewhere, check=False), impl="triton")
    with refused():
        loss.backward()
