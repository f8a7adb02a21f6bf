"""The sigmoid link by its kernel, in Triton's interpreter: every curve, target and factor."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton")

from encouraging import curves, sigmoid_curve_loss
from encouraging.curves import Curve
from encouraging.ops import dispatch
from encouraging.ops.elementwise import sigmoid_losses
from encouraging.ops.reduction import reduce
from encouraging.ops.triton import sigmoid_autograd, sigmoid_loss
from encouraging.ops.triton.maths import EACH, ONE
from encouraging.ops.triton.upstream import one_or_each
from kernel_cases import CURVES, MARKS, ULP

pytestmark = MARKS
EL, FOCAL = curves.conservative(0.75), curves.focal(2.0)
SHAPE = (3, 5, 7)


def draw(shape: tuple[int, ...] = SHAPE, seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Logits with p from 1e-7 to 1 - 1e-7, and whether each class is present."""
    g = torch.Generator().manual_seed(seed)
    z = 16 * (2 * torch.rand(shape, generator=g, dtype=torch.float64) - 1)
    return z.to(dtype), torch.randint(2, shape, generator=g)


def truth(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None, *, reduction: str = "mean",
          divisor: object = None, negative_curve: Curve | None = None, weight: Tensor | None = None,
          pos_weight: Tensor | None = None, alpha: float | None = None, mse: bool = False) -> tuple[Tensor, Tensor]:
    z = logits.detach().double().requires_grad_()
    target = target.double() if target.is_floating_point() else target
    factors = [None if factor is None else factor.double() for factor in (weight, pos_weight)]
    losses = sigmoid_losses(z, target, curve, negative_curve or curve, *factors, alpha, mse)
    loss = reduce(losses, reduction, divisor)
    loss.backward(None if upstream is None else upstream.double())
    return loss.detach(), z.grad


def ours(logits: Tensor, target: Tensor, curve: Curve, upstream: Tensor | None = None,
         **arguments: object) -> tuple[Tensor, Tensor]:
    z = logits.detach().clone().requires_grad_()
    loss = sigmoid_loss(z, target, curve, **arguments)
    loss.backward(upstream)
    return loss.detach(), z.grad


def close(found: Tensor, expected: Tensor, ulps: float = 8, floor: float = 1e-12) -> None:
    """Within so many units of float32, relative to the number itself."""
    torch.testing.assert_close(found.double(), expected.double(), rtol=ulps * ULP, atol=floor)


@pytest.mark.parametrize("kind", ["int", "bool", "float", "probability"])
@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_every_curve_is_float64s_at_any_confidence(curve: Curve, kind: str) -> None:
    z, t = draw(seed=1)
    t = {"int": t, "bool": t.bool(), "float": t.float(), "probability": torch.rand(SHAPE)}[kind]
    upstream = torch.randn(SHAPE)
    loss, gradient = ours(z, t, curve, upstream, reduction="none")
    expected, slope = truth(z, t, curve, upstream, reduction="none")
    # A logit of 16 in float32 is wrong by 16 units in the last place of its probability; a sum of two parts may cancel.
    close(loss, expected, 64, 1e-6 if kind == "probability" else 2e-6)
    close(gradient, slope, 64, 1e-6 if kind == "probability" else 1e-12)
    total, gradient = ours(z, t, curve, reduction="sum")
    expected, slope = truth(z, t, curve, reduction="sum")
    assert total.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-4)
    close(gradient, slope, 64, 1e-6 if kind == "probability" else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_cross_entropy_is_at_most_as_wrong_as_torchs(dtype: torch.dtype) -> None:
    z, t = draw((200,), seed=2, dtype=dtype)
    leaf = z.clone().requires_grad_()
    theirs = F.binary_cross_entropy_with_logits(leaf, t.to(dtype), reduction="none")
    theirs.sum().backward()
    for target in (t, t.to(dtype)):
        loss, gradient = ours(z, target, curves.cross_entropy(), torch.ones(200), reduction="none")
        expected, slope = truth(z, target, curves.cross_entropy(), torch.ones(200), reduction="none")
        ulp = torch.finfo(dtype).eps
        assert (loss - expected).abs().max() <= (theirs.double() - expected).abs().max() + ulp
        assert (gradient - slope).abs().max() <= (leaf.grad.double() - slope).abs().max() + ulp * slope.abs().max()


def test_alpha_positives_weights_and_a_curve_for_negatives() -> None:
    z, t = draw(seed=3)
    for target in (t, torch.rand(SHAPE), t.float()):
        for factors in ({"weight": torch.rand(7)}, {"weight": torch.rand(5, 1), "pos_weight": 3 * torch.rand(7)},
                        {"pos_weight": torch.rand(3, 1, 1)}, {"weight": torch.rand(3, 1, 7)},
                        {"weight": torch.rand(())},
                        {"weight": torch.rand(SHAPE), "pos_weight": torch.rand(5, 7)}, {"pos_weight": torch.rand(1)}):
            for more in ({"alpha": 0.25}, {"negative_curve": curves.focal(4.0)},
                         {"alpha": 0.1, "negative_curve": EL}):
                for reduction, divisor in (("mean", None), ("mean", 7.0), ("mean", torch.tensor(3.0)), ("none", None)):
                    upstream = torch.randn(SHAPE) if reduction == "none" else torch.tensor(2.0)
                    arguments = {**factors, **more, "reduction": reduction, "divisor": divisor}
                    loss, gradient = ours(z, target, FOCAL, upstream, **arguments)
                    expected, slope = truth(z, target, FOCAL, upstream, **arguments)
                    close(loss, expected, 64, 2e-6)
                    close(gradient, slope, 64, 1e-6)


def test_class_indices_are_one_hot_targets_with_one_read_less() -> None:
    z, _ = draw(seed=4)
    labels = torch.randint(7, (3, 5))
    labels[0, 1], labels[2, 2] = -1, 7  # none of the classes: all are absent
    hot = labels[..., None] == torch.arange(7)
    for dtype in (torch.int64, torch.int32):
        loss, gradient = ours(z, labels.to(dtype), FOCAL, alpha=0.25, pos_weight=torch.rand(7) + 0.5)
        assert loss.isfinite()
        expected, slope = ours(z, hot, FOCAL, alpha=0.25, pos_weight=torch.ones(7))
        loss, gradient = ours(z, labels.to(dtype), FOCAL, alpha=0.25, pos_weight=torch.ones(7))
        assert torch.equal(loss, expected)
        assert torch.equal(gradient, slope)


@pytest.mark.parametrize("bonus", [False, True])
def test_squared_errors_of_probabilities(bonus: bool) -> None:
    z, t = draw(seed=5)
    for target in (t, torch.rand(SHAPE)):
        y = target.double()
        exact = z.double().requires_grad_()
        p = torch.sigmoid(exact)
        plain = (y - p) ** 2 - ((y * p) ** 2 + ((1 - y) * (1 - p)) ** 2 if bonus else 0)
        plain.sum().backward()
        loss, gradient = ours(z, target, curves.square(bonus=bonus), torch.ones(SHAPE), reduction="none", mse=True)
        close(loss, plain.detach(), 64, 1e-6)
        close(gradient, exact.grad, 64, 1e-6)


def test_infinite_logits() -> None:
    z = torch.tensor([math.inf, -math.inf, 300.0, -300.0])
    for curve in (curves.cross_entropy(), FOCAL):
        for target in (torch.tensor([1, 0, 1, 0]), torch.tensor([1.0, 0.0, 1.0, 0.0])):
            loss, gradient = ours(z, target, curve, torch.ones(4), reduction="none")
            assert (loss == 0).all()
            assert (gradient == 0).all()
    loss, gradient = ours(-z, torch.tensor([1, 0, 1, 0]), EL, torch.ones(4), reduction="none")
    assert loss.tolist() == [math.inf, math.inf, 300.0, 300.0]
    assert gradient.tolist() == [-1.0, 1.0, -1.0, 1.0]
    assert ours(torch.tensor([math.nan]), torch.tensor([1]), EL)[0].isnan()


@pytest.mark.parametrize("few", [0, 1 << 21])
def test_every_element_is_written_and_no_other(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than one block, large or small, an odd count, and storage that starts at an odd element."""
    monkeypatch.setattr(sigmoid_autograd, "few_elements", few)
    n = 2 * sigmoid_autograd._BLOCK + 13
    z, t = draw((n,), seed=6)
    for dtype in (torch.float32, torch.bfloat16):
        storage = torch.full((n + 4,), math.nan, dtype=dtype)
        view = storage[3:-1].copy_(z)
        leaf = view.detach().requires_grad_()
        sigmoid_loss(leaf, t, EL, reduction="sum").backward()
        _, slope = truth(view, t, EL, reduction="sum")
        torch.testing.assert_close(leaf.grad.double(), slope, rtol=1.01 * torch.finfo(dtype).eps + 64 * ULP, atol=1e-9)
        assert storage[[0, 1, 2, -1]].isnan().all()


def test_few_elements_have_small_blocks() -> None:
    assert sigmoid_autograd._block(torch.empty(1 << 21, device="meta")) == 1024
    assert sigmoid_autograd._block(torch.empty((1 << 21) + 1, device="meta")) == 2048


@pytest.mark.parametrize("classes", [5, 1500, 2500])
def test_class_indices_are_the_same_in_blocks_of_any_size(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(3 if classes > 5 else 900, classes)
    labels = torch.randint(classes, z.shape[:1])
    found = []
    for few in (0, 1 << 21):
        monkeypatch.setattr(sigmoid_autograd, "few_elements", few)
        found.append(ours(z, labels, FOCAL, reduction="sum"))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sixteen_bits_round_once(dtype: torch.dtype) -> None:
    z, t = draw(seed=7, dtype=dtype)
    upstream = torch.tensor(1024.0)
    loss, gradient = ours(z, t, EL, upstream)
    expected, slope = truth(z, t, EL, upstream)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert gradient.dtype == dtype
    spacing = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    torch.testing.assert_close(gradient.double(), slope, rtol=1.01 * torch.finfo(dtype).eps, atol=spacing)


def test_kept_graphs_batches_layouts_and_second_derivatives() -> None:
    z, t = draw(seed=8)
    _, slope = truth(z, t, EL)
    leaf = z.clone().requires_grad_()
    loss = sigmoid_loss(leaf, t, EL)
    for upstream in (1.0, 3.0, 0.0, -0.5):
        gradient, = torch.autograd.grad(loss, leaf, torch.tensor(upstream), retain_graph=True)
        close(gradient, upstream * slope, 64)
    above = torch.randn(3)
    batch, = torch.autograd.grad(loss, leaf, above, is_grads_batched=True)
    close(batch, above[:, None, None, None] * slope, 64)
    rows = sigmoid_loss(leaf, t, EL, reduction="none")
    above = torch.randn(2, *SHAPE)
    batch, = torch.autograd.grad(rows, leaf, above, is_grads_batched=True)
    close(batch, above * slope * z.numel(), 64)
    for logits in (z.transpose(0, 1).contiguous().transpose(0, 1), torch.stack([z, z], -1)[..., 0]):
        _, gradient = ours(logits, t, EL)
        close(gradient, slope, 64)
    found = []
    for dtype in (torch.float32, torch.float64):
        leaf = z.detach().to(dtype, copy=True).requires_grad_()
        loss = sigmoid_loss(leaf, t, FOCAL, divisor=torch.tensor(5.0)) if dtype == torch.float32 else (
            reduce(sigmoid_losses(leaf, t, FOCAL, FOCAL, None, None, None), "mean", 5.0))
        gradient, = torch.autograd.grad(loss, leaf, create_graph=True)
        gradient.square().sum().backward()
        found.append(leaf.grad.double())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-7)


def test_nothing_is_no_error() -> None:
    empty = torch.zeros(0, 3)
    assert ours(empty, empty.long(), EL)[0].isnan()
    assert ours(empty, empty, EL, reduction="sum")[0] == 0
    assert ours(empty, empty, EL, empty, reduction="none")[0].shape == (0, 3)
    assert ours(torch.tensor(1.5), torch.tensor(1), curves.normal(eps=0))[0].item() == -1.5


def test_the_losses_take_the_kernel_where_it_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    z, t = draw(seed=9)
    own = curves.custom(lambda gap: -gap, torch.ones_like)
    assert not dispatch.takes_elementwise(z, t, curves=(EL,))  # a CPU tensor
    monkeypatch.setattr(dispatch, "has_kernels", lambda tensor: True)

    class OnGpu(torch.Tensor):
        is_cuda = True

    there = z.as_subclass(OnGpu)
    assert dispatch.takes_elementwise(there, t, curves=(EL,))
    assert not dispatch.takes_elementwise(there, t, curves=(EL, own))
    assert not dispatch.takes_elementwise(there, t.double(), curves=(EL,))
    assert not dispatch.takes_elementwise(there, t.float().requires_grad_(), curves=(EL,))
    assert not dispatch.takes_elementwise(there, t, torch.rand(7).requires_grad_(), curves=(EL,))
    monkeypatch.setattr(dispatch, "takes_elementwise", lambda *a, **k: True)
    weight = torch.rand(7)
    for reduction in ("mean", "sum", "none"):
        found = sigmoid_curve_loss(z, t, FOCAL, weight, reduction, alpha=0.25)
        expected = reduce(sigmoid_losses(z, t, FOCAL, FOCAL, weight, None, 0.25), reduction)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_sum_of_the_losses_has_the_gradient_of_the_sum(dtype: torch.dtype) -> None:
    """Its upstream gradient is one number for all elements, and is read as one."""
    z, target = draw(seed=4, dtype=dtype)
    for factor in (1.0, 0.25):
        each, whole = z.clone().requires_grad_(), z.clone().requires_grad_()
        rows = sigmoid_loss(each, target, FOCAL, reduction="none", dtype=dtype)
        assert rows.dtype == dtype
        rows.backward(torch.tensor(factor, dtype=dtype).expand(SHAPE))
        sigmoid_loss(whole, target, FOCAL, reduction="sum").backward(torch.tensor(factor))
        torch.testing.assert_close(each.grad, whole.grad, rtol=torch.finfo(dtype).eps, atol=6e-8)


def test_float16_keeps_small_gradients_for_a_scaler() -> None:
    z, target = draw((64, 7), seed=6, dtype=torch.float16)
    leaf = z.clone().requires_grad_()
    loss = sigmoid_loss(leaf, target, FOCAL)
    several, = torch.autograd.grad(loss, leaf, torch.tensor([1.0, 4.0]), retain_graph=True, is_grads_batched=True)
    scaled, = torch.autograd.grad(loss, leaf, torch.tensor(2.0**14), retain_graph=True)
    expected, slope = truth(z, target, FOCAL, torch.tensor(2.0**14))
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(scaled.double(), slope, rtol=2.0**-10, atol=6e-8)
    torch.testing.assert_close(several[1], 4 * several[0], rtol=2.0**-9, atol=4 * 6e-8)
    once, = torch.autograd.grad(loss, leaf, create_graph=True)
    once.float().square().sum().backward()
    assert leaf.grad.isfinite().all()


def test_one_number_for_all_is_told_from_one_for_each() -> None:
    one, each = ONE.value, EACH.value
    assert one_or_each(torch.ones(()))[1] == one
    assert one_or_each(torch.ones(()).expand(3, 4))[1] == one
    assert one_or_each(torch.ones(1, 1).expand(1, 4))[1] == one
    assert one_or_each(torch.ones(3, 4))[1] == each
    rows, how = one_or_each(torch.rand(3, 1).expand(3, 4))
    assert how == each
    assert rows.is_contiguous()


@pytest.mark.parametrize("shape", [(7, 1000), (2100, 1), (900, 3), (3, 2048), (3, 2049), (2, 5000)], ids=str)
def test_class_indices_of_rows_that_begin_anywhere_in_a_block(shape: tuple[int, int]) -> None:
    """A block has 2048 elements: many rows, a few, or parts of two."""
    z, _ = draw(shape, seed=20)
    y = torch.randint(shape[1], shape[:1], generator=torch.Generator().manual_seed(21))
    y[-1] = shape[1]  # names no class: all are absent
    loss, gradient = ours(z, y, EL, reduction="sum", alpha=0.25)
    expected, slope = truth(z, y, EL, reduction="sum", alpha=0.25)
    close(loss, expected, 64)
    close(gradient, slope, 16)


def test_a_label_that_names_no_class_is_not_a_number_under_the_squared_error() -> None:
    z, _ = draw((4, 600), seed=22)
    for label in (-1, 600, 2**40):
        y = torch.tensor([5, label, 0, 599])
        _, gradient = ours(z, y, curves.square(bonus=True), reduction="sum", mse=True)
        assert gradient.isnan().all(1).tolist() == [False, True, False, False]
        assert not gradient[::2].isnan().any()
