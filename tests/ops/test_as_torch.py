"""Which calls are handed to torch, that the result is torch's, and that everything else goes the way it went."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from encouraging import CurveLoss, SigmoidCurveLoss, curve_loss, curves, sigmoid_curve_loss
from encouraging.errors import ArgumentError, ShapeError, TargetError
from encouraging.ops import as_torch

CE = curves.cross_entropy()


@pytest.fixture(autouse=True)
def a_cpu_passes_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_torch, "_is_there", attrgetter("is_cpu"))


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
@pytest.mark.parametrize("kind", ["labels", "some ignored", "all ignored", "weighted", "probabilities"])
def test_plain_cross_entropy_is_torchs_to_the_bit(kind: str, dtype: torch.dtype, reduction: str) -> None:
    logits, target = drawn(dtype=dtype)
    other = logits.detach().clone().requires_grad_()
    weight = torch.rand(5).to(dtype) if kind == "weighted" else None
    if kind.endswith("ignored"):
        target[2 if kind.startswith("some") else slice(None)] = 3
    if kind == "probabilities":
        target = torch.softmax(torch.randn(6, 5), 1)
    ignored = 3 if kind.endswith("ignored") else -100
    found = CurveLoss(CE, weight=weight, ignore_index=ignored, reduction=reduction)(logits, target)
    expected = F.cross_entropy(other, target, weight, ignore_index=ignored, reduction=reduction)
    assert by_torch(found)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(logits.grad, other.grad, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["bool", "floats", "weighted", "positives weighted"])
def test_the_sigmoid_link_is_torchs_to_the_bit(kind: str, dtype: torch.dtype, reduction: str) -> None:
    logits, _ = drawn(dtype=dtype)
    other = logits.detach().clone().requires_grad_()
    target = torch.rand(6, 5) < 0.5 if kind == "bool" else torch.rand(6, 5).to(dtype)
    given = {}
    if kind.endswith("weighted"):
        given["weight" if kind == "weighted" else "pos_weight"] = torch.rand(5).to(dtype)
    found = SigmoidCurveLoss(CE, reduction=reduction, **given)(logits, target)
    expected = F.binary_cross_entropy_with_logits(other, target.to(dtype), reduction=reduction, **given)
    assert by_torch(found)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(logits.grad, other.grad, rtol=0, atol=0)


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
                          (logits[:0], target[:0]), (logits[:, :0], target), ([[1.0]], target), (logits, [0]),
                          (torch.zeros(1 << 17 | 1, 2, dtype=torch.bfloat16), torch.zeros(1 << 17 | 1).long()),
                          (torch.zeros(512, 512), torch.zeros(512).long())):
        assert not handed_over(input, labels)
    assert torch.func.grad(lambda z: curve_loss(z, target, CE))(logits.detach()).isfinite().all()
    with torch.autograd.forward_ad.dual_level():
        assert not handed_over(logits, target)
    monkeypatch.setattr(as_torch, "softmax_bytes", 0)
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
    with pytest.raises(ShapeError):
        sigmoid_curve_loss(logits, torch.rand(6, 4), CE)
    with pytest.raises(ShapeError):
        sigmoid_curve_loss(logits, torch.rand(6, 5), CE, pos_weight=torch.rand(4))


def test_other_sigmoid_calls_are_ours() -> None:
    logits, _ = drawn()
    target = torch.rand(6, 5)
    for arguments in ({"alpha": 0.25}, {"negative_curve": curves.focal(2.0)}, {"divisor": 3.0},
                      {"pos_weight": torch.rand(5).requires_grad_()}):
        torch.testing.assert_close(
            sigmoid_curve_loss(logits, target, CE, **arguments),
            sigmoid_curve_loss(logits.double(), target.double(), CE, **arguments).float())
    for other in (target.double(), (target < 0.5).long()):
        assert as_torch.sigmoid_cross_entropy(logits, other, None, "mean", None) is None
    assert as_torch.sigmoid_cross_entropy(logits, target, None, "mean", None) is not None
    assert as_torch.sigmoid_cross_entropy(torch.zeros(512, 512), torch.zeros(512, 512), None, "mean", None) is None


def test_second_derivatives_are_torchs() -> None:
    logits, target = drawn()
    first, = torch.autograd.grad(curve_loss(logits, target, CE), logits, create_graph=True)
    found, = torch.autograd.grad(first.square().sum(), logits)
    exact = logits.detach().double().requires_grad_()
    first, = torch.autograd.grad(F.cross_entropy(exact, target), exact, create_graph=True)
    torch.testing.assert_close(found.double(), torch.autograd.grad(first.square().sum(), exact)[0])
