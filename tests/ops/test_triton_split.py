"""Few long rows, split into segments: where that is done, and what a segment must not change. The tests of each loss
have its values and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from encouraging import curves
from encouraging.curves import Curve
from encouraging.ops import reference
from encouraging.ops.triton import (
    Tiling,
    hard_loss,
    loss_and_gradient_,
    mse_autograd,
    mse_loss,
    soft_later_launch,
    soft_loss,
    tiling,
    use_tiling,
)
from encouraging.ops.triton.cached_launch import Prepared, launch
from encouraging.ops.triton.tiling import segments_of, soft_tiling_for, split
from kernel_cases import CLASSES, CURVES, MARKS, SPLIT, TAILS, ULP, draw, row_error
from kernel_cases import ours as ours_of_labels
from kernel_cases import truth as truth_of_labels
from soft_kernel_cases import draw_soft, ours, truth

pytestmark = MARKS
H200 = 132  # its multiprocessors


@pytest.fixture
def many_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiling, "processors", lambda device: H200)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that were launched since."""
    names: list[str] = []
    call = Prepared.__call__

    def note(self: Prepared, device: int, *tensors: Tensor | None) -> None:
        names.append(self._kernel.__name__)
        call(self, device, *tensors)

    monkeypatch.setattr(Prepared, "__call__", note)
    return names


@pytest.mark.usefixtures("many_processors")
def test_only_few_long_rows_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cpu")
    for rows, classes in ((8192, 32000), (132, 262144), (2, 16383), (16, 8192), (4096, 128256)):
        usual = soft_tiling_for(classes, cross_entropy=False)
        assert split(usual, rows, classes, device) is usual
    for rows, classes in ((1, 16384), (2, 245034), (15, 72322), (17, 210607), (131, 50257), (1, 1 << 24)):
        few = split(soft_tiling_for(classes, cross_entropy=False), rows, classes, device)
        n_segments, blocks = segments_of(few, classes)
        assert 1 < n_segments <= tiling.MOST_SEGMENTS
        assert (n_segments - 1) * blocks * few.block < classes <= n_segments * blocks * few.block
        assert n_segments == -(-classes // few.block) or rows * n_segments > H200
    whole = Tiling(1, 16384, 8)
    assert split(whole, 2, 16384, device) is whole
    with use_tiling(SPLIT):
        assert split(SPLIT, 8192, 100, device) is SPLIT
    monkeypatch.setattr(tiling, "split_from", math.inf)
    usual = soft_tiling_for(245034, cross_entropy=False)
    assert split(usual, 2, 245034, device) is usual


def test_soft_targets_take_a_launch_per_pass(launched: list[str]) -> None:
    z, q = draw_soft(2)
    with use_tiling(SPLIT):
        ours(z, q, curves.cross_entropy())
        assert launched == ["soft_split_kernel", "soft_split_end_kernel", "scale_kernel", "scale_kernel"]
        launched.clear()
        soft_loss(z, q, curves.poly(1.0))
        assert launched == ["soft_split_kernel", "soft_split_sums_kernel", "soft_split_end_kernel"]


def test_a_gradient_that_is_made_later_takes_one_launch(launched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The forward pass has kept what it needs of every row."""
    monkeypatch.setattr(soft_later_launch, "short_row", 0)
    z, q = draw_soft(2)
    for curve, passes in ((curves.cross_entropy(), []), (curves.poly(1.0), ["soft_split_sums_kernel"])):
        for dtype, reduction in ((torch.float16, "mean"), (torch.float32, "none")):
            leaf = z.to(dtype).requires_grad_()
            with use_tiling(SPLIT):
                loss = soft_loss(leaf, q, curve, reduction=reduction)
                assert launched == ["soft_split_kernel", *passes, "soft_split_end_kernel"]
                launched.clear()
                loss.backward(torch.ones_like(loss))
            assert launched == ["soft_later_kernel"]
            launched.clear()


def test_squared_errors_take_a_launch_per_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []

    def note(kernel: Any, *given: Any, **constants: Any) -> None:
        launched.append(kernel.__name__)
        launch(kernel, *given, **constants)

    monkeypatch.setattr(mse_autograd, "launch", note)
    z, q = draw_soft(2)
    with use_tiling(SPLIT):
        mse_loss(z, q, bonus=True, reduction="none")
        assert launched == ["mse_split_kernel", "mse_split_sums_kernel"]
        launched.clear()
        mse_loss(z.requires_grad_(), q.argmax(1), bonus=False)
        assert launched == ["mse_split_kernel", "mse_split_sums_kernel", "mse_split_end_kernel"]
        launched.clear()
        monkeypatch.setattr(soft_later_launch, "short_row", 0)
        mse_loss(z.detach().half().requires_grad_(), q, bonus=True).backward()
        assert launched == ["mse_split_kernel", "mse_split_sums_kernel", "mse_split_end_kernel", "mse_later_kernel"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("offset", [0, 1, 3, 7])
def test_segments_of_rows_that_begin_anywhere(offset: int, dtype: torch.dtype) -> None:
    """With 33 classes and segments of 16, a row with a long head has an empty segment."""
    rows, classes = 3, 33
    z, q = draw_soft(rows, classes, seed=6, lowest=1e-3, highest=0.999)
    room = torch.full((rows * classes + 16,), math.nan, dtype=dtype)
    view = room[offset:offset + rows * classes].view(rows, classes)
    view.copy_(z)
    masses = torch.full((rows * classes + 16,), math.nan)[offset:offset + rows * classes].view(rows, classes).copy_(q)
    expected, slope, _ = truth(view, q, curves.poly(1.0), torch.ones(rows), reduction="none")
    with use_tiling(Tiling(1, 16, 4, streamed=True, segments=3)):
        losses = loss_and_gradient_(view, masses, curves.poly(1.0))
    assert ((losses - expected).abs() <= 16 * ULP * expected.abs().clamp(min=4)).all()
    assert row_error(view, slope).max() <= 1.01 * torch.finfo(dtype).eps + 64 * ULP
    view.fill_(math.nan)
    assert room.isnan().all()


def test_masked_segments_and_segments_with_the_only_rival() -> None:
    """A segment in which every class is masked adds nothing; a class alone in its segment is still a rival."""
    z, q = torch.full((4, 12), -math.inf), torch.zeros(4, 12)
    z[0, 1], z[1, [1, 9]], z[2, [5, 6]], z[3, [0, 4, 8]] = 3.0, torch.tensor([0.0, 40.0]), 1.0, torch.arange(3.0)
    q[0, 1], q[1, [1, 9]], q[2, 5], q[3, 4] = 1.0, torch.tensor([0.25, 0.75]), 1.0, 1.0
    for curve in (curves.cross_entropy(), curves.conservative(0.75), curves.normal(eps=0), curves.focal(2.0)):
        if curve == curves.normal(eps=0):  # without a rival its loss has no end
            z[0, 2] = 1.0
        leaf = z.clone().requires_grad_()
        with use_tiling(Tiling(1, 4, 1, streamed=True, segments=3)):
            rows = soft_loss(leaf, q, curve, reduction="none")
            rows.sum().backward()
        expected, slope, _ = truth(z, q, curve, torch.ones(4), reduction="none")
        torch.testing.assert_close(rows.double(), expected, rtol=8 * ULP, atol=8 * ULP)
        torch.testing.assert_close(leaf.grad.double(), slope, rtol=16 * ULP, atol=1e-30)


def test_labels_leave_their_gradient_to_the_pass_that_has_many_programs_anyway(launched: list[str]) -> None:
    z, y = draw(2)
    with use_tiling(SPLIT):
        ours_of_labels(z, y, curves.conservative(0.75))
        assert launched == ["split_kernel", "split_end_kernel", "later_kernel", "scale_kernel"]
        launched.clear()
        ours_of_labels(z, y, curves.conservative(0.75), torch.ones(2), reduction="none", label_smoothing=0.1)
        assert launched == ["split_kernel", "split_sums_kernel", "split_end_kernel", "later_kernel"]
        launched.clear()
        hard_loss(z, y, curves.poly(1.0), reduction="sum")
        assert launched == ["split_kernel", "split_end_kernel"]


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_smoothed_labels_beside_a_certain_mistake_in_any_segment(curve: Curve) -> None:
    """The label in the segment of the mistake, before it and after it; and a row in which nothing is certain."""
    z, _ = draw(4, seed=23)
    y = torch.tensor([3, 5, 30, 20])
    z[:3, [9, 17, 4]] += 25 * torch.eye(3)
    weight = torch.rand(CLASSES, generator=torch.Generator().manual_seed(1)) + 0.5
    arguments = {"label_smoothing": 0.2, "weight": weight if curve in TAILS else None, "reduction": "none"}
    upstream = torch.tensor([1.0, -2.0, 0.5, 3.0])
    with use_tiling(Tiling(1, 16, 4, streamed=True, segments=3)):
        loss, gradient = ours_of_labels(z, y, curve, upstream, **arguments)
    expected, slope = truth_of_labels(z, y, curve, upstream, **arguments)
    assert ((loss.double() - expected).abs() <= 160 * ULP).all()  # the largest gap is about 40
    leaf = z.clone().requires_grad_()
    reference.hard_loss(leaf, y, curve, **arguments).backward(upstream)
    assert (row_error(gradient, slope) <= (4 * row_error(leaf.grad, slope)).clamp(min=48 * ULP)).all()


def test_rows_that_are_long_enough_are_split_by_themselves(launched: list[str]) -> None:
    """Two rows, fewer than the interpreter's three multiprocessors; the gradients of both ways agree."""
    z, y = draw(2, 16391, seed=8, lowest=0.01, highest=0.99)
    for arguments in ({}, {"label_smoothing": 0.1}):
        split_rows = ours_of_labels(z, y, curves.poly(1.0), **arguments)
        assert "split_kernel" in launched
        launched.clear()
        with use_tiling(tiling.tiling_for(16391)):
            whole_rows = ours_of_labels(z, y, curves.poly(1.0), **arguments)
        assert "split_kernel" not in launched
        torch.testing.assert_close(split_rows, whole_rows, rtol=16 * ULP, atol=1e-12)
