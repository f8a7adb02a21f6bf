"""The kernels, in Triton's interpreter, against float64 and against torch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton")

from encouraging import curve_loss, curves, targets
from encouraging.curves import Curve
from encouraging.errors import ArgumentError, DerivativeError
from encouraging.ops import dispatch, reference
from encouraging.ops import triton as kernels
from encouraging.ops.triton import Tiling, hard_loss, loss_and_gradient_, operators, use_tiling
from kernel_cases import CLASSES, CURVES, MARKS, SIXTEEN, STREAMED, ULP, WHOLE, draw, gaps_of, ours, row_error, truth

pytestmark = MARKS


@pytest.mark.parametrize("tiling", [WHOLE, STREAMED], ids=["whole", "streamed"])
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


def test_an_upstream_gradient_other_than_one_and_a_graph_that_is_kept() -> None:
    z, y = draw(32, seed=8)
    leaf = z.clone().requires_grad_()
    with use_tiling(WHOLE):
        loss = hard_loss(leaf, y, curves.conservative(0.75))
    _, slope = truth(z, y, curves.conservative(0.75))
    handed_out = []
    for upstream in (1.0, 3.0, 0.0, -0.5, 1.0):
        gradient, = torch.autograd.grad(loss, leaf, torch.tensor(upstream), retain_graph=True)
        handed_out.append((upstream, gradient))
    last, = torch.autograd.grad(loss, leaf, torch.tensor(1024.0))
    handed_out.append((1024.0, last))
    for upstream, gradient in handed_out:  # none of them has changed since
        torch.testing.assert_close(gradient.double(), upstream * slope, rtol=1e-5, atol=1e-9)
    with use_tiling(WHOLE):
        _, gradient = ours(z, y, curves.conservative(0.75), torch.tensor(math.inf))
    assert gradient.isinf()[slope.float() != 0].all()


def test_the_gradient_made_ahead_is_handed_over_without_a_copy() -> None:
    z, y = draw(8, seed=9)
    for shape in (z, z.t().contiguous().t()):
        leaf = shape.detach().requires_grad_()
        with use_tiling(WHOLE):
            loss = hard_loss(leaf, y, curves.conservative(0.75))
        buffer = loss.grad_fn.saved_tensors[3]
        address = buffer.data_ptr()
        del buffer
        loss.backward()
        assert leaf.grad.data_ptr() == address


def test_batched_upstream_gradients() -> None:
    z, y = draw(16, seed=10)
    for reduction in ("mean", "none"):
        leaf = z.clone().requires_grad_()
        with use_tiling(WHOLE):
            loss = hard_loss(leaf, y, curves.conservative(0.75), reduction=reduction)
        above = torch.randn(3, *loss.shape)
        gradients, = torch.autograd.grad(loss, leaf, above, is_grads_batched=True)
        for upstream, gradient in zip(above, gradients, strict=True):
            _, slope = truth(z, y, curves.conservative(0.75), upstream, reduction=reduction)
            torch.testing.assert_close(gradient.double(), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_second_derivatives_are_the_references(reduction: str) -> None:
    z, y = draw(6, 5, seed=11)
    found = []
    for op, dtype in ((hard_loss, torch.float32), (reference.hard_loss, torch.float64)):
        leaf = z.detach().clone().to(dtype).requires_grad_()
        loss = op(leaf, y, curves.conservative(0.75), reduction=reduction, label_smoothing=0.1).square().sum()
        gradient, = torch.autograd.grad(loss, leaf, create_graph=True)
        (gradient.square().sum() + loss).backward()
        found.append(leaf.grad.double())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tiling", [Tiling(8, 16, 4), Tiling(1, 16, 4, streamed=True)], ids=["whole", "streamed"])
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
    for tiling in (SIXTEEN, STREAMED):
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


def test_ignored_rows_stay_zero_under_an_infinite_upstream_gradient() -> None:
    z, _ = draw(2, 5, seed=33)
    _, gradient = ours(z, torch.tensor([0, -100]), curves.normal(), torch.tensor(math.inf))
    assert (gradient[1] == 0).all()
    assert gradient[0].isinf().all()


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
    for smoothing, logits, tiling in ((0.0, z, SIXTEEN), (0.1, z.half(), SIXTEEN), (0.1, z, STREAMED)):
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
                                       (STREAMED, 0.0, "mean")):
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
    for tiling in (Tiling(rows=8, block=16, warps=4), Tiling(1, 16, 4, streamed=True, per_processor=1)):
        with use_tiling(tiling):
            loss, gradient = ours(z, y, curves.cross_entropy(), torch.ones(6), reduction="none")
            bonus = hard_loss(z, y, curves.normal(eps=0), reduction="none")
        torch.testing.assert_close(loss, expected.detach(), equal_nan=True)
        torch.testing.assert_close(gradient, leaf.grad, equal_nan=True, atol=1e-6, rtol=1e-5)
        assert bonus[1] == -inf


def test_without_gradient_none_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    z, y = draw(8, seed=18)
    launched = []
    original = kernels.autograd.loss_sum
    monkeypatch.setattr(kernels.autograd, "loss_sum", lambda *a, **k: (launched.append(k), original(*a, **k))[1])
    with use_tiling(WHOLE):
        hard_loss(z, y, curves.normal())
        with torch.no_grad():
            hard_loss(z.requires_grad_(), y, curves.normal())
    assert [call.get("grad") for call in launched] == [None, None]


def test_in_place_gradients_are_seen_by_autograd() -> None:
    z, y = draw(8, seed=19)
    weight = torch.eye(CLASSES).requires_grad_()
    _, slope = truth(z, y, curves.conservative(0.75))
    for view in (False, True):
        logits = z @ weight
        if view:
            logits = logits.view(8, CLASSES)
        with use_tiling(WHOLE):
            hard_loss(logits, y, curves.conservative(0.75), inplace=True).backward()
        assert row_error(logits.detach(), slope).max() <= 16 * ULP
        torch.testing.assert_close(weight.grad.double(), z.double().t() @ slope, rtol=1e-4, atol=1e-5)
        weight.grad = None

        logits = z @ weight
        before = logits.square().sum()
        passed = logits.view(8, CLASSES) if view else logits
        with use_tiling(WHOLE):
            loss = hard_loss(passed, y, curves.conservative(0.75), inplace=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            (loss + before).backward()

        logits = z @ weight
        passed = logits.view(8, CLASSES) if view else logits
        with use_tiling(WHOLE):
            loss = hard_loss(passed, y, curves.conservative(0.75), inplace=True)
        with pytest.raises(DerivativeError, match="overwritten"):
            (loss + logits.sum()).backward()


def test_in_place_is_refused_on_rows_that_overlap() -> None:
    windows = (torch.randn(20, requires_grad=True) * 1).unfold(0, 5, 2)[:4]
    with pytest.raises(ArgumentError, match="same memory"):
        hard_loss(windows, torch.arange(4), curves.normal(), inplace=True)
    with pytest.raises(ArgumentError, match="same memory"):
        loss_and_gradient_(windows.detach(), torch.arange(4), curves.normal())
    every_other = (torch.randn(4, 10, requires_grad=True) * 1)[:, ::2]
    hard_loss(every_other, torch.arange(4), curves.normal(), inplace=True).backward()


def test_in_place_is_refused_where_it_cannot_be() -> None:
    z, y = draw(4, seed=20)
    leaf = z.clone().requires_grad_()
    with pytest.raises(ArgumentError, match="leaf"):
        hard_loss(leaf, y, curves.normal(), inplace=True)
    with pytest.raises(ArgumentError, match="leaf"):
        hard_loss(leaf.view(4, -1), y, curves.normal(), inplace=True)
    with pytest.raises(ArgumentError, match="same memory"):
        loss_and_gradient_(z[:1].expand(4, -1), y, curves.normal())
    logits = leaf * 1
    with use_tiling(WHOLE):
        loss = hard_loss(logits, y, curves.normal(), inplace=True)
    with pytest.raises(DerivativeError, match="inplace=False"):
        torch.autograd.grad(loss, leaf, create_graph=True)


@pytest.mark.parametrize("tiling", [WHOLE, STREAMED], ids=["whole", "streamed"])
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


def test_operators_keep_their_promises() -> None:
    z, y = draw(5, 7, seed=22)
    smooth = (y, torch.rand(7), "conservative", [0.75], -100, 0.1)
    plain = (y, None, "normal", [1e-5], -100, 0.0)
    torch.library.opcheck(operators.curve_rows, (z.requires_grad_(), *smooth))
    strided = torch.randn(7, 5).t().requires_grad_()
    quick = ("test_schema", "test_faketensor")
    torch.library.opcheck(operators.curve_rows, (strided, *plain), test_utils=quick)
    state = operators.curve_rows(strided.detach(), *plain)[1]
    torch.library.opcheck(operators.curve_rows_gradient, (torch.randn(5), strided.detach(), y, None, state, *plain[2:]),
                          test_utils=quick)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compiles_as_one_graph(reduction: str) -> None:
    z, y = draw(6, 11, seed=23)
    weight = torch.rand(11)
    curve = curves.conservative(0.75)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(logits: Tensor) -> Tensor:
        loss = hard_loss(2 * logits, y, curve, weight=weight, reduction=reduction, label_smoothing=0.1)
        return (loss * loss).sum()

    leaf = z.clone().requires_grad_()
    step(leaf).backward()
    exact = z.double().requires_grad_()
    loss = reference.hard_loss(2 * exact, y, curve, weight=weight.double(), reduction=reduction, label_smoothing=0.1)
    (loss * loss).sum().backward()
    torch.testing.assert_close(leaf.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)


class TestDispatch:
    z, y = torch.randn(3, 4), torch.tensor([0, 1, 2])

    def test_the_cpu_takes_the_reference(self) -> None:
        assert dispatch.choose("auto", self.z, self.y, curves.normal()) == "reference"
        assert dispatch.choose("reference", self.z, self.y, curves.normal()) == "reference"

    def test_the_interpreter_takes_the_kernels_when_asked(self) -> None:
        assert dispatch.choose("triton", self.z, self.y, curves.normal()) == "triton"

    def test_a_wish_that_cannot_be_fulfilled_is_answered_in_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mine = curves.custom(lambda gap: -gap, torch.ones_like)
        cases = [
            (self.z.double(), self.y, curves.normal(), "float64"),
            (self.z, self.z.softmax(1).double(), curves.normal(), "probabilities"),
            (self.z, self.y, mine, "no kernel for custom"),
        ]
        for logits, target, curve, words in cases:
            with pytest.raises(ArgumentError, match=words):
                dispatch.choose("triton", logits, target, curve)
        with pytest.raises(ArgumentError, match="expected 'auto'"):
            dispatch.choose("cuda", self.z, self.y, curves.normal())
        monkeypatch.delenv("TRITON_INTERPRET")
        with pytest.raises(ArgumentError, match="TRITON_INTERPRET"):
            dispatch.choose("triton", self.z, self.y, curves.normal())
        monkeypatch.setattr(dispatch, "_HAS_TRITON", False)
        with pytest.raises(ArgumentError, match="not installed"):
            dispatch.choose("triton", self.z, self.y, curves.normal())

    def test_transforms_are_refused(self) -> None:
        def loss(logits: Tensor) -> Tensor:
            dispatch.choose("triton", logits, self.y, curves.normal())
            return logits.sum()

        with pytest.raises(ArgumentError, match=r"torch\.func"):
            torch.func.grad(loss)(self.z)
        with pytest.raises(ArgumentError, match="forward-mode"), torch.autograd.forward_ad.dual_level():
            loss(self.z)

    def test_every_curve_of_the_catalogue_has_its_kernel(self) -> None:
        for name in curves.names():
            curve = curves.by_name(name)
            assert dispatch.choose("triton", self.z, self.y, curve) == "triton"
            torch.testing.assert_close(hard_loss(self.z, self.y, curve), reference.hard_loss(self.z, self.y, curve))
