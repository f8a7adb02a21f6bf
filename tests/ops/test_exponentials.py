"""Exponentials on a CPU: near torch's, exact at their ends, and as fast for logits that are far apart."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor

from encouraging import curve_loss, curves
from encouraging.ops.exponentials import exp_
from encouraging.ops.labels import zero_ignored, zero_ignored_


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_they_are_rounded_in_proportion_to_the_difference(dtype: torch.dtype) -> None:
    differences = -torch.linspace(0, 80, 100_001, dtype=dtype)
    exact = differences.double().exp()
    allowed = (2 + differences.abs()) * torch.finfo(dtype).eps * exact
    assert bool(((exp_(differences.clone()).double() - exact).abs() <= allowed).all())


def test_the_highest_has_1_and_a_masked_class_0() -> None:
    ends = torch.tensor([0.0, -0.0, -torch.inf, -1e38, torch.nan])
    expected = torch.tensor([1.0, 1.0, 0.0, 0.0, torch.nan])
    torch.testing.assert_close(exp_(ends), expected, rtol=0, atol=0, equal_nan=True)


def test_ignored_rows_are_cleared_whatever_they_hold() -> None:
    for rows in (torch.randn(300, 200), torch.randn(200, 300).t(), torch.randn(5, 3)):
        rows[1], ignored = torch.nan, (torch.arange(len(rows)) % 3 == 1)[:, None]
        expected = zero_ignored(rows, ignored)
        assert zero_ignored_(rows, ignored) is rows
        assert torch.equal(rows, expected)


@pytest.mark.parametrize("rows", [256, 4096])  # one block, several blocks
def test_logits_that_are_far_apart_take_no_longer(rows: int) -> None:
    near = torch.randn(rows, 1000, generator=torch.Generator().manual_seed(0))
    target = torch.arange(rows) % 1000
    times = {scale: shortest(scale * near, target) for scale in (1, 40)}
    assert times[40] < 3 * times[1], times  # with torch's exp 11 times


def shortest(logits: Tensor, target: Tensor) -> float:
    """Seconds of the processor for a loss and its gradient, so that other work beside it does not count."""
    leaf, times = logits.requires_grad_(), []
    for _ in range(12):
        leaf.grad, start = None, time.process_time()
        curve_loss(leaf, target, curves.conservative(0.75)).backward()
        times.append(time.process_time() - start)
    return min(times)
