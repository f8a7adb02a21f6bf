"""Exponentials on a CPU: near torch's, exact at their ends, and as fast for logits that are far apart."""

from __future__ import annotations

import time
from typing import Any

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


@pytest.mark.parametrize(("rows", "soft", "arguments", "most"), [
    (256, False, {}, 3), (4096, False, {}, 3),  # one block, several blocks; with torch's exp 11 times
    (256, False, {"label_smoothing": 0.1}, 6), (4096, False, {"label_smoothing": 0.1}, 3),  # 20, 10
    (256, True, {}, 6), (256, False, {"label_smoothing": 0.1, "match_norm": True}, 4),      # 13, 8
])
def test_logits_that_are_far_apart_take_no_longer(rows: int, soft: bool, arguments: dict[str, Any],
                                                  most: float) -> None:
    near = torch.randn(rows, 1000, generator=torch.Generator().manual_seed(0))
    target = near.softmax(-1) if soft else torch.arange(rows) % 1000
    times = {scale: shortest(scale * near, target, **arguments) for scale in (1, 50)}
    assert times[50] < most * times[1], times


def test_matching_norms_of_labels_takes_about_as_long_as_the_loss() -> None:
    logits, target = 50 * torch.randn(256, 1000, generator=torch.Generator().manual_seed(0)), torch.arange(256)
    times = [shortest(logits, target, match_norm=match) for match in (False, True)]
    assert times[1] < 5 * times[0], times  # with torch's exp 9 times


def shortest(logits: Tensor, target: Tensor, **arguments: Any) -> float:
    """Seconds of the processor for a loss and its gradient, so that other work beside it does not count."""
    leaf, times = logits.detach().requires_grad_(), []
    for _ in range(12):
        leaf.grad, start = None, time.process_time()
        curve_loss(leaf, target, curves.conservative(0.75), **arguments).backward()
        times.append(time.process_time() - start)
    return min(times)
