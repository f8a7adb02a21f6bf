"""Bad input gets one clear error, never a silent number; odd input has an outcome that its test's name states."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from encouraging import (
    CurveLoss,
    EncouragingLoss,
    LDAMLoss,
    LSoftmaxLinear,
    MirrorMSELoss,
    SigmoidCurveLoss,
    curve_loss,
    curves,
    encouraging_loss,
    errors,
    focal_loss,
    linear_curve_loss,
    mirror_mse_loss,
    sigmoid_curve_loss,
)
from encouraging.errors import ArgumentError, CurveError, DtypeError, ShapeError, TargetError
from paper_formulas import ALL_CURVES

CE = curves.cross_entropy()
Z = torch.zeros(2, 3)
Y = torch.tensor([0, 2])
inf, nan = math.inf, math.nan

REFUSED = {
    "a label out of range": (lambda: curve_loss(Z, torch.tensor([0, 3]), CE), TargetError, "label 3.*3 classes"),
    "a negative label": (lambda: curve_loss(Z, torch.tensor([0, -1]), CE), TargetError, "label -1"),
    "a label that another ignore_index would have left out":
        (lambda: curve_loss(Z, torch.tensor([0, -100]), CE, ignore_index=-1), TargetError, "label -100"),
    "a uint8 label out of range":
        (lambda: curve_loss(Z, torch.tensor([0, 156], dtype=torch.uint8), CE), TargetError, "156"),
    "labels as floats": (lambda: curve_loss(Z, Y.float(), CE), TargetError, r"target\.long\(\)"),
    "probabilities of another shape": (lambda: curve_loss(Z, torch.ones(2, 4), CE), TargetError, r"\(2, 4\)"),
    "probabilities with the classes last":
        (lambda: curve_loss(torch.zeros(2, 3, 5), torch.ones(2, 5, 3), CE), TargetError,
         r"\(2, 5, 3\).*target\.movedim\(-1, 1\)"),
    "labels of two classes for one logit each":
        (lambda: curve_loss(Z[:, :1], torch.tensor([0, 1]), CE), TargetError, r"single class.*SigmoidCurveLoss"),
    "float labels for one logit each":
        (lambda: curve_loss(Z[:, :1], torch.tensor([0.0, 1.0]), CE), TargetError, r"SigmoidCurveLoss.*input\[:, 0\]"),
    "labels of an image with an axis of one class":
        (lambda: curve_loss(torch.zeros(2, 3, 4, 5), torch.zeros(2, 1, 4, 5, dtype=torch.long), CE), ShapeError,
         r"target\.squeeze\(1\)"),
    "a single image without a batch":
        (lambda: curve_loss(torch.zeros(3, 4, 5), torch.zeros(4, 5, dtype=torch.long), CE), ShapeError,
         r"input\[None\] and target\[None\]"),
    "complex probabilities": (lambda: curve_loss(Z, torch.ones(2, 3) + 0j, CE), TargetError, "complex"),
    "one-hot integers": (lambda: curve_loss(Z, F.one_hot(Y, 3), CE), ShapeError, r"target\.float\(\)"),
    "boolean labels": (lambda: curve_loss(Z, Y.bool(), CE), DtypeError, "bool"),
    "labels of another batch": (lambda: curve_loss(Z, torch.tensor([0, 1, 2]), CE), ShapeError, r"\(3,\).*\(2, 3\)"),
    "a column of labels": (lambda: curve_loss(Z, Y[:, None], CE), ShapeError, r"\(2, 1\).*target\.squeeze\(1\)"),
    "a list as target": (lambda: curve_loss(Z, [0, 2], CE), DtypeError, "list"),
    "integer logits": (lambda: curve_loss(Z.long(), Y, CE), DtypeError, "int64"),
    "boolean logits": (lambda: curve_loss(Z.bool(), Y, CE), DtypeError, "bool"),
    "8-bit logits": (lambda: curve_loss(Z.to(torch.float8_e4m3fn), Y, CE), DtypeError, "float8"),
    "complex logits": (lambda: curve_loss(Z + 0j, Y, CE), DtypeError, "complex"),
    "a list as input": (lambda: curve_loss([[0.0, 1.0]], Y, CE), DtypeError, "list"),
    "a single number as input":
        (lambda: curve_loss(torch.tensor(1.0), torch.tensor(0), CE), ShapeError, "single number"),
    "no class": (lambda: curve_loss(torch.zeros(2, 0), torch.zeros(2, dtype=torch.long), CE), ShapeError, "no classes"),
    "a target elsewhere": (lambda: curve_loss(Z, Y.to("meta"), CE), ArgumentError, "meta"),
    "a weight elsewhere": (lambda: curve_loss(Z, Y, CE, torch.ones(3, device="meta")), ArgumentError, "meta"),
    "a weight of the wrong length": (lambda: curve_loss(Z, Y, CE, torch.ones(4)), ShapeError, r"\(4,\).*\(3,\)"),
    "a weight of two dimensions": (lambda: curve_loss(Z, Y, CE, torch.ones(2, 3)), ShapeError, r"\(2, 3\)"),
    "an integer weight": (lambda: curve_loss(Z, Y, CE, torch.ones(3, dtype=torch.long)), DtypeError, "int64"),
    "log_end without its name": (lambda: encouraging_loss(Z, Y, 0.5), DtypeError, "weight is float.*log_end=0.5"),
    "a list as weight": (lambda: curve_loss(Z, Y, CE, [1.0, 1.0, 1.0]), DtypeError, "list"),
    "an unknown reduction": (lambda: curve_loss(Z, Y, CE, reduction="avg"), ArgumentError, "'avg'"),
    "no reduction": (lambda: curve_loss(Z, Y, CE, reduction=None), ArgumentError, "None"),
    "smoothing above 1": (lambda: curve_loss(Z, Y, CE, label_smoothing=1.1), ArgumentError, "1.1"),
    "negative smoothing": (lambda: curve_loss(Z, Y, CE, label_smoothing=-0.1), ArgumentError, "-0.1"),
    "smoothing that is not a number": (lambda: curve_loss(Z, Y, CE, label_smoothing=nan), ArgumentError, "nan"),
    "smoothing as a word": (lambda: curve_loss(Z, Y, CE, label_smoothing="0.1"), ArgumentError, "'0.1'"),
    "smoothing as a truth": (lambda: curve_loss(Z, Y, CE, label_smoothing=True), ArgumentError, "True"),
    "no ignore_index": (lambda: curve_loss(Z, Y, CE, ignore_index=None), ArgumentError, "None"),
    "a label to ignore among probabilities":
        (lambda: curve_loss(Z, torch.ones(2, 3) / 3, CE, ignore_index=1), ArgumentError, "ignore_index=1"),
    "a curve's name as curve": (lambda: curve_loss(Z, Y, "focal"), DtypeError, "str"),
    "a curve's class as curve": (lambda: curve_loss(Z, Y, curves.focal), DtypeError, "by_name"),
    "an unknown implementation": (lambda: curve_loss(Z, Y, CE, impl="cuda"), ArgumentError, "'cuda'"),
    "log_end above 1": (lambda: encouraging_loss(Z, Y, log_end=1.5), CurveError, "1.5"),
    "negative log_end": (lambda: encouraging_loss(Z, Y, log_end=-0.5), CurveError, "-0.5"),
    "negative gamma": (lambda: focal_loss(Z, Y, gamma=-1.0), CurveError, "-1.0"),
    "NaN as gamma": (lambda: focal_loss(Z, Y, gamma=nan), CurveError, "nan"),
    "module: log_end above 1": (lambda: EncouragingLoss(log_end=2), CurveError, "log_end=2"),
    "module: an unknown reduction": (lambda: EncouragingLoss(reduction="avg"), ArgumentError, "'avg'"),
    "module: a word as curve": (lambda: CurveLoss("focal"), DtypeError, "str"),
    "sigmoid module: a word as curve": (lambda: SigmoidCurveLoss("focal"), DtypeError, "str"),
    "sigmoid module: an unknown reduction": (lambda: SigmoidCurveLoss(CE, reduction="avg"), ArgumentError, "'avg'"),
    "mse module: an unknown reduction": (lambda: MirrorMSELoss(reduction="avg"), ArgumentError, "'avg'"),
    "sigmoid: a target of another shape": (lambda: sigmoid_curve_loss(Z, Y.double(), CE), ShapeError,
                                           r"\(2,\).*\(2, 3\)"),
    "sigmoid: a presence above 1": (lambda: sigmoid_curve_loss(Z, Z + 2, CE), TargetError, "outside"),
    "sigmoid: a negative presence": (lambda: sigmoid_curve_loss(Z, Z.long() - 1, CE), TargetError, "outside"),
    "sigmoid: a complex presence": (lambda: sigmoid_curve_loss(Z, Z + 0j, CE), DtypeError, "complex"),
    "sigmoid: integer logits": (lambda: sigmoid_curve_loss(Z.long(), Z, CE), DtypeError, "int64"),
    "sigmoid: a word as curve": (lambda: sigmoid_curve_loss(Z, Z, "focal"), DtypeError, "str"),
    "sigmoid: alpha above 1": (lambda: sigmoid_curve_loss(Z, Z, CE, alpha=1.5), ArgumentError, "1.5"),
    "sigmoid: a weight that does not broadcast":
        (lambda: sigmoid_curve_loss(Z, Z, CE, torch.ones(4)), ShapeError, r"^weight.*\(4,\)"),
    "sigmoid: a weight larger than the input":
        (lambda: sigmoid_curve_loss(Z, Z, CE, torch.ones(5, 2, 3)), ShapeError, r"\(5, 2, 3\)"),
    "sigmoid: a pos_weight that does not broadcast":
        (lambda: sigmoid_curve_loss(Z, Z, CE, pos_weight=torch.ones(2)), ShapeError, r"pos_weight.*\(2,\)"),
    "sigmoid: a number as weight": (lambda: sigmoid_curve_loss(Z, Z, CE, 2.0), DtypeError, "float"),
    "mse: an unknown link": (lambda: mirror_mse_loss(Z, Y, link="tanh"), ArgumentError, "'tanh'"),
    "mse: an unknown reduction": (lambda: mirror_mse_loss(Z, Y, reduction="avg"), ArgumentError, "'avg'"),
    "mse: a label out of range": (lambda: mirror_mse_loss(Z, torch.tensor([0, 3])), TargetError, "0 to 2"),
    "mse: a label to ignore": (lambda: mirror_mse_loss(Z, torch.tensor([0, -100])), TargetError, "0 to 2"),
    "ldam: no examples of a class": (lambda: LDAMLoss(torch.tensor([3, 0])), ArgumentError, "class 1 has the count 0"),
    "ldam: another number of classes": (lambda: LDAMLoss(torch.tensor([3, 1]))(Z, Y), ShapeError, "3 classes.*2"),
    "ldam: probabilities": (lambda: LDAMLoss(torch.tensor([3, 1, 1]))(Z, Z), ShapeError, "labels"),
    "ldam: a label out of range":
        (lambda: LDAMLoss(torch.tensor([3, 1, 1]))(Z, torch.tensor([0, 3])), TargetError, "label 3"),
    "l-softmax: a margin of 5": (lambda: LSoftmaxLinear(4, 3, 5), ArgumentError, "margin=5"),
    "l-softmax: a negative beta": (lambda: LSoftmaxLinear(4, 3, beta=-1.0), ArgumentError, "beta=-1.0"),
    "l-softmax: a label out of range":
        (lambda: LSoftmaxLinear(4, 3)(torch.zeros(2, 4), torch.tensor([0, 3])), TargetError, "0 to 2"),
    "l-softmax: a negative label":
        (lambda: LSoftmaxLinear(4, 3)(torch.zeros(2, 4), torch.tensor([0, -1])), TargetError, "0 to 2"),
    "l-softmax: labels as floats": (lambda: LSoftmaxLinear(4, 3)(torch.zeros(2, 4), Y.float()), DtypeError, "float32"),
    "l-softmax: labels of another batch":
        (lambda: LSoftmaxLinear(4, 3)(torch.zeros(2, 4), torch.tensor([0])), ShapeError, r"\(1,\)"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_with_one_clear_error(what):
    call, kind, message = REFUSED[what]
    with pytest.raises(kind, match=message):
        call()


def test_every_error_is_a_value_error_or_a_type_error():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    assert kinds
    assert all(issubclass(kind, (ValueError, TypeError)) for kind in kinds)


# Odd input


def outcome(logits, target, curve=CE, **arguments) -> tuple[float, list]:
    z = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    loss = curve_loss(z, torch.as_tensor(target), curve, **arguments)
    loss.backward()
    return loss.item(), z.grad.tolist()


@pytest.mark.parametrize("weight", [None, torch.ones(3, dtype=torch.float64)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_all_rows_ignored_the_mean_is_nan_as_torchs_the_sum_0_and_the_gradient_0(curve, smoothing, weight):
    z = [[1.0, 2.0, 3.0], [nan, inf, 0.0]]
    loss, gradient = outcome(z, [-100, -100], curve, label_smoothing=smoothing, weight=weight)
    assert math.isnan(loss)
    assert gradient == [[0, 0, 0], [0, 0, 0]]
    assert outcome(z, [-100, -100], curve, label_smoothing=smoothing, weight=weight, reduction="sum") == (0, gradient)


@pytest.mark.parametrize("target", [torch.zeros(0, dtype=torch.long), torch.zeros(0, 3)])
def test_an_empty_batch_has_a_nan_mean_a_zero_sum_and_an_empty_gradient(target):
    z = torch.zeros(0, 3, requires_grad=True)
    for smoothing in (0.0, 0.1):
        assert curve_loss(z, target, CE, label_smoothing=smoothing).isnan()
        assert curve_loss(z, target, CE, label_smoothing=smoothing, match_norm=True).isnan()
        total = curve_loss(z, target, CE, label_smoothing=smoothing, reduction="sum")
        assert total == 0
        assert torch.autograd.grad(total, z)[0].shape == (0, 3)
        assert curve_loss(z, target, CE, label_smoothing=smoothing, reduction="none").shape == (0,)


def test_rows_whose_weights_are_all_0_have_a_nan_mean_as_torchs():
    weight = torch.tensor([0.0, 1.0, 1.0])
    assert F.cross_entropy(torch.zeros(1, 3), torch.tensor([0]), weight).isnan()
    assert curve_loss(torch.zeros(1, 3), torch.tensor([0]), CE, weight).isnan()


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_a_single_class_has_the_curves_value_at_an_infinite_gap_and_no_gradient(curve, smoothing, soft):
    target = torch.ones(1, 1, dtype=torch.float64) if soft else [0]
    loss, gradient = outcome([[2.0]], target, curve, label_smoothing=smoothing)
    limit = curve.value(torch.tensor(inf, dtype=torch.float64)).item()
    assert loss == pytest.approx(limit, rel=1e-14)
    # Without a clamp the pull of the normal bonus never ends: the loss is -inf and still falling.
    assert gradient == [[-curve.pull(torch.tensor(inf)).item()]]


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_nan_in_a_row_makes_its_loss_and_gradient_nan_and_no_other_rows(curve, smoothing):
    z = torch.tensor([[nan, 0.0, 1.0], [0.0, nan, 1.0], [0.0, 1.0, 2.0]], requires_grad=True)
    losses = curve_loss(z, torch.tensor([0, 0, 2]), curve, reduction="none", label_smoothing=smoothing)
    (gradient,) = torch.autograd.grad(losses.sum(), z)
    assert losses.isnan().tolist() == [True, True, False]
    assert gradient[2].isfinite().all()
    if smoothing == 0 and curve.pull(torch.tensor(0.0)) > 0:
        assert gradient[:2].isnan().any(1).all()


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_logit_of_plus_infinity_gives_nan_as_torchs(label, smoothing):
    for curve in ALL_CURVES:
        loss, gradient = outcome([[inf, 0.0, 1.0]], [label], curve, label_smoothing=smoothing)
        assert math.isnan(loss), curve
        assert any(map(math.isnan, gradient[0])), curve
    assert F.cross_entropy(torch.tensor([[inf, 0.0, 1.0]]), torch.tensor([label]), label_smoothing=smoothing).isnan()


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_a_rival_at_minus_infinity_counts_nothing_and_has_no_gradient(curve):
    loss, gradient = outcome([[0.5, -inf, 1.0]], [2], curve)
    without, smaller = outcome([[0.5, 1.0]], [1], curve)
    assert loss == without
    assert gradient == [[smaller[0][0], 0, smaller[0][1]]]


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_all_rivals_at_minus_infinity_are_as_no_rivals(curve):
    loss, gradient = outcome([[0.5, -inf, -inf]], [0], curve)
    assert loss == curve.value(torch.tensor(inf, dtype=torch.float64)).item()
    assert gradient == [[-curve.pull(torch.tensor(inf)).item(), 0, 0]]


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_the_label_at_minus_infinity_has_the_curves_value_and_pull_at_minus_infinity(curve):
    loss, gradient = outcome([[0.0, -inf, 0.0]], [1], curve)
    pull = curve.pull(torch.tensor(-inf)).item()
    assert loss == curve.value(torch.tensor(-inf, dtype=torch.float64)).item()
    assert gradient[0] == pytest.approx([pull / 2, -pull, pull / 2], rel=1e-15)


def test_a_class_of_no_mass_counts_nothing_also_at_minus_infinity():
    loss, gradient = outcome([[0.0, -inf, 1.0]], torch.tensor([[0.25, 0.0, 0.75]], dtype=torch.float64))
    without, smaller = outcome([[0.0, 1.0]], torch.tensor([[0.25, 0.75]], dtype=torch.float64))
    assert loss == pytest.approx(without, rel=1e-15)
    assert gradient[0] == pytest.approx([smaller[0][0], 0, smaller[0][1]], rel=1e-14)


def test_all_logits_at_minus_infinity_give_nan_as_torchs():
    assert math.isnan(outcome([[-inf, -inf, -inf]], [1])[0])
    assert F.cross_entropy(torch.full((1, 3), -inf), torch.tensor([1])).isnan()


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("twice", [False, True])
def test_ignored_rows_may_hold_nan_and_their_gradient_is_0_also_the_second(curve, smoothing, twice):
    z = torch.tensor([[nan, inf, -inf], [0.3, 1.1, 2.0]], dtype=torch.float64, requires_grad=True)
    loss = curve_loss(z, torch.tensor([-100, 2]), curve, label_smoothing=smoothing)
    assert loss.isfinite()
    (gradient,) = torch.autograd.grad(loss, z, create_graph=twice)
    assert gradient[0].tolist() == [0, 0, 0]
    if twice and gradient.requires_grad:
        (second,) = torch.autograd.grad(gradient.square().sum(), z)
        assert second[0].tolist() == [0, 0, 0]
        assert second.isfinite().all()


def test_logits_at_the_end_of_their_range_give_finite_losses_where_the_gap_is_finite():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        big = torch.finfo(dtype).max / 4
        z = torch.tensor([[big, 0.0, -big]], dtype=dtype, requires_grad=True)
        for label in range(3):
            loss = encouraging_loss(z, torch.tensor([label]))
            assert loss.isfinite()
            assert torch.autograd.grad(loss, z)[0].isfinite().all()


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_mse_of_infinite_logits_is_that_of_certain_classes_without_gradient(link):
    z = torch.tensor([[0.5, -inf, -inf]], requires_grad=True)
    loss = mirror_mse_loss(z, torch.tensor([0]), link=link, reduction="none")
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    assert loss[0, 1:].tolist() == [-1, -1]
    assert gradient[0, 1:].tolist() == [0, 0]
    assert gradient.isfinite().all()


def test_probabilities_are_taken_as_they_are_as_torchs():
    target = torch.tensor([[2.0, -0.5, 0.0]])
    z = torch.tensor([[0.3, 1.0, -1.0]])
    torch.testing.assert_close(curve_loss(z, target, CE), F.cross_entropy(z, target))


def test_ldam_sees_the_logits_before_it_changes_them():
    loss = LDAMLoss(torch.tensor([10, 20, 30]))
    labels = torch.tensor([0, 1, 2, 0])
    with pytest.raises(DtypeError, match="floating-point"):
        loss(torch.zeros(4, 3, dtype=torch.long), labels)
    with pytest.raises(ShapeError, match="one per example"):
        loss(torch.zeros(4, 3), labels[:, None])
    for scale in (0.0, -30.0, float("nan")):
        with pytest.raises(ArgumentError, match="scale"):
            LDAMLoss(torch.tensor([10, 20, 30]), scale=scale)


def test_devices_are_compared_before_anything_is_computed():
    hidden, weight, labels = torch.zeros(4, 5), torch.zeros(3, 5, device="meta"), torch.tensor([0, 1, 2, 0])
    with pytest.raises(ArgumentError, match="weight on meta"):
        linear_curve_loss(hidden, weight, labels, curves.focal())
    with pytest.raises(ArgumentError, match="pos_weight is on meta"):
        sigmoid_curve_loss(hidden, hidden, curves.focal(), pos_weight=torch.ones(5, device="meta"))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_labels_of_wide_unsigned_types_are_labels(dtype):
    logits, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    found = curve_loss(logits, labels.to(dtype), curves.normal())
    assert torch.equal(found, curve_loss(logits, labels, curves.normal()))


def test_modules_refuse_what_their_functions_would():
    for make in (lambda: SigmoidCurveLoss(curves.focal(), alpha=3.0), lambda: MirrorMSELoss(link="x"),
                 lambda: CurveLoss(curves.focal(), label_smoothing=2.0)):
        with pytest.raises(ArgumentError):
            make()
