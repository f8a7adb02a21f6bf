"""Squared errors of a softmax in blocks against the plain formula."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from encouraging import mirror_mse_loss
from encouraging.links import class_gaps
from encouraging.ops.squares import plain_squared_errors, squared_errors


def draw(classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits at any confidence, one-hot targets and probabilities."""
    g = torch.Generator().manual_seed(classes)
    z = 3 * torch.randn(600, classes, generator=g, dtype=torch.float64)
    label = torch.randint(classes, (600, 1), generator=g)
    z[:60].scatter_add_(1, label[:60], torch.linspace(1, 60, 60, dtype=torch.float64)[:, None])
    z[60:120, 0] += torch.linspace(1, 60, 60, dtype=torch.float64)
    z[120] = 0.0
    return z, torch.zeros_like(z).scatter_(1, label, 1.0), (3 * torch.randn(z.shape, generator=g).double()).softmax(-1)


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("classes", [1, 2, 10, 700])  # one block, several
def test_blocks_are_the_plain_formula(classes: int, bonus: bool) -> None:
    z, *truths = draw(classes)
    for truth in truths:
        upstream = torch.rand(z.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        results = {}
        for name, dtype in (("exact", torch.float64), ("double", torch.float64), ("single", torch.float32)):
            leaf, y = z.to(torch.float32).to(dtype).requires_grad_(), truth.to(torch.float32).to(dtype)
            losses = (plain_squared_errors(class_gaps(leaf)[0], y, bonus) if name == "exact"
                      else squared_errors(leaf, y, bonus))
            results[name] = losses, *torch.autograd.grad(losses, leaf, upstream.to(torch.float32).to(dtype))
        for name, rtol, atol in (("double", 1e-11, 1e-14), ("single", 1e-5, 5e-7)):
            for ours, exact in zip(results[name], results["exact"], strict=True):
                torch.testing.assert_close(ours.double(), exact, rtol=rtol, atol=atol)


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("label", [0, 1])  # right, and wrong
def test_a_confident_example_keeps_its_digits(label: int, bonus: bool) -> None:
    for lead in (20.0, 50.0):
        single = torch.tensor([[lead, 0.0, -3.0]], requires_grad=True)
        double = single.detach().double().requires_grad_()
        for leaf in (single, double):
            mirror_mse_loss(leaf, torch.tensor([label]), bonus=bonus, reduction="sum").backward()
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=5e-6, atol=1e-40)
        assert bool((single.grad != 0).all()) or not bonus


@pytest.mark.parametrize("bonus", [True, False])
def test_higher_and_batched_derivatives_are_those_of_the_plain_formula(bonus: bool) -> None:
    z, truth, _ = (tensor[:3] for tensor in draw(4))
    leaf = z.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: squared_errors(x, truth, bonus), leaf)
    plain = torch.autograd.functional.jacobian(lambda x: plain_squared_errors(class_gaps(x)[0], truth, bonus), z)
    for vectorize in (False, True):
        ours = torch.autograd.functional.jacobian(lambda x: squared_errors(x, truth, bonus), z, vectorize=vectorize)
        torch.testing.assert_close(ours, plain)


def test_logits_without_a_probability_have_no_error() -> None:
    for odd in (torch.inf, torch.nan):
        z = torch.tensor([[odd, 0.0, 1.0], [0.0, 1.0, 2.0]])
        losses = mirror_mse_loss(z, torch.tensor([0, 1]), reduction="none")
        assert bool(losses[0].isnan().all())
        assert bool(losses[1].isfinite().all())
    masked = mirror_mse_loss(torch.tensor([[0.0, -torch.inf, 0.0]]), torch.tensor([0]), reduction="none")
    torch.testing.assert_close(masked, torch.tensor([[0.0, -1.0, 0.0]]))


def test_logits_that_are_far_apart_take_no_longer() -> None:
    near, target = torch.randn(1000, 1000, generator=torch.Generator().manual_seed(0)), torch.arange(1000)
    leaves, times = {scale: (scale * near).requires_grad_() for scale in (1, 30)}, {1: [], 30: []}
    for _ in range(12):  # in turn, because other work on the machine comes and goes
        for scale, leaf in leaves.items():
            leaf.grad, start = None, time.process_time()
            mirror_mse_loss(leaf, target).backward()
            times[scale].append(time.process_time() - start)
    assert min(times[30]) < 2 * min(times[1]), times  # with torch's exp 2.7 times


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 2), (5,), (200, 1000), (4, 1), (0, 3)], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_the_sum_of_labels_is_that_of_the_matrix(shape: tuple[int, ...], reduction: str, bonus: bool, link: str,
                                                 dtype: torch.dtype) -> None:
    """Labels have forms without a matrix of 0 and 1: the same as with the matrix, as probabilities, class by class."""
    g = torch.Generator().manual_seed(1)
    z = (6 * torch.randn(shape, generator=g, dtype=torch.float64)).to(dtype)
    axis = 0 if len(shape) == 1 else 1
    y = torch.randint(shape[axis], shape[:axis] + shape[axis + 1:], generator=g)
    hot = F.one_hot(y, shape[axis]).movedim(-1, axis).to(torch.float64)
    for divisor in (None, 3.0) if reduction == "mean" else (None,):
        leaf, exact = z.clone().requires_grad_(), z.clone().double().requires_grad_()
        loss = mirror_mse_loss(leaf, y.int(), bonus=bonus, link=link, reduction=reduction, divisor=divisor)
        each = mirror_mse_loss(exact, hot, bonus=bonus, link=link, reduction="none")
        expected = each.sum() if reduction == "sum" else each.mean() if divisor is None else each.sum() / divisor
        near = {"rtol": 4 * torch.finfo(dtype).eps, "atol": 64 * torch.finfo(dtype).eps, "equal_nan": True}
        torch.testing.assert_close(loss.double(), expected.detach(), **near)
        assert loss.dtype == dtype
        if z.numel():
            for one in (loss, expected):
                one.backward()
            torch.testing.assert_close(leaf.grad.double(), exact.grad, **near)


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_a_tracer_records_the_gradient(link: str, bonus: bool) -> None:
    z, truth, _ = (tensor[:4] for tensor in draw(5))
    target = truth.argmax(1) if link == "sigmoid" or not bonus else truth

    def gradient(x: Tensor) -> Tensor:
        return torch.autograd.grad(mirror_mse_loss(x, target, bonus=bonus, link=link), x)[0]

    recorded = make_fx(gradient)(z.clone().requires_grad_())
    other = z.flip(0).requires_grad_()
    torch.testing.assert_close(recorded(other), gradient(other))
