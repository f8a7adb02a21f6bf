"""The re-weighted loss with two divisors: the authors' formula, written down."""

from __future__ import annotations

import pytest
import torch

from encouraging import CurveLoss, curves
from encouraging.errors import ArgumentError, DtypeError
from encouraging.imbalance import effective_weights, reweighted_loss

COUNTS = torch.tensor([500, 60, 5, 200])


def batch(dtype=torch.float64, rows=32, seed=0):
    random = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(rows, 4, generator=random)).to(dtype).requires_grad_()
    return logits, torch.randint(4, (rows,), generator=random), effective_weights(COUNTS).to(dtype)


def formula(logits, labels, weight):
    """Cross-entropy divided by the weights of the batch, the bonus log(1 - p), clamped as in the paper, by its rows."""
    p = torch.softmax(logits, 1)[torch.arange(len(labels)), labels]
    w = weight[labels]
    bonus = torch.log((1 - p).clamp(min=curves.normal().eps))
    return (w * -p.log()).sum() / w.sum() + (w * bonus).sum() / len(labels)


def test_it_is_the_authors_formula_and_so_is_its_gradient():
    logits, labels, weight = batch()
    ours, theirs = reweighted_loss(logits, labels, weight), formula(logits, labels, weight)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    (a,), (b,) = torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits)
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("curve", [curves.normal(), curves.conservative(0.5), curves.aggressive(0.5)])
def test_equal_weights_give_the_plain_loss(curve):
    logits, labels, _ = batch(torch.float32)
    torch.testing.assert_close(reweighted_loss(logits, labels, torch.ones(4), curve), CurveLoss(curve)(logits, labels))


def test_a_label_at_minus_infinity_has_an_infinite_loss_and_leaves_other_rows_their_gradients():
    logits, labels, weight = batch(rows=6)
    masked = logits.detach().clone()
    masked[2, labels[2]] = -torch.inf
    masked.requires_grad_()
    loss = reweighted_loss(masked, labels, weight)
    assert loss.item() == torch.inf
    (gradient,) = torch.autograd.grad(loss, masked)
    (expected,) = torch.autograd.grad(reweighted_loss(logits, labels, weight), logits)
    others = torch.arange(6) != 2
    torch.testing.assert_close(gradient[others], expected[others])
    assert gradient.isfinite().all()


def test_ignored_rows_count_in_no_divisor():
    logits, labels, weight = batch()
    ignored = labels.clone()
    ignored[::3] = -100
    kept = ignored != -100
    torch.testing.assert_close(reweighted_loss(logits, ignored, weight), formula(logits[kept], labels[kept], weight))


def test_maps_of_labels_are_rows():
    logits, labels, weight = batch(rows=24)
    maps = logits.reshape(2, 12, 4).transpose(1, 2).reshape(2, 4, 3, 4)
    torch.testing.assert_close(reweighted_loss(maps, labels.reshape(2, 3, 4), weight), formula(logits, labels, weight))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_labels_of_any_integer_type_are_class_indices(dtype):
    """torch reads an index of bytes as a mask, and says nothing where there are as many rows as classes."""
    logits, labels, weight = batch(rows=4, seed=1)
    torch.testing.assert_close(reweighted_loss(logits, labels.to(dtype), weight), formula(logits, labels, weight))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16])
def test_a_label_with_the_bits_of_ignore_index_counts(dtype):
    """In uint8, -100 is the label 156; for uint16 torch has few operations."""
    logits, labels = torch.randn(4, 200, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 156, 3, 156])
    weight = torch.linspace(0.5, 1.5, 200)
    torch.testing.assert_close(reweighted_loss(logits, labels.to(dtype), weight),
                               reweighted_loss(logits, labels, weight))


def test_half_precision_is_read_in_float32():
    logits, labels, weight = batch(torch.bfloat16)
    loss = reweighted_loss(logits, labels, weight)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), formula(logits.double(), labels, weight.double()), rtol=1e-5, atol=1e-5)
    loss.backward()
    assert logits.grad.dtype == torch.bfloat16


def test_probabilities_and_lists_are_refused():
    with pytest.raises(ArgumentError, match="class indices"):
        reweighted_loss(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(3))
    with pytest.raises(DtypeError, match="target is a list"):
        reweighted_loss(torch.zeros(2, 3), [0, 1], torch.ones(3))
    with pytest.raises(DtypeError, match="input is a list"):
        reweighted_loss([[0.0, 1.0]], torch.tensor([0]), torch.ones(2))
    with pytest.raises(DtypeError, match="weight is NoneType: expected a floating-point tensor with one number per"):
        reweighted_loss(torch.zeros(2, 3), torch.tensor([0, 1]), None)


def test_learned_weights_get_their_gradient_through_the_divisor_too():
    logits, labels, weight = batch()
    ours, theirs = weight.clone().requires_grad_(), weight.clone().requires_grad_()
    reweighted_loss(logits, labels, ours).backward()
    formula(logits, labels, theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
