"""The kernels, in Triton's interpreter, against float64 and against torch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from encouraging import curve_loss, curves, targets
from encouraging.curves import Curve
from encouraging.ops import reference
from encouraging.ops.triton import Tiling, hard_loss, loss_and_gradient_, use_tiling
from kernel_cases import (
    CLASSES,
    CURVES,
    MARKS,
    SIXTEEN,
    SPLIT,
    STREAMED,
    ULP,
    WHOLE,
    draw,
    gaps_of,
    ours,
    row_error,
    truth,
)

pytestmark = MARKS


@pytest.mark.parametrize("tiling", [WHOLE, STREAMED, SPLIT], ids=["whole", "streamed", "split"])
@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_every_curve_is_float64s_at_any_confidence(curve: Curve, tiling: Tiling) -> None:
    z, y = draw(64 if tiling is WHOLE else 3)
    upstream = torch.randn(len(y))
    with use_tiling(tiling):
        loss, gradient = ours(z, y, curve, upstream, reduction="none")
    expected, slope = truth(z, y, curve, upstream, reduction="none")
    size = gaps_of(z, y).abs().clamp(min=1)
    assert ((loss.double() - expected).abs() <= 6 * ULP * size).all()
    # 1 - p is only as good as the gap that float32 can hold, and focal loss takes its third power.
    assert (row_error(gradient, slope) <= 4 * ULP * size.clamp(min=4)).all()
    leaf = z.clone().requires_grad_()
    F.cross_entropy(leaf, y, reduction="none").backward(upstream)
    theirs = row_error(leaf.grad, truth(z, y, curves.cross_entropy(), upstream, reduction="none")[1])
    assert row_error(gradient, slope).max() <= 2 * theirs.max()
    with use_tiling(tiling):
        total, gradient = ours(z, y, curve, reduction="sum")
    expected, slope = truth(z, y, curve, reduction="sum")
    assert abs(total.item() - expected.item()) <= 6 * ULP * size.sum()
    assert (row_error(gradient, slope) <= 4 * ULP * size.clamp(min=4)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cross_entropy_is_at_most_as_wrong_as_torchs(dtype: torch.dtype) -> None:
    z, y = draw(128, dtype=dtype, seed=1)
    upstream = torch.rand(128).to(dtype) + 0.5
    leaf = z.clone().requires_grad_()
    theirs = F.cross_entropy(leaf, y, reduction="none")
    theirs.backward(upstream)
    expected, slope = truth(z, y, curves.cross_entropy(), upstream, reduction="none")
    with use_tiling(Tiling(rows=128, block=64, warps=4)):
        loss, gradient = ours(z, y, curves.cross_entropy(), upstream.float(), reduction="none")
    ulp = torch.finfo(dtype).eps
    assert (loss - expected).abs().max() <= (theirs.double() - expected).abs().max() + ulp
    assert (gradient - slope).abs().max() <= (leaf.grad.double() - slope).abs().max() + ulp * slope.abs().max()
    # Where torch's gradient dies (p near 1), ours is still good to the last digits of the type.
    assert row_error(gradient, slope).max() <= 16 * ulp
    certain = gaps_of(z, y) > 14
    assert certain.any()
    if dtype == torch.float32:
        assert row_error(leaf.grad, slope)[certain].max() > 16 * ulp


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [3, 19, 150, 700])
def test_images_are_read_as_they_lie(classes: int, smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    height, width = (5, 7) if classes < 100 else (3, 5)
    z, y = draw(2 * height * width, classes, seed=22)
    images = z.reshape(2, height, width, classes).permute(0, 3, 1, 2).contiguous()
    labels = y.reshape(2, height, width)
    labels[1, 2, 3] = -100
    expected, slope = truth(z, y, curves.conservative(0.75), reduction="sum", label_smoothing=smoothing)
    with monkeypatch.context() as patch:
        patch.setattr(targets, "_rows", lambda tensor: pytest.fail("the logits were rearranged"))
        for reduction in ("none", "sum"):
            leaf = images.clone().requires_grad_()
            loss = curve_loss(leaf, labels, curves.conservative(0.75), reduction=reduction, label_smoothing=smoothing,
                              impl="triton")
            assert loss.shape == (labels.shape if reduction == "none" else ())
            loss.sum().backward()
            assert loss.sum().item() == pytest.approx(expected.item(), rel=1e-5)
            assert row_error(leaf.grad.permute(0, 2, 3, 1).flatten(0, 2), slope).max() <= 64 * ULP


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bits_round_once(dtype: torch.dtype, smoothing: float) -> None:
    z, y = draw(16, dtype=dtype, seed=5, highest=0.99)
    with use_tiling(SIXTEEN):
        loss, gradient = ours(z, y, curves.conservative(0.75), torch.tensor(64.0), label_smoothing=smoothing)
    expected, slope = truth(z, y, curves.conservative(0.75), torch.tensor(64.0), label_smoothing=smoothing)
    assert loss.dtype == torch.float32
    assert gradient.dtype == dtype
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    # To nearest on a GPU; the interpreter cuts bfloat16 off.
    assert row_error(gradient, slope).max() <= (1.01 if dtype == torch.bfloat16 else 0.51) * torch.finfo(dtype).eps


def test_float16_waits_for_the_gradient_scaler() -> None:
    z, y = draw(64, dtype=torch.float16, seed=6, highest=0.5)
    scale = torch.tensor(65536.0)
    with use_tiling(WHOLE):
        _, gradient = ours(z, y, curves.normal(), scale)
    _, slope = truth(z, y, curves.normal(), scale)
    small = slope.abs() < scale * 2.0**-26  # would be 0 in float16 before it is scaled
    assert small.any()
    assert (gradient[small & (slope.abs() > 1e-6)] != 0).all()


def test_means_follow_torch_for_every_reduction() -> None:
    z, y = draw(64, seed=7)
    y[::5] = -100
    weight = torch.rand(CLASSES)
    for reduction in ("mean", "sum", "none"):
        expected = F.cross_entropy(z, y, weight, reduction=reduction, label_smoothing=0.3)
        with use_tiling(WHOLE):
            loss = hard_loss(z, y, curves.cross_entropy(), weight=weight, reduction=reduction, label_smoothing=0.3)
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("tiling", [Tiling(8, 16, 4), Tiling(1, 16, 4, streamed=True), SPLIT],
                         ids=["whole", "streamed", "split"])
def test_every_element_is_written_and_no_other(tiling: Tiling) -> None:
    """Odd sizes inside a larger buffer, poisoned around and inside."""
    rows, classes = 5, 19
    z, y = draw(rows, classes, seed=12)
    y[2] = -100
    with use_tiling(tiling if tiling.streamed else Tiling(rows=8, block=32, warps=4)):
        for dtype in (torch.float32, torch.bfloat16):
            large = torch.full((rows + 2, classes + 3), math.nan, dtype=dtype)
            view = large[1:-1, 1:-2]
            view.copy_(z)
            _, slope = truth(view, y, curves.normal(), reduction="sum")
            losses = loss_and_gradient_(view, y, curves.normal(), denominator=torch.tensor(4.0))
            assert losses[2] == 0
            assert losses.isfinite().all()
            assert row_error(view, slope / 4).max() <= 2 * torch.finfo(dtype).eps + 16 * ULP
            large[1:-1, 1:-2] = math.nan
            assert large.isnan().all()


def test_a_row_may_have_its_own_upstream_gradient_in_place() -> None:
    z, y = draw(4, seed=13)
    upstream = torch.randn(4)
    for tiling in (SIXTEEN, STREAMED, SPLIT):
        buffer = z.clone()
        with use_tiling(tiling):
            loss_and_gradient_(buffer, y, curves.poly(1.0), label_smoothing=0.1, upstream=upstream)
        _, slope = truth(z, y, curves.poly(1.0), upstream, reduction="none", label_smoothing=0.1)
        assert row_error(buffer, slope).max() <= 32 * ULP


def test_layouts_are_read_as_they_lie() -> None:
    z, y = draw(12, seed=14)
    expected, slope = truth(z, y, curves.conservative(0.75))
    layouts = [
        z.t().contiguous().t(),
        torch.stack([z, z], -1).flatten(1)[:, ::2],
        torch.cat([z, z], 1)[:, :CLASSES],
    ]
    for logits in layouts:
        assert not logits.is_contiguous()
        with use_tiling(WHOLE):
            loss, gradient = ours(logits, y, curves.conservative(0.75))
        assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
        assert row_error(gradient, slope).max() <= 16 * ULP
    image = z.reshape(3, 4, CLASSES).transpose(1, 2).contiguous()
    labels = y.reshape(3, 4)
    for reduction in ("mean", "none"):
        leaf = image.clone().requires_grad_()
        with use_tiling(WHOLE):
            loss = hard_loss(leaf, labels, curves.conservative(0.75), reduction=reduction)
        assert loss.shape == (labels.shape if reduction == "none" else ())
        loss.mean().backward()
        assert row_error(leaf.grad.transpose(1, 2).flatten(0, 1), slope).max() <= 16 * ULP


@pytest.mark.parametrize("shape", [(0, 5, 2, 3), (0, 5, 4), (2, 5, 0), (2, 5, 3, 0)])
def test_no_images_are_no_error(shape: tuple[int, ...]) -> None:
    target = torch.zeros(shape[:1] + shape[2:], dtype=torch.long)
    assert curve_loss(torch.zeros(shape), target, curves.normal(), reduction="sum", impl="triton") == 0


def test_odd_targets() -> None:
    z, y = draw(6, seed=15)
    expected = F.cross_entropy(z, y)
    with use_tiling(WHOLE):
        for labels in (y.int(), y.to(torch.uint8), torch.stack([y, y], 1)[:, 0]):
            assert hard_loss(z, labels, curves.cross_entropy()).item() == pytest.approx(expected.item(), rel=1e-6)


def test_nobody_to_teach() -> None:
    z, _ = draw(4, seed=16)
    ignored = torch.full((4,), -100)
    for smoothing, logits, tiling in ((0.0, z, SIXTEEN), (0.1, z.half(), SIXTEEN), (0.1, z, STREAMED),
                                      (0.0, z, SPLIT), (0.1, z, SPLIT)):
        with use_tiling(tiling):
            loss, gradient = ours(logits, ignored, curves.conservative(0.75), label_smoothing=smoothing)
            assert loss.isnan()
            assert (gradient == 0).all()
            loss, gradient = ours(logits, ignored, curves.conservative(0.75), reduction="sum",
                                  label_smoothing=smoothing)
            assert loss == 0
            assert (gradient == 0).all()
    empty, none = torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64)
    assert ours(empty, none, curves.normal())[0].isnan()
    assert ours(empty, none, curves.normal(), reduction="sum")[0] == 0
    assert ours(empty, none, curves.normal(), torch.zeros(0), reduction="none")[0].shape == (0,)


def test_a_single_class_has_nothing_to_learn() -> None:
    z, y = torch.randn(3, 1), torch.zeros(3, dtype=torch.int64)
    for smoothing in (0.0, 0.1):
        loss, gradient = ours(z, y, curves.cross_entropy(), label_smoothing=smoothing)
        assert loss == 0
        assert (gradient == 0).all()


def test_labels_that_name_no_class_poison_their_row_only() -> None:
    z, y = draw(4, seed=17)
    y[1], y[2] = CLASSES, -7
    for tiling, smoothing, reduction in ((SIXTEEN, 0.0, "none"), (SIXTEEN, 0.1, "sum"), (STREAMED, 0.1, "none"),
                                       (STREAMED, 0.0, "mean"), (SPLIT, 0.1, "none"), (SPLIT, 0.0, "mean")):
        with use_tiling(tiling):
            loss, gradient = ours(z, y, curves.conservative(0.75), torch.ones(4 if reduction == "none" else ()),
                                  reduction=reduction, label_smoothing=smoothing)
        assert loss.isnan().tolist() == ([False, True, True, False] if reduction == "none" else True)
        assert gradient.isnan().all(1).tolist() == [False, True, True, False]
        assert not gradient[[0, 3]].isnan().any()
    y[1] = 2**32 + 3  # not class 3
    with use_tiling(WHOLE):
        assert hard_loss(z, y, curves.normal(), reduction="none")[1].isnan()


def test_infinite_logits() -> None:
    inf = math.inf
    z = torch.tensor([
        [1.0, -inf, 0.5, -inf],   # masked classes
        [1.0, -inf, -inf, -inf],  # no rival is left
        [-inf, 1.0, 2.0, 0.0],    # the label is masked
        [inf, 0.0, 0.0, 0.0],
        [0.0, inf, 0.0, 0.0],
        [0.0, math.nan, 0.0, 0.0],
    ])
    y = torch.zeros(6, dtype=torch.int64)
    leaf = z.clone().requires_grad_()
    expected = F.cross_entropy(leaf, y, reduction="none")
    expected.sum().backward()
    padded = F.pad(z, (0, 5), value=-inf)  # a second segment, without any class that counts
    for tiling in (Tiling(rows=8, block=16, warps=4), Tiling(1, 16, 4, streamed=True, per_processor=1)):
        with use_tiling(tiling):
            loss, gradient = ours(z, y, curves.cross_entropy(), torch.ones(6), reduction="none")
            bonus = hard_loss(z, y, curves.normal(eps=0), reduction="none")
        torch.testing.assert_close(loss, expected.detach(), equal_nan=True)
        torch.testing.assert_close(gradient, leaf.grad, equal_nan=True, atol=1e-6, rtol=1e-5)
        assert bonus[1] == -inf
    with use_tiling(Tiling(1, 4, 1, streamed=True, segments=3)):
        loss, gradient = ours(padded, y, curves.cross_entropy(), torch.ones(6), reduction="none")
        bonus = hard_loss(padded, y, curves.normal(eps=0), reduction="none")
    torch.testing.assert_close(loss, expected.detach(), equal_nan=True)
    torch.testing.assert_close(gradient[:, :4], leaf.grad, equal_nan=True, atol=1e-6, rtol=1e-5)
    assert bonus[1] == -inf


@pytest.mark.parametrize("tiling", [WHOLE, STREAMED, SPLIT], ids=["whole", "streamed", "split"])
def test_by_products(tiling: Tiling) -> None:
    z, y = draw(4, seed=21)
    y[3] = -100
    with use_tiling(tiling):
        for smoothing in (0.0, 0.1):
            loss, stats = hard_loss(z, y, curves.conservative(0.75), stats=True, label_smoothing=smoothing)
            known = y != -100
            p = z.double().softmax(1).gather(1, y.clamp(min=0)[:, None])[:, 0]
            torch.testing.assert_close(stats.p[known].double(), p[known], rtol=1e-5, atol=0)
            assert stats.p[3].isnan()
            torch.testing.assert_close(stats.lse, z.logsumexp(1))
            assert (stats.argmax == z.argmax(1)).all()
            assert stats.past.item() == pytest.approx((p[known] > 0.75).double().mean().item())
            expected = reference.hard_loss(z, y, curves.conservative(0.75), label_smoothing=smoothing)
            torch.testing.assert_close(loss, expected)
        past = hard_loss(z, y, curves.normal(), stats=0.1)[1].past
        assert past.item() == pytest.approx((p[known] > 0.1).double().mean().item())


@pytest.mark.parametrize("tiling", [WHOLE, STREAMED, SPLIT, Tiling(1, 64, 4)],
                         ids=["whole", "streamed", "split", "one row"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_by_products_of_classes_without_rivals(tiling: Tiling, smoothing: float) -> None:
    """One class, or all others masked: it is certain."""
    inf = math.inf
    z = torch.full((4, CLASSES), -inf)
    z[0, 2], z[1, 2], z[2, 36] = 3.0, -70.0, 5.0
    y = torch.tensor([2, 0, 36, 1])  # certain, wrong, certain, and no class at all
    with use_tiling(tiling):
        stats = hard_loss(z, y, curves.conservative(0.75), stats=True, label_smoothing=smoothing)[1]
        alone = hard_loss(torch.tensor([[3.0]]), y[3:] * 0, curves.normal(), stats=True, label_smoothing=smoothing)[1]
    torch.testing.assert_close(stats.p, torch.tensor([1.0, 0.0, 1.0, math.nan]), equal_nan=True)
    torch.testing.assert_close(stats.lse, torch.tensor([3.0, -70.0, 5.0, -inf]))
    assert stats.argmax[:3].tolist() == [2, 2, 36]
    assert stats.past == 2 / 3
    assert (alone.p.item(), alone.lse.item(), alone.argmax.item(), alone.past.item()) == (1.0, 3.0, 0, 1.0)
