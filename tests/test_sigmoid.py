"""The sigmoid forms: each class on its own."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from encouraging import SigmoidCurveLoss, curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss
from encouraging.errors import ShapeError
from paper_formulas import ALL_CURVES, edges, phi
from strategies import CURVES, REDUCTIONS, SEEDS, generator

CE = curves.cross_entropy()
SHAPES = st.sampled_from([(), (0,), (5,), (2, 3), (2, 3, 4), (2, 1, 3, 2)])
EPS = 2.0**-52


def draws(shape, seed: int, kind: str):
    g = generator(seed)
    logits = 8 * torch.randn(shape, generator=g, dtype=torch.float64)
    target = torch.randint(2, shape, generator=g)
    if kind == "float":
        target = target.double()
    if kind == "probability":
        target = torch.rand(shape, generator=g, dtype=torch.float64)
    if kind == "bool":
        target = target.bool()
    return logits, target


KINDS = st.sampled_from(["int", "bool", "float", "probability"])


@settings(max_examples=150)
@given(shape=SHAPES, seed=SEEDS, kind=KINDS, reduction=REDUCTIONS, weighted=st.booleans(), positives=st.booleans())
def test_with_the_cross_entropy_curve_it_is_torchs_for_all_arguments(shape, seed, kind, reduction, weighted, positives):
    logits, target = draws(shape, seed, kind)
    g = generator(seed + 1)
    weight = torch.rand(shape[-1:], generator=g, dtype=torch.float64) if weighted else None
    pos_weight = 3 * torch.rand(shape[-1:], generator=g, dtype=torch.float64) if positives else None
    results = []
    for loss in (lambda z: sigmoid_curve_loss(z, target, CE, weight, reduction, pos_weight),
                 lambda z: F.binary_cross_entropy_with_logits(z, target.double(), weight, reduction=reduction,
                                                              pos_weight=pos_weight)):
        z = logits.clone().requires_grad_()
        value = loss(z)
        upstream = torch.randn(value.shape, generator=generator(seed), dtype=torch.float64)
        results.append((value.detach(), torch.autograd.grad(value, z, upstream)[0]))
    (ours, our_gradient), (torchs, torch_gradient) = results
    assert ours.shape == torchs.shape
    # torch's loss is a sum of numbers the size of the logit.
    unit = 16 * EPS * (1 + (logits.abs().max().item() if logits.numel() else 0)) * max(1, logits.numel())
    torch.testing.assert_close(ours, torchs, rtol=1e-13, atol=unit, equal_nan=True)
    torch.testing.assert_close(our_gradient, torch_gradient, rtol=1e-13, atol=unit)


def detection_focal_loss(inputs, targets, alpha, gamma):
    """Sigmoid focal loss as detectors write it (Lin et al. 2017)."""
    p = torch.sigmoid(inputs)
    ce = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    loss = ce * (1 - p_t) ** gamma
    return loss if alpha is None else (alpha * targets + (1 - alpha) * (1 - targets)) * loss


@given(seed=SEEDS, shape=SHAPES, alpha=st.sampled_from([None, 0.25, 0.0, 1.0]),
       gamma=st.sampled_from([0.0, 1.0, 2.0, 3.5]), kind=st.sampled_from(["int", "float"]))
def test_focal_with_alpha_is_detections_focal_loss(seed, shape, alpha, gamma, kind):
    logits, target = draws(shape, seed, kind)
    results = []
    for loss in (lambda z: sigmoid_curve_loss(z, target, curves.focal(gamma), reduction="none", alpha=alpha),
                 lambda z: detection_focal_loss(z, target.double(), alpha, gamma)):
        z = logits.clone().requires_grad_()
        value = loss(z)
        results.append((value.detach(), torch.autograd.grad(value.sum(), z)[0]))
    # Theirs takes 1 - p_t from p_t.
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-13)


@given(seed=SEEDS, curve=CURVES, kind=KINDS, alpha=st.sampled_from([None, 0.3]), positives=st.booleans())
def test_any_curve_is_its_formula_on_both_sides(seed, curve, kind, alpha, positives):
    """t w phi(sigma(z)) + (1-t) phi(1 - sigma(z)), alpha and 1 - alpha before them."""
    logits, target = draws((3, 4), seed, kind)
    logits = logits / 4
    p = torch.sigmoid(logits)
    assume(all((logits.abs() - abs(edge)).abs().min() > 1e-6 for edge in edges(curve)))
    pos_weight = torch.tensor(2.5, dtype=torch.float64) if positives else None
    t = target.double()
    up, down = (1.0, 1.0) if alpha is None else (alpha, 1 - alpha)
    formula = t * up * (2.5 if positives else 1.0) * phi(curve, p) + (1 - t) * down * phi(curve, torch.sigmoid(-logits))
    ours = sigmoid_curve_loss(logits, target, curve, reduction="none", alpha=alpha, pos_weight=pos_weight)
    torch.testing.assert_close(ours, formula, rtol=1e-9, atol=1e-11)


@given(seed=SEEDS, bonus=st.booleans(), reduction=REDUCTIONS)
def test_the_square_curve_is_the_mse_of_the_sigmoid_with_or_without_mirror(seed, bonus, reduction):
    logits, _ = draws((6, 4), seed, "int")
    label = torch.randint(4, (6,), generator=generator(seed))
    presence = F.one_hot(label, 4)
    ours = sigmoid_curve_loss(logits, presence, curves.square(bonus), reduction=reduction)
    mse = mirror_mse_loss(logits, label, bonus=bonus, link="sigmoid", reduction=reduction)
    torch.testing.assert_close(ours, mse, rtol=1e-13, atol=1e-14)
    p = logits.sigmoid()
    plain = 2 * (presence - p).abs() - 1 if bonus else (presence - p) ** 2
    torch.testing.assert_close(sigmoid_curve_loss(logits, presence, curves.square(bonus), reduction="none"), plain,
                               rtol=0, atol=8 * EPS)


@given(seed=SEEDS, curve=CURVES)
def test_two_classes_of_a_softmax_are_one_sigmoid_of_their_difference(seed, curve):
    logits, target = draws((7,), seed, "int")
    two = torch.stack([torch.zeros_like(logits), logits], 1)
    torch.testing.assert_close(curve_loss(two, target, curve, reduction="none"),
                               sigmoid_curve_loss(logits, target, curve, reduction="none"), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["int", "probability"])
def test_the_result_has_the_inputs_type_and_float32_under_autocast(dtype, kind):
    logits, target = draws((3, 4), 0, kind)
    logits = logits.to(dtype).requires_grad_()
    target = target.to(dtype) if kind == "probability" else target
    loss = sigmoid_curve_loss(logits, target, curves.conservative())
    assert loss.dtype == dtype
    assert torch.autograd.grad(loss, logits)[0].dtype == dtype
    exact = sigmoid_curve_loss(logits.double(), target, curves.conservative())
    torch.testing.assert_close(loss.double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps)
    with torch.autocast("cpu", torch.bfloat16):
        expected = torch.float32 if dtype.itemsize < 4 else dtype
        assert sigmoid_curve_loss(logits, target, curves.conservative()).dtype == expected


@given(seed=SEEDS, curve=CURVES)
def test_where_a_class_is_surely_present_or_absent_its_other_side_counts_nothing(seed, curve):
    logits, target = draws((5,), seed, "int")
    as_floats = sigmoid_curve_loss(logits, target.double(), curve, reduction="none")
    torch.testing.assert_close(as_floats, sigmoid_curve_loss(logits, target, curve, reduction="none"),
                               rtol=1e-15, atol=0)


def test_an_infinite_logit_is_a_certain_class():
    z = torch.tensor([torch.inf, -torch.inf, -torch.inf], requires_grad=True)
    loss = sigmoid_curve_loss(z, torch.tensor([1, 0, 1]), CE, reduction="none")
    assert loss.tolist() == [0, 0, torch.inf]
    assert torch.autograd.grad(loss[:2].sum(), z)[0].tolist() == [0, 0, 0]


@given(seed=SEEDS, reduction=REDUCTIONS)
def test_class_indices_are_zeros_and_ones(seed, reduction):
    g = generator(seed)
    logits = 8 * torch.randn(4, 3, 5, generator=g, dtype=torch.float64)
    index = torch.randint(-1, 6, (4, 3), generator=g)  # -1 and 5 name no class
    present = (index[..., None] == torch.arange(5)).long()
    weight, pos_weight = torch.rand(3, 1, generator=g), 3 * torch.rand(5, generator=g)
    found, expected = (sigmoid_curve_loss(logits, target, curves.focal(2.0), weight, reduction, pos_weight, alpha=0.25)
                       for target in (index, present))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", ["int", "uint8", "bool", "float"])
@pytest.mark.parametrize("shape", [(4, 1), (1,), (2, 3, 1)])
def test_labels_without_the_axis_of_a_single_logit_are_not_taken_for_class_indices(shape, kind):
    logits, target = draws(shape, 0, "int")
    target = target.to({"int": torch.int64, "uint8": torch.uint8, "bool": torch.bool, "float": torch.float64}[kind])
    for call in (sigmoid_curve_loss, lambda z, t, curve: SigmoidCurveLoss(curve)(z, t)):
        with pytest.raises(ShapeError, match=r"pass input\[\.\.\., 0\], or target\[\.\.\., None\]"):
            call(logits, target[..., 0], CE)
    both_ways = [sigmoid_curve_loss(logits[..., 0], target[..., 0], CE),
                 sigmoid_curve_loss(logits, target[..., 0][..., None], CE)]
    expected = F.binary_cross_entropy_with_logits(logits, target.double())
    assert [loss.item() for loss in both_ways] == pytest.approx([expected.item()] * 2, rel=1e-12)


@given(seed=SEEDS, kind=KINDS)
def test_negatives_may_have_a_curve_of_their_own(seed, kind):
    logits, target = draws((2, 3, 4), seed, kind)
    positive, negative = curves.focal(1.0), curves.normal()
    found = sigmoid_curve_loss(logits, target, positive, negative_curve=negative, reduction="none")
    both = [sigmoid_curve_loss(logits, torch.full_like(logits, share), curve, reduction="none")
            for share, curve in ((1.0, positive), (0.0, negative))]
    torch.testing.assert_close(found, target.double() * both[0] + (1 - target.double()) * both[1], rtol=1e-12,
                               atol=1e-12)
    module = SigmoidCurveLoss(positive, negative_curve=negative)
    assert torch.equal(module(logits, target), found.mean())
    assert repr(module) == "SigmoidCurveLoss(curve=focal(gamma=1.0), negative_curve=normal(eps=1e-05))"


@pytest.mark.parametrize("alpha", [None, 0.25, 0.0])
def test_targets_of_0_and_1_have_the_bits_of_bool_ones_in_about_their_time(alpha):
    g = generator(0)
    logits, present = 5 * torch.randn(300, 1000, generator=g), torch.rand(300, 1000, generator=g) < 0.1
    results, times = [], []
    for target in (present, present.float()):
        leaf, steps = logits.clone().requires_grad_(), []
        for _ in range(8):
            leaf.grad, start = None, time.process_time()
            loss = sigmoid_curve_loss(leaf, target, curves.focal(2.0), alpha=alpha)
            loss.backward()
            steps.append(time.process_time() - start)
        results.append((loss.detach(), leaf.grad))
        times.append(min(steps))
    torch.testing.assert_close(*results, rtol=0, atol=0)
    assert alpha == 0 or times[1] < 1.4 * times[0], times  # 1.9 with both values of every logit
    target = present.float().requires_grad_()
    sigmoid_curve_loss(logits, target, curves.focal(2.0)).backward()
    assert bool(target.grad.any())


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_float_targets_of_0_and_1_are_integers_also_at_infinite_logits(curve):
    z = torch.tensor([-torch.inf, -3.0, 0.0, 5.0, torch.inf] * 2, dtype=torch.float64, requires_grad=True)
    present = torch.tensor([0] * 5 + [1] * 5)
    for arguments in ({}, {"alpha": 0.25}, {"pos_weight": torch.tensor(3.0)}, {"weight": torch.tensor(2.0)}):
        ours, theirs = (sigmoid_curve_loss(z, target, curve, reduction="none", **arguments)
                        for target in (present.double(), present))
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*(torch.autograd.grad(loss.sum(), z)[0] for loss in (ours, theirs)))


def test_a_target_that_needs_a_gradient_still_gets_it():
    z, presence = torch.tensor([1.0, -2.0]), torch.tensor([0.0, 1.0], requires_grad=True)
    curve = curves.conservative()
    sigmoid_curve_loss(z, presence, curve, reduction="sum").backward()
    torch.testing.assert_close(presence.grad, curve.value(z) - curve.value(-z))
