"""Label smoothing by the kernels, in Triton's interpreter: mistakes, ties, crowds, many classes."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from encouraging import curves
from encouraging.curves import Curve
from encouraging.ops import reference
from encouraging.ops.triton import Tiling, hard_loss, tiling_for, use_tiling
from kernel_cases import (
    CLASSES,
    CURVES,
    MARKS,
    READ_ALL,
    SIXTEEN,
    SPLIT,
    STREAMED,
    TAILS,
    ULP,
    draw,
    ours,
    row_error,
    truth,
    with_mistakes,
)

pytestmark = MARKS


@pytest.mark.parametrize("tiling", [SIXTEEN, READ_ALL, STREAMED, SPLIT],
                         ids=["whole", "whole, all read", "streamed", "split"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("curve", TAILS, ids=repr)
def test_smoothing_weights_and_ignored_rows(curve: Curve, weighted: bool, tiling: Tiling) -> None:
    z, y = draw(5 if tiling.streamed else 16, seed=2)
    z = with_mistakes(z, y)
    y[1] = -1
    z[1, 3] = math.nan  # must not matter
    weight = torch.rand(CLASSES) + 0.5 if weighted else None
    arguments = {"weight": weight, "label_smoothing": 0.1, "ignore_index": -1}
    clean = z.clone()
    clean[1] = 0.0
    with use_tiling(tiling):
        loss, gradient = ours(z, y, curve, **arguments)
    expected, slope = truth(clean, y, curve, **arguments)
    assert loss.item() == pytest.approx(expected.item(), rel=8 * ULP, abs=8 * ULP)
    assert (gradient[1] == 0).all()
    assert row_error(gradient, slope).max() <= 24 * ULP
    with use_tiling(tiling):
        _, gradient = ours(z, y, curve, torch.ones(len(y)), **arguments, reduction="none")
    assert (gradient[1] == 0).all()
    assert not gradient.isnan().any()


@pytest.mark.parametrize("curve", [c for c in CURVES if c not in TAILS], ids=repr)
def test_smoothing_of_the_other_curves_with_any_upstream_gradient(curve: Curve) -> None:
    z, y = draw(16, seed=3)
    z = with_mistakes(z, y)
    y[5] = -100
    upstream = torch.randn(16)
    with use_tiling(SIXTEEN):
        loss, gradient = ours(z, y, curve, upstream, reduction="none", label_smoothing=0.2)
    expected, slope = truth(z, y, curve, upstream, reduction="none", label_smoothing=0.2)
    size = 40.0  # the largest gap of any class
    assert ((loss.double() - expected).abs() <= 4 * ULP * size).all()
    assert loss[5] == 0
    # Some gradients are small differences of large terms: the plain code in float32 is the measure there.
    leaf = z.clone().requires_grad_()
    reference.hard_loss(leaf, y, curve, reduction="none", label_smoothing=0.2).backward(upstream)
    assert (row_error(gradient, slope) <= (4 * row_error(leaf.grad, slope)).clamp(min=48 * ULP)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("classes", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("curve", [curves.normal(eps=0), curves.aggressive(eps=0)], ids=repr)
def test_curves_without_a_bound_have_rows_of_a_few_classes(curve: Curve, classes: int, dtype: torch.dtype) -> None:
    """Their rows are read in blocks, which were shorter than the vectors that they are made of."""
    z, y = draw(6, classes, dtype=dtype, seed=5, lowest=0.05, highest=0.95)
    y[2] = -100
    upstream = torch.randn(6)
    rounding = 64 * torch.finfo(dtype).eps if dtype == torch.float32 else 1.01 * torch.finfo(dtype).eps
    for weight in (None, torch.rand(classes) + 0.5):
        arguments = {"weight": weight, "label_smoothing": 0.1, "reduction": "none"}
        loss, gradient = ours(z, y, curve, upstream, **arguments)
        expected, slope = truth(z, y, curve, upstream, **arguments)
        torch.testing.assert_close(loss.double(), expected, rtol=16 * ULP, atol=16 * ULP, equal_nan=True)
        torch.testing.assert_close(gradient.double(), slope, rtol=rounding, atol=rounding)


@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("curve", TAILS[:2], ids=repr)
def test_smoothing_over_many_classes_takes_a_shortcut_that_is_exact(curve: Curve, dtype: torch.dtype,
                                                                    segments: int) -> None:
    z, y = draw(3, 16385, dtype=dtype, seed=4, lowest=0.01, highest=0.9)
    z[1, 7] = z[1].max() + 8  # a confident mistake
    z[2, 11] = z[2].float().logsumexp(0) - 0.5  # a rival with much of the mass, but not half of it
    with use_tiling(Tiling(rows=1, block=4096, warps=8, streamed=True, per_processor=1, segments=segments)):
        loss, gradient = ours(z, y, curve, label_smoothing=0.1, reduction="sum")
    expected, slope = truth(z, y, curve, label_smoothing=0.1, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=16 * ULP)
    assert row_error(gradient, slope).max() <= (64 * ULP if dtype == torch.float32 else 1.01 * 2.0**-7)


@pytest.mark.parametrize("inplace", [False, True], ids=["apart", "in place"])
@pytest.mark.parametrize("classes", [40, 1000, 2050])
@pytest.mark.parametrize("curve", [curves.cross_entropy(), curves.conservative(0.75), curves.normal()], ids=repr)
def test_smoothing_by_powers_leaves_crowded_rows_to_exact_sums(curve: Curve, classes: int, inplace: bool) -> None:
    """A row with a program of its own sums powers of p; rivals with much of the mass, and mistakes, are read again."""
    z, y = draw(8, classes, seed=11, lowest=0.01, highest=0.999)
    z[1, 7] = z[1].max() + 8  # a confident mistake
    z[2, 11] = z[2].logsumexp(0) - 0.5  # a rival with much of the mass, but not half of it
    z[3, [3, 5, 9]] = z[3].max() + 2  # three that share it
    y[4] = -100
    z[4, 2] = math.nan
    z[5] = 0.0  # all alike
    upstream = torch.tensor(3.0)
    clean = z.clone()
    clean[4] = 0.0
    expected, slope = truth(clean, y, curve, upstream, label_smoothing=0.1, reduction="mean")
    block = 1 << (classes - 1).bit_length()
    with use_tiling(Tiling(rows=1, block=block, warps=4)):
        leaf = z.clone().requires_grad_()
        loss = hard_loss(leaf * 1.0, y, curve, label_smoothing=0.1, inplace=inplace)
        loss.backward(upstream)
    assert loss.item() == pytest.approx(expected.item(), rel=8 * ULP)
    assert (leaf.grad[4] == 0).all()
    # Where p is near 1 - smoothing the gradient is a small difference: the plain code in float32 is the measure there.
    plain = clean.requires_grad_()
    reference.hard_loss(plain, y, curve, label_smoothing=0.1).backward(upstream)
    error, usual = (row_error(found, slope)[y >= 0] for found in (leaf.grad, plain.grad))
    assert (error <= (4 * usual).clamp(min=48 * ULP)).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [2, 3, 10, 16, 17, 100, 101, 512, 1000])
def test_every_cut_is_right_in_every_row(classes: int, smoothing: float) -> None:
    """The cuts that are in use, with mistakes at any certainty, and several classes on top."""
    rows = 41 if classes < 64 else 13
    torch.manual_seed(classes)
    z, y = draw(rows, classes, seed=21)
    z = with_mistakes(z, y)
    rivals = z.scatter(1, y[:, None], -math.inf)
    z[1::4] = torch.where(rivals == rivals.kthvalue(max(1, classes - 1), 1, keepdim=True)[0], rivals.amax(1)[:, None],
                          z)[1::4]
    y[9] = -100
    weight = torch.rand(classes) + 0.5
    for curve in (curves.conservative(0.75), curves.focal(2.0), curves.cross_entropy()):
        for w in (None, weight):
            arguments = {"weight": w, "label_smoothing": smoothing}
            upstream = torch.randn(rows)
            loss, later = ours(z, y, curve, upstream, reduction="none", **arguments)
            _, ahead = ours(z, y, curve, reduction="sum", **arguments)
            expected, slope = truth(z, y, curve, upstream, reduction="none", **arguments)
            _, slope_of_sum = truth(z, y, curve, reduction="sum", **arguments)
            plain = z.clone().requires_grad_()
            reference.hard_loss(plain, y, curve, reduction="none", **arguments).backward(upstream)
            usual = (4 * row_error(plain.grad, slope)).clamp(min=48 * ULP)
            assert ((loss.double() - expected).abs() <= 4 * ULP * 40).all()
            assert (row_error(later, slope) <= usual).all()
            # Where a gradient is a small difference the plain code is the measure, under the same upstream gradient.
            summed = z.clone().requires_grad_()
            reference.hard_loss(summed, y, curve, reduction="sum", **arguments).backward()
            usual = (4 * row_error(summed.grad, slope_of_sum)).clamp(min=48 * ULP)
            assert (row_error(ahead, slope_of_sum) <= usual).all()


@pytest.mark.parametrize("planes", [False, True], ids=["rows", "planes"])
@pytest.mark.parametrize("classes", [21, 50, 100])
def test_every_cut_with_weights_is_right_in_every_row(classes: int, planes: bool) -> None:
    z, y = draw(70, classes, seed=classes)
    z = with_mistakes(z, y)
    y[3] = -100
    arguments = {"weight": torch.rand(classes) + 0.5, "label_smoothing": 0.1}
    expected, slope = truth(z, y, curves.conservative(0.75), **arguments)
    if planes:
        z, y = z.reshape(2, 35, classes).transpose(1, 2).contiguous(), y.reshape(2, 35)
    loss, gradient = ours(z, y, curves.conservative(0.75), **arguments)
    if planes:
        gradient = gradient.transpose(1, 2).reshape(70, classes)
    assert loss.item() == pytest.approx(expected.item(), rel=8 * ULP)
    assert row_error(gradient, slope).max() <= 24 * ULP


def test_smoothing_with_weights_leaves_few_elements_of_a_row_to_a_thread() -> None:
    """The compiler gave threads with a whole row of 32 elements, or 64 of a longer one, 255 registers and spilled
    hundreds."""
    for classes in range(17, 65):
        tiling = tiling_for(classes, smooth=True, weighted=True)
        assert tiling.rows * tiling.block == 8 * 32 * tiling.warps
    for classes in (4097, 5000, 8192):
        assert tiling_for(classes, smooth=True, weighted=True).block == 16 * 32 * 16
        assert tiling_for(classes, smooth=True, weighted=True).warps == 16
    for classes in range(17, 257):
        tiling = tiling_for(classes, smooth=True, planes=True, weighted=True)
        assert tiling.rows * tiling.block == 16 * 32 * tiling.warps
        assert tiling_for(classes, smooth=False, planes=True, weighted=True).warps == max(1, tiling.block // 64)


@pytest.mark.parametrize("curve", [curves.normal(eps=0), curves.aggressive(0.5, eps=0)], ids=repr)
def test_a_pull_without_end_is_right_beyond_the_smallest_number(curve: Curve) -> None:
    """A mistake by 200: 1 - p is 0 in float32, and the second class still has its share of the pull."""
    z = torch.tensor([[0.0, 200.0, -30.0, 20.0], [0.0, 120.0, 119.0, -3.0]])
    y = torch.tensor([0, 0])
    loss, gradient = ours(z, y, curve, label_smoothing=0.1, reduction="sum")
    expected, slope = truth(z, y, curve, label_smoothing=0.1, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), rel=4 * ULP)
    assert row_error(gradient, slope).max() <= 16 * ULP


@pytest.mark.parametrize("classes", [3, 40, 1000])
@pytest.mark.parametrize("curve", TAILS, ids=repr)
def test_what_all_logits_have_in_common_costs_no_digits(curve: Curve, classes: int) -> None:
    z, y = draw(5, classes, seed=31)
    z = (z * 64).round() / 64
    near, _ = ours(z, y, curve, torch.ones(5), label_smoothing=0.1, reduction="none")
    far, _ = ours(z + 8192, y, curve, torch.ones(5), label_smoothing=0.1, reduction="none")
    torch.testing.assert_close(far, near, rtol=4 * ULP, atol=8 * ULP)


def test_what_all_logits_have_in_common_costs_no_digits_in_two_passes() -> None:
    z, y = draw(2, 16385, seed=32)
    z = (z * 64).round() / 64
    near, far = (ours(shifted, y, curves.conservative(0.75), label_smoothing=0.1)[0] for shifted in (z, z + 8192))
    assert far.item() == pytest.approx(near.item(), rel=8 * ULP)


@pytest.mark.parametrize("tiling", [SIXTEEN, STREAMED, Tiling(1, 4, 1, streamed=True, segments=2)],
                         ids=["whole", "streamed", "split"])
@pytest.mark.parametrize("curve", TAILS, ids=repr)
def test_a_class_of_no_weight_adds_nothing_also_at_minus_infinity(curve: Curve, tiling: Tiling) -> None:
    z = torch.tensor([[1.0, -math.inf, 0.0, 2.0, 0.5]])
    y, weight = torch.tensor([0]), torch.tensor([1.0, 0.0, 1.0, 0.5, 2.0])
    with use_tiling(tiling):
        loss, gradient = ours(z, y, curve, label_smoothing=0.1, weight=weight)
    expected, slope = truth(z, y, curve, label_smoothing=0.1, weight=weight)
    assert loss.item() == pytest.approx(expected.item(), rel=4 * ULP)
    assert row_error(gradient, slope).max() <= 8 * ULP


def test_a_rival_too_small_for_a_number_has_its_gradient_later_too() -> None:
    z, y = torch.tensor([[150.0, 0.0, -1.0]]), torch.tensor([0])
    for reduction in ("sum", "none"):
        upstream = torch.ones(1) if reduction == "none" else None
        _, gradient = ours(z, y, curves.power(0.01, 10.0), upstream, label_smoothing=0.1, reduction=reduction)
        _, slope = truth(z, y, curves.power(0.01, 10.0), upstream, label_smoothing=0.1, reduction=reduction)
        assert row_error(gradient, slope).max() <= 8 * ULP


def test_nearly_all_of_a_label_may_be_smoothed_away() -> None:
    z, y = torch.zeros(3, 2), torch.tensor([0, 1, 1])
    _, gradient = ours(z, y, curves.cross_entropy(), label_smoothing=0.9999)
    _, slope = truth(z, y, curves.cross_entropy(), label_smoothing=0.9999)
    leaf = z.clone().requires_grad_()
    F.cross_entropy(leaf, y, label_smoothing=0.9999).backward()
    assert row_error(gradient, slope).max() <= 1.5 * row_error(leaf.grad, slope).max()


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("curve", [curves.cross_entropy(), curves.conservative(0.75), curves.normal()], ids=repr)
def test_rows_of_their_own_that_teach_nothing_are_filled(curve: Curve, skip: bool) -> None:
    """With 0 where they are ignored, also where no row is left; with NaN where the label names no class."""
    z, y = draw(3, 1000, seed=23)
    z[0, 3] = math.nan  # must not matter
    y[0] = -100
    with use_tiling(Tiling(rows=1, block=1024, warps=4, skip=skip)):
        loss, gradient = ours(z[:1], y[:1], curve, label_smoothing=0.1)
        assert loss.isnan()
        assert (gradient == 0).all()
        y[1] = 1000
        _, gradient = ours(z, y, curve, label_smoothing=0.1, reduction="sum")
    assert (gradient[0] == 0).all()
    assert gradient[1].isnan().all()
    assert not gradient[2].isnan().any()


@pytest.mark.parametrize("curve", [curves.conservative(0.75), curves.normal()], ids=repr)
def test_any_number_of_classes_may_share_the_top(curve: Curve) -> None:
    """Of 8192: all of them, half of them, all but one, one with all others as near as float32 allows."""
    z = torch.zeros(4, 8192)
    z[1, ::2] = -1e-3
    z[2, 77] = -5.0
    z[3] = 1.0 - 2.0**-24
    z[3, 5] = 1.0
    y = torch.tensor([0, 1, 77, 9])
    with use_tiling(Tiling(rows=1, block=8192, warps=4)):
        loss, gradient = ours(z, y, curve, label_smoothing=0.1)
    expected, slope = truth(z, y, curve, label_smoothing=0.1)
    assert loss.item() == pytest.approx(expected.item(), rel=8 * ULP)
    assert row_error(gradient, slope).max() <= 64 * ULP


@pytest.mark.parametrize("curve", TAILS, ids=repr)
def test_sums_taken_together_as_on_a_gpu_are_the_same(curve: Curve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where several warps have a row, a GPU takes its sums together, which the interpreter does only when told."""
    from encouraging.ops.triton import launch

    z, y = draw(3, 1100, seed=21)
    y[1] = -100
    alone = ours(z + 50, y, curve, label_smoothing=0.1)
    told = []

    def prepared(*given: object, **constants: object) -> object:
        if "TOGETHER" in constants:
            constants["TOGETHER"] = True
            told.append(constants["num_warps"])
        return real(*given, **constants)

    real = launch.Prepared
    monkeypatch.setattr(launch, "Prepared", prepared)
    for kept in ("_sums", "_losses"):
        monkeypatch.setattr(launch, kept, type(launch._sums)())
    together = ours(z + 50, y, curve, label_smoothing=0.1)
    assert told
    assert min(told) > 1
    for one, two in zip(alone, together, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("tiling", [SIXTEEN, STREAMED, SPLIT], ids=["whole", "streamed", "split"])
@pytest.mark.parametrize("curve", [*TAILS, curves.normal(eps=0), curves.aggressive(eps=0)], ids=repr)
def test_a_class_of_no_weight_adds_nothing_to_an_infinite_loss(curve: Curve, tiling: Tiling) -> None:
    """The label's own part is 0 times infinity where smoothing is 1 or its weight is 0."""
    z = torch.zeros(3, CLASSES)
    z[0, 1] = -math.inf
    z[1] = z[0]
    z[1, 5] = 3.0  # a mistake with p > 1/2
    z[2] = -math.inf
    z[2, 1] = 0.0
    y = torch.tensor([1, 1, 1])
    no_label, no_rival = torch.ones(CLASSES), torch.zeros(CLASSES)
    no_label[1], no_rival[1] = 0.0, 1.0
    for rows, weight, smoothing in ((2, None, 1.0), (2, no_label, 0.1), (2, no_label, 1.0), (3, no_rival, 0.5)):
        arguments = {"weight": weight, "label_smoothing": smoothing, "reduction": "none"}
        with use_tiling(tiling):
            loss = hard_loss(z[:rows], y[:rows], curve, **arguments)
        expected = reference.hard_loss(z[:rows], y[:rows], curve, **arguments)
        assert not expected.isnan().any()
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
