"""A loss that is changed in place (``loss /= steps``), as torch's own may be: no error, and the right gradient."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional as F

from encouraging import (
    CurveLoss,
    EncouragingLoss,
    FocalLoss,
    HaltedFocalLoss,
    LDAMLoss,
    LinearCurveLoss,
    MirrorMSELoss,
    PolyLoss,
    SigmoidCurveLoss,
    curve_loss,
    curve_loss_and_gradient_,
    curve_loss_with_stats,
    curves,
    encouraging_loss,
    focal_loss,
    halted_focal_loss,
    linear_curve_loss,
    mirror_mse_loss,
    poly_loss,
    sigmoid_curve_loss,
)
from encouraging.curves import Curve

ROWS, CLASSES = 8, 10
REDUCTIONS = ("none", "mean", "sum")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
LINE, FOCAL = curves.conservative(0.5), curves.focal(2.0)
LABELS = torch.arange(ROWS) % CLASSES
SOFT = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(1)).softmax(1)

Loss = Callable[[Tensor, str], Tensor]


class Subclass(Tensor):
    """As fastai's: nothing but a name."""


@dataclasses.dataclass(frozen=True, repr=False)
class OwnCurve(Curve):
    """A curve whose value is a view of the gap."""

    name: ClassVar[str] = "own"

    def value(self, gap: Tensor) -> Tensor:
        return gap.view_as(gap)

    def pull(self, gap: Tensor) -> Tensor:
        return -torch.ones_like(gap)


def _layer(logits: Tensor) -> Tensor:
    return torch.linspace(-1, 1, CLASSES**2, dtype=logits.dtype).reshape(CLASSES, CLASSES)


def _output_layer(logits: Tensor, reduction: str) -> LinearCurveLoss:
    torch.manual_seed(0)
    return LinearCurveLoss(CLASSES, CLASSES, LINE, reduction=reduction, dtype=logits.dtype)


def _image(logits: Tensor) -> Tensor:
    return logits.reshape(2, CLASSES, 2, 2)


LOSSES: dict[str, Loss] = {
    "labels": lambda z, r: encouraging_loss(z, LABELS, log_end=0.5, reduction=r),
    "weighted": lambda z, r: curve_loss(z, LABELS, LINE, torch.ones(CLASSES, dtype=z.dtype), reduction=r),
    "some ignored": lambda z, r: curve_loss(z, LABELS, LINE, ignore_index=3, reduction=r),
    "one example": lambda z, r: curve_loss(z[0], LABELS[0], LINE, reduction=r),
    "image": lambda z, r: curve_loss(_image(z), LABELS.reshape(2, 2, 2), LINE, reduction=r),
    "smoothed image": lambda z, r: curve_loss(_image(z), LABELS.reshape(2, 2, 2), LINE, reduction=r,
                                              label_smoothing=0.1),
    "smoothed": lambda z, r: curve_loss(z, LABELS, LINE, reduction=r, label_smoothing=0.1),
    "smoothed, no closed form": lambda z, r: curve_loss(z, LABELS, FOCAL, reduction=r, label_smoothing=0.1),
    "soft": lambda z, r: curve_loss(z, SOFT.to(z.dtype), LINE, reduction=r),
    "soft, no closed form": lambda z, r: curve_loss(z, SOFT.to(z.dtype), FOCAL, reduction=r),
    "matched norms": lambda z, r: curve_loss(z, LABELS, LINE, reduction=r, match_norm=True),
    "own curve": lambda z, r: curve_loss(z, LABELS, OwnCurve(), reduction=r),
    "by-products": lambda z, r: curve_loss_with_stats(z, LABELS, LINE, reduction=r)[0],
    "focal_loss": lambda z, r: focal_loss(z, LABELS, reduction=r),
    "halted_focal_loss": lambda z, r: halted_focal_loss(z, LABELS, reduction=r),
    "poly_loss": lambda z, r: poly_loss(z, LABELS, reduction=r),
    "cross-entropy": lambda z, r: curve_loss(z, LABELS, curves.cross_entropy(), reduction=r),
    "sigmoid, index": lambda z, r: sigmoid_curve_loss(z, LABELS, curves.halted_focal(2.0, 0.5), reduction=r),
    "sigmoid, presence": lambda z, r: sigmoid_curve_loss(z, SOFT.gt(0.1), LINE, reduction=r),
    "sigmoid, soft": lambda z, r: sigmoid_curve_loss(z, SOFT.to(z.dtype), LINE, reduction=r),
    "squared errors": lambda z, r: mirror_mse_loss(z, LABELS, reduction=r),
    "squared errors of images": lambda z, r: mirror_mse_loss(_image(z), LABELS.reshape(2, 2, 2), reduction=r),
    "squared errors, sigmoid": lambda z, r: mirror_mse_loss(z, LABELS, link="sigmoid", reduction=r),
    "linear": lambda z, r: linear_curve_loss(z, _layer(z), LABELS, LINE, reduction=r),
    "linear, positions": lambda z, r: linear_curve_loss(z.reshape(2, 4, CLASSES), _layer(z), LABELS.reshape(2, 4),
                                                        LINE, reduction=r),
    "CurveLoss": lambda z, r: CurveLoss(LINE, reduction=r)(z, LABELS),
    "EncouragingLoss": lambda z, r: EncouragingLoss(reduction=r)(z, LABELS),
    "FocalLoss": lambda z, r: FocalLoss(reduction=r)(z, LABELS),
    "HaltedFocalLoss": lambda z, r: HaltedFocalLoss(reduction=r)(z, LABELS),
    "PolyLoss": lambda z, r: PolyLoss(reduction=r)(z, LABELS),
    "LDAMLoss": lambda z, r: LDAMLoss(range(1, CLASSES + 1), reduction=r)(z, LABELS),
    "SigmoidCurveLoss": lambda z, r: SigmoidCurveLoss(LINE, reduction=r)(z, LABELS),
    "LinearCurveLoss": lambda z, r: _output_layer(z, r)(z, LABELS),
    "MirrorMSELoss": lambda z, r: MirrorMSELoss(reduction=r)(z, LABELS),
}
KERNELS: dict[str, Loss] = {
    "labels": lambda z, r: curve_loss(z, LABELS, LINE, reduction=r, impl="triton"),
    "image": lambda z, r: curve_loss(_image(z), LABELS.reshape(2, 2, 2), LINE, reduction=r, impl="triton"),
    "smoothed": lambda z, r: curve_loss(z, LABELS, LINE, reduction=r, label_smoothing=0.1, impl="triton"),
    "soft": lambda z, r: curve_loss(z, SOFT.to(z.dtype), LINE, reduction=r, impl="triton"),
    "matched norms": lambda z, r: curve_loss(z, LABELS, LINE, reduction=r, match_norm=True, impl="triton"),
    "own curve": lambda z, r: curve_loss(z, LABELS, OwnCurve(), reduction=r, impl="triton"),
    "by-products": lambda z, r: curve_loss_with_stats(z, LABELS, LINE, reduction=r, impl="triton")[0],
    "linear": lambda z, r: linear_curve_loss(z, _layer(z), LABELS, LINE, reduction=r, impl="triton"),
}


def logits(dtype: torch.dtype = torch.float32) -> Tensor:
    drawn = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return drawn.to(dtype).requires_grad_()


def check(loss: Loss, reduction: str, leaf: Tensor, tolerance: float = 0.0) -> None:
    """Changed in place or not, the loss and its gradient are the same."""
    halved, plain = loss(leaf, reduction), loss(leaf, reduction) / 2
    halved /= 2
    torch.testing.assert_close(halved, plain, rtol=tolerance, atol=0)
    steps = [value * torch.arange(1, 1 + value.numel(), dtype=value.dtype).reshape(value.shape)
             for value in (halved, plain)]
    ours, expected = (torch.autograd.grad(step.sum(), leaf)[0] for step in steps)
    torch.testing.assert_close(ours, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_every_loss_may_be_changed_in_place(loss: Loss, dtype: torch.dtype) -> None:
    for reduction in REDUCTIONS:
        check(loss, reduction, logits(dtype))


@pytest.mark.parametrize("loss", [LOSSES[name] for name in ("labels", "some ignored", "smoothed", "soft", "image",
                                                            "own curve")])
def test_so_may_that_of_a_large_batch(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    from encouraging.ops import small

    monkeypatch.setattr(small, "LARGEST", 0)
    for reduction in REDUCTIONS:
        check(loss, reduction, logits())


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_so_may_that_of_a_subclass_of_tensor(loss: Loss) -> None:
    for reduction in REDUCTIONS:
        check(lambda z, r: loss(z.as_subclass(Subclass), r), reduction, logits())


@pytest.mark.skipif(not importlib.util.find_spec("triton") or os.environ.get("TRITON_INTERPRET") != "1",
                    reason="needs Triton's interpreter")
@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("loss", KERNELS.values(), ids=KERNELS)
def test_so_may_that_of_the_kernels_also_when_a_call_repeats(loss: Loss, dtype: torch.dtype) -> None:
    for reduction in REDUCTIONS:
        for _ in range(2):
            # The interpreter rounds to bfloat16 in another way than torch does.
            check(loss, reduction, logits(dtype), tolerance=torch.finfo(dtype).eps)


# torch's own tracer makes an object of every autograd Function that it meets, and warns about it.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("name", ["labels", "smoothed", "soft", "sigmoid, index", "squared errors"])
def test_transforms_and_a_compiler_allow_it_too(name: str) -> None:
    loss, z = LOSSES[name], logits(torch.float64)

    def halved(leaf: Tensor) -> Tensor:
        losses = loss(leaf, "none")
        losses /= 2
        return losses.sum()

    expected = torch.autograd.grad(loss(z, "sum") / 2, z)[0]
    torch.testing.assert_close(grad(halved)(z.detach()), expected)
    batch = z.detach().expand(2, ROWS, CLASSES)
    torch.testing.assert_close(vmap(grad(halved))(batch), expected.expand(2, ROWS, CLASSES))
    compiled = torch.compile(halved, fullgraph=True, backend="aot_eager")(z)
    torch.testing.assert_close(torch.autograd.grad(compiled, z)[0], expected)
    torch._dynamo.reset()


def test_it_may_be_differentiated_twice() -> None:
    z = logits(torch.float64)
    results = []
    for in_place in (True, False):
        losses = curve_loss(z, LABELS, LINE, reduction="none")
        losses = losses.div_(2) if in_place else losses / 2
        (slope,) = torch.autograd.grad(losses.sum(), z, create_graph=True)
        results.append(torch.autograd.grad(slope.square().sum(), z)[0])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_losses_of_a_gradient_that_was_written_over_the_logits() -> None:
    for labels in (LABELS, SOFT):
        for smoothing in (0.0, 0.1):
            losses = curve_loss_and_gradient_(logits().detach(), labels, LINE, label_smoothing=smoothing)
            losses += torch.ones((), requires_grad=True)
            assert losses.requires_grad


def test_torchs_own_loss_is_the_measure() -> None:
    for reduction in REDUCTIONS:
        check(lambda z, r: F.cross_entropy(z, LABELS, reduction=r), reduction, logits())
        check(lambda z, r: F.cross_entropy(z.as_subclass(Subclass), LABELS, reduction=r), reduction, logits())
