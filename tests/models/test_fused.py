"""Bias, PReLU and batch norm in one kernel against torch's own operations, in Triton's interpreter or on a GPU."""

from __future__ import annotations

import copy
import importlib.util

import pytest
import torch
from torch import nn

from encouraging.models.fused import Stack, plain

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(4, 64, 13, 13), (3, 5, 7, 6), (8, 1, 28, 28), (2, 3, 5, 5), (300, 2, 3, 3)]


def setup(shape, prelu, biased, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    norm = nn.BatchNorm2d(shape[1])
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    norm.running_mean.normal_()
    y = (2 * torch.randn(shape) + 0.5).to(dtype).to(memory_format=torch.channels_last)
    bias = torch.randn(shape[1]) if biased else None
    slope = torch.tensor([0.25]) if prelu else None
    return norm, y, slope, bias, torch.randn(shape)


def work(compute, norm, y, slope, bias, grad, dtype):
    """Output, all gradients and what the norm remembers."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    norm = copy.deepcopy(norm).to(DEVICE, wide)
    y, slope, bias = (None if x is None else x.to(DEVICE, kind).detach().clone().requires_grad_()
                      for x, kind in ((y, dtype), (slope, wide), (bias, wide)))
    out = compute(y, norm, slope, bias)
    out.backward(grad.to(DEVICE, out.dtype))
    found = {"out": out, "y": y.grad, "weight": norm.weight.grad, "offset": norm.bias.grad,
             "running mean": norm.running_mean, "running var": norm.running_var, "count": norm.num_batches_tracked}
    return found | ({"bias": bias.grad} if bias is not None else {}) | (
        {"slope": slope.grad} if slope is not None else {})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("prelu", "biased"), [(True, True), (True, False), (False, True), (False, False)])
def test_the_fused_layer_errs_no_more_than_torchs_own(shape, prelu, biased):
    from encouraging.models.prelu_norm import prelu_norm

    case = setup(shape, prelu, biased)
    ours, torchs, exact = (work(*how) for how in (
        (prelu_norm, *case, torch.float32), (plain, *case, torch.float32), (plain, *case, torch.float64)))
    for name, wanted in exact.items():
        # Gradients of parameters are sums over all rows that nearly cancel: their rounding is on the scale of what was
        # summed, the slope's on that of all channels.
        rows = shape[0] * shape[2] * shape[3]
        scale = {"slope": rows * shape[1], "out": 10, "y": 10, "running mean": 1, "running var": 1}.get(name, rows)
        error, usual = ((found[name].double() - wanted).abs().max().item() for found in (ours, torchs))
        assert error <= max(2 * usual, 1e-7 * scale, 5e-6), name


def test_in_bfloat16_only_inputs_and_outputs_are_rounded():
    from encouraging.models.prelu_norm import prelu_norm

    case = setup((4, 16, 9, 9), True, True, torch.bfloat16)
    ours, exact = work(prelu_norm, *case, torch.bfloat16), work(plain, *case, torch.float64)
    assert ours["out"].dtype == ours["y"].dtype == torch.bfloat16
    torch.testing.assert_close(ours["running var"].double(), exact["running var"], rtol=1e-5, atol=1e-5)
    for name in ("out", "y"):
        torch.testing.assert_close(ours[name].double(), exact[name], rtol=2**-7, atol=2**-7)


def test_evaluation_uses_the_running_averages():
    from encouraging.models.prelu_norm import prelu_norm

    norm, y, slope, bias, _ = setup((4, 6, 5, 5), True, True)
    norm, y, slope, bias = norm.eval().to(DEVICE), y.to(DEVICE), slope.to(DEVICE), bias.to(DEVICE)
    wanted = plain(y, norm, slope, bias)
    with torch.no_grad():
        torch.testing.assert_close(prelu_norm(y, norm, slope, bias), wanted, rtol=1e-5, atol=1e-5)
    y.requires_grad_()
    assert torch.equal(prelu_norm(y, norm, slope, bias), plain(y, norm, slope, bias))


def test_equal_inputs_give_equal_bits():
    from encouraging.models.prelu_norm import prelu_norm

    case = setup((4, 64, 13, 13), True, True)
    first, second = work(prelu_norm, *case, torch.float32), work(prelu_norm, *case, torch.float32)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_second_derivative_is_refused():
    from encouraging.models.prelu_norm import prelu_norm

    norm, y, slope, bias, _ = setup((2, 3, 4, 4), True, True)
    y = y.to(DEVICE).requires_grad_()
    out = prelu_norm(y, norm.to(DEVICE), slope.to(DEVICE), bias.to(DEVICE))
    first, = torch.autograd.grad(out.square().sum(), y, create_graph=True)
    with pytest.raises(RuntimeError, match=r"twice|once_differentiable"):
        first.sum().backward()


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: on the CPU a stack is a plain Sequential")
@pytest.mark.parametrize("training", [True, False])
def test_a_stack_is_its_sequential(training):
    torch.manual_seed(0)
    layers = [nn.BatchNorm2d(1), nn.Conv2d(1, 8, 3), nn.PReLU(), nn.BatchNorm2d(8), nn.MaxPool2d(2), nn.Flatten()]
    stack, usual = Stack(*layers).cuda().train(training), nn.Sequential(*copy.deepcopy(layers)).cuda().train(training)
    x = torch.randn(6, 1, 12, 12, device="cuda")
    with torch.set_grad_enabled(training):
        ours, theirs = stack(x), usual(x)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)  # TF32 convolutions
    if training:
        ours.square().sum().backward()
        theirs.square().sum().backward()
        for mine, other in zip(stack.parameters(), usual.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=2e-2, atol=2e-1)
        torch.testing.assert_close(stack[3].running_var, usual[3].running_var, rtol=1e-3, atol=1e-4)


def test_on_the_cpu_a_stack_is_a_sequential_bit_for_bit():
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.PReLU(), nn.BatchNorm2d(4)]
    stack, usual = Stack(*layers), nn.Sequential(*copy.deepcopy(layers))
    x = torch.randn(3, 1, 6, 6)
    assert torch.equal(stack(x), usual(x))
    assert [*stack.state_dict()] == [*usual.state_dict()]


@pytest.mark.parametrize(("mean", "spread"), [(100.0, 1.0), (1000.0, 0.1), (-1e4, 1.0)])
def test_a_mean_far_from_the_running_one_costs_no_digits(mean, spread):
    from encouraging.models.prelu_norm import prelu_norm

    norm, y, slope, bias, grad = setup((8, 5, 7, 7), False, False)
    norm.running_mean.zero_()
    case = norm, mean + spread * y, slope, bias, grad
    ours, torchs, exact = (work(*how) for how in (
        (prelu_norm, *case, torch.float32), (plain, *case, torch.float32), (plain, *case, torch.float64)))
    for name in ("out", "y", "running var"):
        error, usual = ((found[name].double() - exact[name]).abs().max().item() for found in (ours, torchs))
        assert error <= max(4 * usual, 1e-5), name
