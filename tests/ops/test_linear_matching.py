"""Norm matching through the output layer in chunks: the factor of the whole batch, on two small gradients."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from encouraging import LinearCurveLoss, curve_loss, curves
from encouraging.curves import Curve
from encouraging.ops.linear import linear_curve_loss

ROWS, WIDTH, CLASSES = 23, 6, 11
NORMAL, EL = curves.normal(eps=0), curves.conservative(0.75)


def draw(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[list[Tensor], Tensor]:
    """A layer with labels from hopeless to certain."""
    g = torch.Generator().manual_seed(seed)
    weight = torch.randn(CLASSES, WIDTH, generator=g, dtype=torch.float64)
    target = torch.randint(CLASSES, (ROWS,), generator=g)
    push = torch.linspace(-3, 6, ROWS, dtype=torch.float64)[:, None]
    hidden = torch.randn(ROWS, WIDTH, generator=g, dtype=torch.float64) + push * F.normalize(weight[target])
    bias = torch.randn(CLASSES, generator=g, dtype=torch.float64)
    return [tensor.to(dtype).requires_grad_() for tensor in (hidden, weight, bias)], target


def both(curve: Curve, target: Tensor, leaves: list[Tensor], impl: str, *, reduction: str = "mean",
         class_weight: Tensor | None = None, **arguments: object) -> list[tuple[Tensor, ...]]:
    """Loss and gradients in chunks of five rows, and of the plain layer followed by the loss."""
    hidden, weight, bias = leaves
    found = []
    chunks = 5 * CLASSES * hidden.element_size()
    for loss in (linear_curve_loss(hidden, weight, target, curve, bias, class_weight, reduction=reduction,
                                   match_norm=True, chunk_bytes=chunks, impl=impl, **arguments),
                 curve_loss(F.linear(hidden, weight, bias).double(), target, curve,
                            None if class_weight is None else class_weight.double(), reduction=reduction,
                            match_norm=True, **arguments)):
        upstream = torch.linspace(0.5, 2, loss.numel(), dtype=loss.dtype).reshape(loss.shape)
        found.append((loss.detach(), *torch.autograd.grad(loss, leaves, upstream, retain_graph=True),
                      *torch.autograd.grad(loss, leaves, upstream)))
    return found


@pytest.mark.parametrize("kind", ["labels", "smoothed", "soft", "weighted", "ignored", "own curve"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_value_and_gradients_are_those_of_the_layer_followed_by_the_loss(reduction: str, kind: str) -> None:
    leaves, target = draw()
    arguments: dict[str, object] = {}
    own = curves.custom(lambda gap: -2 * gap, lambda gap: torch.full_like(gap, 2.0))
    curve = own if kind == "own curve" else NORMAL
    if kind == "smoothed":
        curve, arguments = EL, {"label_smoothing": 0.1}
    if kind == "soft":
        curve, target = EL, torch.randn(ROWS, CLASSES, dtype=torch.float64).softmax(1)
    if kind == "weighted":
        arguments = {"class_weight": torch.rand(CLASSES, dtype=torch.float64) + 0.5}
    if kind == "ignored":
        target[::3] = 4
        arguments = {"ignore_index": 4}
    ours, theirs = both(curve, target, leaves, "auto", reduction=reduction, **arguments)
    for mine, plain in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="runs in Triton's interpreter")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["labels", "smoothed", "weighted"])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_the_kernels_find_the_same_factor(reduction: str, kind: str) -> None:
    pytest.importorskip("triton")
    leaves, target = draw(torch.float32)
    arguments: dict[str, object] = {"ignore_index": 2}
    if kind == "smoothed":
        arguments["label_smoothing"] = 0.1
    if kind == "weighted":
        arguments["class_weight"] = torch.rand(CLASSES) + 0.5
    ours, theirs = both(EL if kind == "smoothed" else NORMAL, target, leaves, "triton", reduction=reduction,
                        **arguments)
    for mine, plain in zip(ours, theirs, strict=True):
        scale = plain.abs().max().item()
        torch.testing.assert_close(mine.double(), plain.double(), rtol=1e-5, atol=1e-5 * scale)
    with torch.no_grad():
        hidden, weight, bias = leaves
        alone = linear_curve_loss(hidden, weight, target, NORMAL, bias, match_norm=True, impl="triton")
        plain = curve_loss(F.linear(hidden, weight, bias), target, NORMAL, match_norm=True)
    torch.testing.assert_close(alone, plain, rtol=1e-5, atol=1e-6)


def test_an_empty_batch_and_one_without_labels() -> None:
    (hidden, weight, bias), target = draw()
    for impl in ("reference", "auto"):
        nothing = linear_curve_loss(hidden[:0], weight, target[:0], NORMAL, bias, match_norm=True, reduction="sum",
                                    impl=impl)
        assert nothing == 0
        ignored = linear_curve_loss(hidden, weight, torch.full_like(target, -100), NORMAL, bias, match_norm=True,
                                    impl=impl)
        assert ignored.isnan()
        assert all((gradient == 0).all() for gradient in torch.autograd.grad(ignored, [hidden, weight, bias]))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while tracing
def test_the_module_passes_it_on_and_compiled_code_means_the_same() -> None:
    layer = LinearCurveLoss(WIDTH, CLASSES, NORMAL, match_norm=True, dtype=torch.float64)
    (hidden, _, _), target = draw()
    loss = layer(hidden, target)
    expected = curve_loss(F.linear(hidden, layer.weight), target, NORMAL, match_norm=True)
    torch.testing.assert_close(loss, expected)
    compiled = torch.compile(lambda h: layer(h, target), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(hidden), expected)
    found, = torch.autograd.grad(compiled(hidden), layer.weight)
    torch.testing.assert_close(found, torch.autograd.grad(expected, layer.weight)[0])
