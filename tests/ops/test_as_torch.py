"""Which calls are handed to torch, that the result is torch's, and that everything else goes the way it went."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from encouraging import CurveLoss, curve_loss, curves, sigmoid_curve_loss
from encouraging.errors import ArgumentError, ShapeError, TargetError
from encouraging.ops import as_torch

CE = curves.cross_entropy()


@pytest.fixture(autouse=True)
def a_cpu_passes_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_torch, "_is_on_gpu", attrgetter("is_cpu"))


def drawn(rows: int = 6, classes: int = 5, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(rows, classes, generator=generator).to(dtype).requires_grad_(),
            torch.randint(classes, (rows,), generator=generator))


def by_torch(loss: Tensor) -> bool:
    """Whether operations of torch alone made it, and no Function of ours."""
    nodes = [loss.grad_fn]
    while nodes:
        node = nodes.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return False
        nodes += [] if node is None else [each for each, _ in node.next_functions]
    return True


def handed_over(input: Tensor, target: Tensor, **arguments: Any) -> bool:
    given = {"weight": None, "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0, "impl": "auto"}
    return as_torch.cross_entropy(input, target, **{**given, **arguments}) is not None


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["labels", "some ignored", "all ignored", "weighted"])
def test_plain_cross_entropy_is_torchs_to_the_bit(kind: str, dtype: torch.dtype, reduction: str) -> None:
    logits, target = drawn(dtype=dtype)
    other = logits.detach().clone().requires_grad_()
    weight = torch.rand(5).to(dtype) if kind == "weighted" else None
    if kind.endswith("ignored"):
        target[2 if kind.startswith("some") else slice(None)] = 3
    ignored = 3 if kind.endswith("ignored") else -100
    found = CurveLoss(CE, weight=weight, ignore_index=ignored, reduction=reduction)(logits, target)
    expected = F.cross_entropy(other, target, weight, ignore_index=ignored, reduction=reduction)
    assert found.dtype == expected.dtype
    if dtype is torch.float16 and weight is not None:
        assert not by_torch(found)
        return
    assert by_torch(found)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(logits.grad, other.grad, rtol=0, atol=0, equal_nan=True)


def test_everything_else_goes_the_way_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, target = drawn()
    weight = torch.rand(5)
    assert handed_over(logits, target)
    assert handed_over(logits, target, weight=weight)
    for arguments in ({"impl": "reference"}, {"impl": "triton"}, {"label_smoothing": 0.1}, {"label_smoothing": 0},
                      {"label_smoothing": False}, {"reduction": "median"}, {"reduction": []}, {"ignore_index": 1.5},
                      {"weight": weight.double()}, {"weight": weight.clone().requires_grad_()}, {"weight": weight[1:]}):
        assert not handed_over(logits, target, **arguments), arguments
    for input, labels in ((logits.double(), target), (logits, target.int()), (logits, target.to(torch.uint8)),
                          (logits[None].movedim(2, 1), target[None]), (logits[0], target[0]), (logits, target[1:]),
                          (logits[:0], target[:0]), (logits[:, :0], target), (logits, torch.rand(6, 5)),
                          ([[1.0]], target), (logits, [0]),
                          (torch.zeros(1 << 17 | 1, 2, dtype=torch.bfloat16), torch.zeros(1 << 17 | 1).long()),
                          (torch.zeros(512, 512), torch.zeros(512).long())):
        assert not handed_over(input, labels)
    assert torch.func.grad(lambda z: curve_loss(z, target, CE))(logits.detach()).isfinite().all()
    with torch.autograd.forward_ad.dual_level():
        assert not handed_over(logits, target)
    monkeypatch.setattr(as_torch, "few_bytes", 0)
    assert not handed_over(logits, target)


@pytest.mark.parametrize("arguments", [{"divisor": 3.0}, {"match_norm": True}, {"label_smoothing": 0.1},
                                       {"impl": "reference"}])
def test_arguments_that_torch_does_not_have_are_ours(arguments: dict[str, Any]) -> None:
    logits, target = drawn()
    assert not by_torch(curve_loss(logits, target, CE, **arguments))


def test_what_is_wrong_is_said_in_our_words() -> None:
    logits, target = drawn()
    with pytest.raises(ShapeError):
        curve_loss(logits, target[1:], CE)
    with pytest.raises(ShapeError):
        curve_loss(logits[:, :0], target, CE)
    with pytest.raises(ArgumentError):
        curve_loss(logits, target, CE, reduction="median")
    with pytest.raises(ArgumentError):
        curve_loss(logits, torch.rand(6, 5), CE, ignore_index=2)
    with pytest.raises(TargetError):
        curve_loss(logits, torch.rand(6), CE)


def test_masked_logits_stay_ours_where_torch_has_nan() -> None:
    """Minus infinity times 0: probabilities and the sigmoid link."""
    logits, target = drawn()
    masked = logits.detach().clone()
    masked[:, 3:] = -torch.inf
    masked.requires_grad_()
    soft = F.pad(torch.softmax(torch.randn(6, 3), 1), (0, 2))
    present = F.one_hot(target % 3, 5).bool()
    for loss in (curve_loss(masked, soft, CE), sigmoid_curve_loss(masked, present, CE),
                 curve_loss(masked, target % 3, CE)):
        gradient, = torch.autograd.grad(loss, masked)
        assert loss.isfinite()
        assert gradient.isfinite().all()
    assert F.cross_entropy(masked, soft).isnan()
    assert F.binary_cross_entropy_with_logits(masked, present.float()).isnan()


def test_second_derivatives_are_torchs() -> None:
    logits, target = drawn()
    first, = torch.autograd.grad(curve_loss(logits, target, CE), logits, create_graph=True)
    found, = torch.autograd.grad(first.square().sum(), logits)
    exact = logits.detach().double().requires_grad_()
    first, = torch.autograd.grad(F.cross_entropy(exact, target), exact, create_graph=True)
    torch.testing.assert_close(found.double(), torch.autograd.grad(first.square().sum(), exact)[0])


def test_half_precision_stays_ours_where_its_divisor_would_be_infinite() -> None:
    """Torch has the sum of the weights, or the number of rows, in the logits' type, and divides the gradient by it."""
    logits, target = drawn(dtype=torch.float16)
    assert handed_over(logits, target)
    assert not handed_over(logits, target, weight=torch.rand(5).half())
    many = torch.zeros(65505, 2, dtype=torch.float16, requires_grad=True)
    assert not handed_over(many, torch.zeros(65505).long())
    weight = torch.tensor([3e4] * 5).half()
    (curve_loss(logits, target, CE, weight) * 1024).backward()
    assert logits.grad.abs().max() > 1
