"""Rows that start anywhere are read in aligned vectors: the same numbers, and nothing outside the row is touched."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton")
from triton.runtime.interpreter import interpreter_builder

from encouraging import curves
from encouraging.ops import reference
from encouraging.ops.squares import squared_errors
from encouraging.ops.triton import Tiling, hard_loss, loss_and_gradient_, mse_autograd, soft_loss, use_tiling
from encouraging.ops.triton.layout import ends_of
from kernel_cases import MARKS, ULP, draw, row_error, truth

pytestmark = MARKS
RESIDENT, BLOCKS = Tiling(1, 64, 4), Tiling(1, 32, 4, streamed=True)
SEGMENTS = Tiling(1, 16, 4, streamed=True, segments=3)
NAMES = {RESIDENT: "whole", BLOCKS: "blocks", SEGMENTS: "segments"}
CURVE = curves.conservative(0.75)
AROUND = 64  # elements: a multiple of all vectors, so that the offset alone decides where a row starts
KINDS = list(itertools.product([torch.float32, torch.bfloat16], [RESIDENT, BLOCKS, SEGMENTS], [0, 1, 3, 7]))
CASES = pytest.mark.parametrize(("dtype", "tiling", "offset"), KINDS, ids=[
    f"{str(dtype)[6:]}-{NAMES[tiling]}-{offset}" for dtype, tiling, offset in KINDS])


def shifted_copy(tensor: Tensor, offset: int) -> Tensor:
    """The same numbers, at an odd place of a larger poisoned storage, which has 64 bytes and more around them: no other
    tensor is as near."""
    poison = math.nan if tensor.is_floating_point() else -1
    storage = torch.full((AROUND + offset + tensor.numel() + AROUND,), poison, dtype=tensor.dtype)
    view = storage[AROUND + offset:AROUND + offset + tensor.numel()].view(tensor.shape)
    return view.copy_(tensor)


def surroundings(tensor: Tensor) -> Tensor:
    start, storage = tensor.storage_offset(), tensor.untyped_storage()
    whole = torch.empty(0, dtype=tensor.dtype).set_(storage)
    return torch.cat([whole[:start], whole[start + tensor.numel():]])


@contextmanager
def reads_and_writes() -> Iterator[list[np.ndarray]]:
    """The addresses that kernels read or write inside the block."""
    seen: list[np.ndarray] = []
    load, store = interpreter_builder.create_masked_load, interpreter_builder.create_masked_store

    def record_load(ptrs, mask, *rest):
        seen.append(np.asarray(ptrs.data)[np.asarray(mask.data, dtype=bool)])
        return load(ptrs, mask, *rest)

    def record_store(ptrs, value, mask, *rest):
        seen.append(np.asarray(ptrs.data)[np.asarray(mask.data, dtype=bool)])
        return store(ptrs, value, mask, *rest)

    interpreter_builder.create_masked_load, interpreter_builder.create_masked_store = record_load, record_store
    try:
        yield seen
    finally:
        interpreter_builder.create_masked_load, interpreter_builder.create_masked_store = load, store


@CASES
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_labels_in_place(dtype: torch.dtype, tiling: Tiling, offset: int, smoothing: float) -> None:
    z, y = draw(5, 45, dtype=dtype, seed=offset)
    y[2] = -100
    view = shifted_copy(z, offset)
    assert ends_of(view)[0] == 16 // dtype.itemsize
    expected, slope = truth(z, y, CURVE, torch.ones(5), reduction="none", label_smoothing=smoothing)
    with use_tiling(tiling), reads_and_writes() as seen:
        losses = loss_and_gradient_(view, y, CURVE, label_smoothing=smoothing)
    assert ((losses - expected).abs() <= 16 * ULP * 20).all()
    assert row_error(view, slope).max() <= 2 * torch.finfo(dtype).eps + 64 * ULP
    assert surroundings(view).isnan().all()
    first, end = view.data_ptr(), view.data_ptr() + view.numel() * dtype.itemsize
    near = np.concatenate([part.ravel() for part in seen])
    near = near[(near > first - 64) & (near < end + 64)]
    assert near.min() >= first
    assert near.max() < end


@CASES
def test_soft_targets_in_place(dtype: torch.dtype, tiling: Tiling, offset: int) -> None:
    z, _ = draw(5, 45, dtype=dtype, seed=offset)
    q = torch.randn(5, 45).softmax(1)
    leaf = z.double().requires_grad_()
    expected = reference.soft_loss(leaf, q.double(), CURVE, reduction="none")
    expected.sum().backward()
    view, target = shifted_copy(z, offset), shifted_copy(q, offset)
    assert ends_of(view, target)[0] == 16 // dtype.itemsize
    with use_tiling(tiling), reads_and_writes() as seen:
        losses = loss_and_gradient_(view, target, CURVE)
    assert ((losses - expected).abs() <= 16 * ULP * 20).all()
    assert row_error(view, leaf.grad).max() <= 2 * torch.finfo(dtype).eps + 128 * ULP
    near = np.concatenate([part.ravel() for part in seen])
    for tensor in (view, target):
        assert surroundings(tensor).isnan().all()
        first, end = tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.dtype.itemsize
        assert not ((near > first - 16) & (near < first)).any()
        assert not ((near >= end) & (near < end + 16)).any()


@pytest.mark.parametrize(("dtype", "tiling", "offset"), [case for case in KINDS if case[1] is not RESIDENT], ids=[
    f"{str(dtype)[6:]}-{NAMES[tiling]}-{offset}" for dtype, tiling, offset in KINDS if tiling is not RESIDENT])
@pytest.mark.parametrize("soft", [False, True], ids=["labels", "soft"])
def test_squared_errors(dtype: torch.dtype, tiling: Tiling, offset: int, soft: bool) -> None:
    z, y = draw(5, 45, dtype=dtype, seed=offset)
    z[3, [0, 44]] = z[3].max() + 1  # two on top, one in each end or beside it
    q, above = torch.randn(5, 45).softmax(1), torch.rand(5, 45) + 0.5
    tensors = {"logits": z, "target": q if soft else y, "losses": torch.zeros(5, 45), "upstream": above, "grad": z}
    tensors = {name: shifted_copy(tensor, offset if name != "target" or soft else 0)
               for name, tensor in tensors.items()}
    assert ends_of(*(tensor for tensor in tensors.values() if tensor.ndim == 2))[0] == 16 // dtype.itemsize
    for bonus in (False, True):
        leaf = z.double().requires_grad_()
        expected = squared_errors(leaf, q.double() if soft else F.one_hot(y, 45).double(), bonus)
        expected.backward(above.double())
        given = tensors["logits"], tensors["target"], bonus
        with use_tiling(tiling), reads_and_writes() as seen:
            mse_autograd._launch(*given, losses=tensors["losses"])
            mse_autograd._launch(*given, grad=tensors["grad"], upstream=tensors["upstream"], scale=2.0)
        torch.testing.assert_close(tensors["losses"].double(), expected.detach(), rtol=64 * ULP, atol=8 * ULP)
        assert row_error(tensors["grad"], 2 * leaf.grad).max() <= 2 * torch.finfo(dtype).eps + 128 * ULP
        near = np.concatenate([part.ravel() for part in seen])
        for tensor in tensors.values():
            if tensor.is_floating_point():
                assert surroundings(tensor).isnan().all()
            first, end = tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.dtype.itemsize
            assert not ((near > first - 16) & (near < first)).any()
            assert not ((near >= end) & (near < end + 16)).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("classes", [2501, 4099])
def test_the_gradient_made_later(classes: int, dtype: torch.dtype) -> None:
    z, y = draw(3, classes, dtype=dtype, seed=5, lowest=1e-3, highest=0.99)
    y[1] = -100
    weight, upstream = torch.rand(classes) + 0.5, torch.randn(3)
    for smoothing in (0.0, 0.1):
        arguments = {"reduction": "none", "label_smoothing": smoothing, "weight": weight}
        _, slope = truth(z, y, CURVE, upstream, **arguments)
        leaf = shifted_copy(z, 3).requires_grad_() if dtype == torch.float32 else z.clone().requires_grad_()
        hard_loss(leaf, y, CURVE, **arguments).backward(upstream)
        assert (leaf.grad[1] == 0).all()
        assert row_error(leaf.grad, slope).max() <= 1.01 * torch.finfo(dtype).eps + 64 * ULP


@pytest.mark.parametrize("tiling", [RESIDENT, BLOCKS], ids=["whole", "blocks"])
def test_by_products_and_gradients_of_soft_targets(tiling: Tiling) -> None:
    z, y = draw(4, 45, dtype=torch.bfloat16, seed=6)
    z[0, 7] = math.inf
    with use_tiling(tiling):
        _, stats = hard_loss(z, y, CURVE, stats=True)
        assert (stats.argmax == z.argmax(1)).all()
        torch.testing.assert_close(stats.lse[1:], z[1:].float().logsumexp(1))
        q = torch.randn(3, 45).softmax(1).bfloat16()
        leaf, target = z[1:].clone().requires_grad_(), q.clone().requires_grad_()
        soft_loss(leaf, target, CURVE, reduction="sum").backward()
    exact, exact_target = z[1:].double().requires_grad_(), q.double().requires_grad_()
    reference.soft_loss(exact, exact_target, CURVE, reduction="sum").backward()
    assert row_error(leaf.grad, exact.grad).max() <= 1.01 * 2.0**-7
    assert row_error(target.grad, exact_target.grad).max() <= 1.01 * 2.0**-7


def test_rows_have_ends_where_they_have_a_common_inner_part() -> None:
    aligned, odd = torch.zeros(4, 48, dtype=torch.bfloat16), torch.zeros(4, 45, dtype=torch.bfloat16)
    assert ends_of(aligned) == (0, 0)
    assert ends_of(odd) == (8, 0)
    assert ends_of(shifted_copy(aligned, 3)) == (8, 3)
    assert ends_of(odd, torch.zeros(4, 45)) == (8, 0)
    assert ends_of(torch.zeros(4, 45), torch.zeros(4, 45)) == (4, 0)
    assert ends_of(odd, shifted_copy(odd, 1)) == (0, 0)  # aligned in different ways
    assert ends_of(odd, torch.zeros(4, 48, dtype=torch.bfloat16)[:, :45]) == (0, 0)
    assert ends_of(odd.t().contiguous().t()) == (0, 0)
