"""Output layer and loss in chunks against the plain layer and a plain formula, in float64 autograd."""

from __future__ import annotations

import itertools
import os

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from encouraging import curve_loss, curves
from encouraging.errors import ArgumentError, DtypeError, ShapeError, TargetError
from encouraging.ops.linear import linear_curve_loss
from encouraging.ops.linear_chunks import ACCUMULATORS, chunk_rows
from linear_cases import CLASSES, ROW_BYTES, ROWS, WIDTH, assert_close, draw, gradients
from plain_formula import CURVES, plain_loss


@pytest.mark.parametrize("curve", CURVES, ids=repr)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_value_and_gradients_are_those_of_the_layer_followed_by_the_loss(curve, reduction):
    cases = itertools.product([True, False], [0.0, 0.2], [None, "weights"], [7, 36])
    for seed, (bias, smoothing, weighted, rows) in enumerate(cases):
        hidden, weight, shift, target = draw(seed, bias=bias)
        target[::5] = 3
        class_weight = torch.rand(CLASSES, dtype=torch.float64) + 0.1 if weighted else None
        ours = linear_curve_loss(hidden, weight, target, curve, shift, class_weight, 3, reduction, smoothing,
                                 chunk_bytes=rows * ROW_BYTES)
        theirs = plain_loss(F.linear(hidden, weight, shift), target, curve, class_weight, 3, reduction, smoothing)
        upstream = torch.randn_like(theirs)
        assert ours.shape == theirs.shape
        assert_close([ours], [theirs])
        leaves = [hidden, weight, shift]
        assert_close(gradients(ours, leaves, upstream), gradients(theirs, leaves, upstream), rtol=1e-10)


def test_leading_dimensions_are_kept():
    hidden, weight, shift, target = draw(0, rows=24)
    flat = linear_curve_loss(hidden, weight, target, curves.normal(), shift, reduction="none")
    shaped = linear_curve_loss(hidden.reshape(2, 3, 4, WIDTH), weight, target.reshape(2, 3, 4), curves.normal(), shift,
                               reduction="none")
    assert torch.equal(flat.reshape(2, 3, 4), shaped)
    one = linear_curve_loss(hidden[0], weight, target[0], curves.normal(), shift, reduction="none")
    assert one.shape == ()
    torch.testing.assert_close(one, flat[0])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_second_backward_through_a_retained_graph_gives_the_same_again(reduction):
    hidden, weight, shift, target = draw(1)
    loss = linear_curve_loss(hidden, weight, target, curves.conservative(), shift, reduction=reduction,
                             chunk_bytes=8 * ROW_BYTES)
    theirs = plain_loss(F.linear(hidden, weight, shift), target, curves.conservative(), reduction=reduction)
    leaves = [hidden, weight, shift]
    for scale in (3.0, 0.0, -0.5):
        upstream = torch.full_like(loss, scale)
        expected = torch.autograd.grad(theirs, leaves, upstream, retain_graph=True)
        got = torch.autograd.grad(loss, leaves, upstream, retain_graph=True)
        assert_close(list(got), list(expected))
        for tensor in got:
            tensor.fill_(torch.nan)  # what was handed out belongs to the caller


def test_accumulated_gradients_of_two_backwards_add_up():
    hidden, weight, shift, target = draw(2)
    loss = linear_curve_loss(hidden, weight, target, curves.normal(), shift)
    loss.backward(retain_graph=True)
    once = weight.grad.clone()
    (2 * loss).backward()
    torch.testing.assert_close(weight.grad, 3 * once)


@pytest.mark.parametrize("frozen", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_frozen_side_costs_no_product_and_the_others_are_right(frozen, reduction):
    hidden, weight, shift, target = draw(3)
    leaves = [hidden, weight, shift]
    for leaf, is_frozen in zip(leaves, frozen, strict=True):
        leaf.requires_grad_(not is_frozen)
    with Watch() as watch:
        loss = linear_curve_loss(hidden, weight, target, curves.normal(), shift, reduction=reduction,
                                 chunk_bytes=8 * ROW_BYTES)
        if not all(frozen):
            loss.sum().backward()
    chunks = 5
    forward = chunks * (2 if reduction == "none" and not all(frozen) else 1)
    assert watch.products == forward + chunks * (2 - frozen[0] - frozen[1])
    if all(frozen):
        assert not loss.requires_grad
        return
    expected = plain_loss(F.linear(hidden, weight, shift), target, curves.normal(), reduction=reduction).sum()
    live = [leaf for leaf in leaves if leaf.requires_grad]
    assert_close([leaf.grad for leaf in live], gradients(expected, live))
    assert all(leaf.grad is None for leaf in leaves if not leaf.requires_grad)


class Watch(TorchDispatchMode):
    """The largest tensor made, and the matrix products run."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.products += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_)
        result = func(*args, **kwargs or {})
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.largest = max(self.largest, leaf.untyped_storage().nbytes() // leaf.element_size())
        return result


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("soft", [False, True])
def test_no_tensor_is_ever_larger_than_a_chunk_of_the_logits(reduction, smoothing, soft):
    rows, classes, chunk = 512, 300, 32
    hidden, weight, shift, target = draw(4, rows=rows, classes=classes)
    target = F.one_hot(target, classes).double() if soft else target
    with Watch() as watch:
        loss = linear_curve_loss(hidden, weight, target, curves.conservative(), shift, reduction=reduction,
                                 label_smoothing=smoothing, chunk_bytes=chunk * classes * 8)
        loss.sum().backward()
    allowed = rows * classes if soft else chunk * classes  # a soft target is itself as large as the logits
    assert watch.largest <= allowed
    with Watch() as plain:
        F.cross_entropy(F.linear(hidden, weight, shift), target)
    assert plain.largest >= rows * classes


def test_float32_accumulation_is_more_exact_than_the_weights_own_type():
    errors = {}
    hidden, weight, _, target = draw(5, bias=False, dtype=torch.bfloat16, rows=2048, classes=16, width=32)
    exact = plain_loss(F.linear(hidden.double(), weight.double()), target, curves.normal())
    reference = gradients(exact, [weight])[0].double()
    for accumulate in ("float32", "weight"):
        loss = linear_curve_loss(hidden, weight, target, curves.normal(), accumulate=accumulate, chunk_bytes=512)
        gradient = gradients(loss, [weight])[0]
        assert gradient.dtype == torch.bfloat16
        errors[accumulate] = ((gradient.double() - reference).norm() / reference.norm()).item()
    assert errors["float32"] < 0.5 * errors["weight"]
    assert errors["float32"] < 0.01


def test_float16_neither_overflows_nor_underflows():
    """A mean over many rows divides after the sum: entries near 1e-8 and sums near 1e5 are both out of range."""
    hidden, weight, _, target = draw(6, bias=False, dtype=torch.float16, rows=4096, classes=8, width=4)
    with torch.no_grad():
        hidden.mul_(0.05).add_(40)  # all rows alike: the sum over rows is large, the mean is not
    exact = gradients(plain_loss(F.linear(hidden.double(), weight.double()), target, curves.normal()), [weight])[0]
    for accumulate, rows in itertools.product(("float32", "weight"), (512, 4096)):
        loss = linear_curve_loss(hidden, weight, target, curves.normal(), accumulate=accumulate, chunk_bytes=rows * 16)
        gradient = gradients(loss, [weight])[0]
        assert gradient.isfinite().all()
        assert_close([gradient], [exact], rtol=0.01)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_all_rows_ignored(reduction):
    hidden, weight, shift, target = draw(7)
    loss = linear_curve_loss(hidden, weight, torch.full_like(target, -100), curves.normal(), shift, reduction=reduction)
    assert loss.isnan() if reduction == "mean" else (loss == 0).all()
    for gradient in gradients(loss, [hidden, weight, shift], torch.ones_like(loss)):
        assert (gradient == 0).all()


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_an_empty_batch(reduction):
    hidden, weight, shift, target = draw(8, rows=0)
    loss = linear_curve_loss(hidden, weight, target, curves.normal(), shift, reduction=reduction)
    torch.testing.assert_close(loss, F.cross_entropy(F.linear(hidden, weight, shift), target, reduction=reduction),
                               equal_nan=True)
    for gradient, leaf in zip(gradients(loss.sum(), [hidden, weight, shift]), (hidden, weight, shift), strict=True):
        assert gradient.shape == leaf.shape
        assert (gradient == 0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_soft_targets(smoothing, reduction):
    hidden, weight, shift, _ = draw(9)
    share = torch.rand(ROWS, CLASSES, dtype=torch.float64).softmax(1)
    class_weight = torch.rand(CLASSES, dtype=torch.float64)
    ours = linear_curve_loss(hidden, weight, share, curves.cross_entropy(), shift, class_weight, reduction=reduction,
                             label_smoothing=smoothing, chunk_bytes=5 * ROW_BYTES)
    theirs = F.cross_entropy(F.linear(hidden, weight, shift), share, class_weight, reduction=reduction,
                             label_smoothing=smoothing)
    upstream = torch.randn_like(theirs)
    assert_close([ours], [theirs])
    leaves = [hidden, weight, shift]
    assert_close(gradients(ours, leaves, upstream), gradients(theirs, leaves, upstream))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("of_target", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_loss_of_probabilities_has_the_more_precise_type(dtype, of_target, reduction):
    hidden, weight, shift, _ = draw(11, dtype=dtype)
    share = torch.rand(ROWS, CLASSES).softmax(1).to(of_target)
    loss = linear_curve_loss(hidden, weight, share, curves.normal(), shift, reduction=reduction)
    assert loss.dtype == curve_loss(F.linear(hidden, weight, shift), share, curves.normal(), reduction=reduction).dtype
    leaves = [hidden, weight, shift]
    for gradient, leaf in zip(gradients(loss, leaves, torch.ones_like(loss)), leaves, strict=True):
        assert gradient.dtype == leaf.dtype


def test_autocast_multiplies_in_16_bits_and_keeps_the_gradients_of_float32_weights_in_float32():
    hidden, weight, shift, target = draw(13, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_curve_loss(hidden, weight, target, curves.normal(), shift, chunk_bytes=8 * CLASSES * 2)
    assert loss.dtype == torch.float32
    logits = F.linear(*(leaf.bfloat16().double() for leaf in (hidden, weight, shift)))
    torch.testing.assert_close(loss.double(), plain_loss(logits, target, curves.normal()), rtol=1e-2, atol=0)
    for gradient, leaf in zip(gradients(loss, [hidden, weight, shift]), (hidden, weight, shift), strict=True):
        assert gradient.dtype == leaf.dtype == torch.float32
    assert loss.item() != linear_curve_loss(hidden, weight, target, curves.normal(), shift).item()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter is numpy, which warns where a GPU does not
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_kernels_over_the_chunks_mean_the_same(reduction, smoothing):
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for accumulate, dtype in itertools.product(ACCUMULATORS, (torch.float32, torch.bfloat16, torch.float16)):
        hidden, weight, shift, target = draw(16, dtype=dtype)
        target[::4] = 2
        leaves = [leaf.detach().to(device).requires_grad_() for leaf in (hidden, weight, shift)]
        class_weight = torch.rand(CLASSES, device=device)
        upstream = torch.randn(ROWS if reduction == "none" else (), device=device)
        found = []
        for impl in ("triton", "reference"):
            loss = linear_curve_loss(*leaves[:2], target.to(device), curves.conservative(), leaves[2], class_weight, 2,
                                     reduction, smoothing, chunk_bytes=8 * CLASSES * dtype.itemsize,
                                     accumulate=accumulate, impl=impl)
            first = torch.autograd.grad(loss, leaves, upstream.to(loss.dtype), retain_graph=True)
            again = torch.autograd.grad(loss, leaves, upstream.to(loss.dtype))
            assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
            found.append([loss, *first])
        assert_close(*found, rtol=8 * torch.finfo(dtype).eps)


def test_without_gradients_nothing_is_kept():
    hidden, weight, shift, target = draw(14)
    with Watch() as watch, torch.no_grad():
        loss = linear_curve_loss(hidden, weight, target, curves.normal(), shift, chunk_bytes=8 * ROW_BYTES)
    assert watch.products == 5
    assert not loss.requires_grad
    torch.testing.assert_close(loss, plain_loss(F.linear(hidden, weight, shift), target, curves.normal()).detach())


def test_inputs_that_were_overwritten_before_backward_are_noticed():
    hidden, weight, shift, target = draw(15)
    loss = linear_curve_loss(hidden, weight, target, curves.normal(), shift)
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("shape", [(8192, 128256), (8192, 256000), (16384, 32000)])
def test_default_chunks_of_language_models(shape):
    assert chunk_rows(*shape, 2, 4, None) == 4096
    assert chunk_rows(*shape, 2, 2, None) == 2048


def test_chunks_keep_to_the_budget_and_cover_the_rows():
    for rows, classes, budget in itertools.product((0, 1, 100, 129, 5000), (1, 11, 50000), (1, 4096, 10**6, 10**9)):
        chunk = chunk_rows(rows, classes, 4, 4, budget)
        assert chunk >= 1
        assert chunk == 1 or chunk * classes * 4 <= budget
    assert chunk_rows(5000, 32000, 2, 4, 4096 * 64000) % 128 == 0


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"target": torch.tensor([0, CLASSES])}, TargetError, "classes"),
    ({"target": torch.tensor([0, -1])}, TargetError, "classes"),
    ({"target": torch.tensor([0, 1, 2])}, ShapeError, "expected labels"),
    ({"weight": torch.zeros(CLASSES, WIDTH + 1)}, ShapeError, "do not multiply"),
    ({"bias": torch.zeros(3)}, ShapeError, "bias"),
    ({"weight": torch.zeros(CLASSES, WIDTH, dtype=torch.float64)}, DtypeError, "one type"),
    ({"class_weight": torch.zeros(3)}, ShapeError, r"class_weight has shape \(3,\)"),
    ({"class_weight": torch.zeros(CLASSES, dtype=torch.long)}, DtypeError, "class_weight is torch.int64"),
    ({"class_weight": torch.zeros(CLASSES, device="meta")}, ArgumentError, "class_weight is on meta"),
    ({"class_weight": torch.zeros(CLASSES).to_sparse()}, ArgumentError, "class_weight.to_dense"),
    ({"reduction": "avg"}, ArgumentError, "reduction"),
    ({"accumulate": "bf16"}, ArgumentError, "accumulate"),
    ({"chunk_bytes": 0}, ArgumentError, "chunk_bytes"),
    ({"chunk_bytes": True}, ArgumentError, "chunk_bytes=True"),
    ({"impl": "foo"}, ArgumentError, "impl='foo'"),
    ({"impl": "foo", "class_weight": torch.ones(CLASSES, requires_grad=True)}, ArgumentError, "impl='foo'"),
    ({"impl": "triton", "class_weight": torch.ones(CLASSES, requires_grad=True)}, ArgumentError, "need a gradient"),
    ({"target": [0, 1]}, DtypeError, "target is a list"),
    ({"bias": [0.0]}, DtypeError, "bias is a list"),
    ({"label_smoothing": 2.0}, ArgumentError, "label_smoothing"),
])
def test_what_does_not_fit_is_refused_in_words(change, error, words):
    arguments = {"hidden": torch.zeros(2, WIDTH), "weight": torch.zeros(CLASSES, WIDTH), "target": torch.tensor([0, 1])}
    with pytest.raises(error, match=words):
        linear_curve_loss(**{**arguments, **change}, curve=curves.normal())
