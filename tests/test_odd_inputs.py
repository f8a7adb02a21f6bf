"""Labels of every integer type, modules that are changed, devices without numbers: nothing is misread, nothing raw."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from encouraging import (
    CurveLoss,
    EncouragingLoss,
    LDAMLoss,
    LinearCurveLoss,
    LSoftmaxLinear,
    MirrorMSELoss,
    SigmoidCurveLoss,
    curve_loss,
    curve_loss_and_gradient_,
    curve_loss_with_stats,
    curves,
    encouraging_loss,
    linear_curve_loss,
    loss_divisor,
    mirror_mse_loss,
    sigmoid_curve_loss,
)
from encouraging.errors import ArgumentError, DtypeError, ShapeError, SignatureError
from encouraging.imbalance import reweighted_loss

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64]
CLASSES = 300  # more than uint8 and int8 can count
CURVE = curves.normal()


def _large_margin(logits, labels):
    torch.manual_seed(0)
    return LSoftmaxLinear(CLASSES, CLASSES)(logits, labels)


LOSSES = {
    "softmax": lambda logits, labels: curve_loss(logits, labels, CURVE),
    "squared errors": mirror_mse_loss,
    "sigmoid, index": lambda logits, labels: sigmoid_curve_loss(logits, labels, CURVE),
    "sigmoid, presence": lambda logits, labels: sigmoid_curve_loss(logits[:, 0], (labels > 1).to(labels.dtype), CURVE)
        if labels.dtype not in (torch.uint16, torch.uint32, torch.uint64)
        else sigmoid_curve_loss(logits[:, 0], (labels.long() > 1).to(labels.dtype), CURVE),
    "output layer": lambda logits, labels: linear_curve_loss(logits, torch.eye(CLASSES), labels, CURVE),
    "LDAM": lambda logits, labels: LDAMLoss(torch.arange(1, CLASSES + 1))(logits, labels),
    "LDAM, ignored": lambda logits, labels: LDAMLoss(torch.arange(1, CLASSES + 1), ignore_index=2)(logits, labels),
    "large margin": _large_margin,
}


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_labels_of_any_integer_type_mean_the_same(name, dtype):
    logits, labels = torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 100])
    torch.testing.assert_close(LOSSES[name](logits, labels.to(dtype)), LOSSES[name](logits, labels))


WITH_IGNORED = {
    "softmax": lambda z, t, ignored: curve_loss(z, t, CURVE, ignore_index=ignored),
    "smoothed": lambda z, t, ignored: curve_loss(z, t, CURVE, ignore_index=ignored, label_smoothing=0.1),
    "with stats": lambda z, t, ignored: curve_loss_with_stats(z, t, CURVE, ignore_index=ignored)[0],
    "in place": lambda z, t, ignored: curve_loss_and_gradient_(z.clone(), t, CURVE, ignore_index=ignored),
    "module": lambda z, t, ignored: EncouragingLoss(ignore_index=ignored)(z, t),
    "output layer": lambda z, t, ignored: linear_curve_loss(z, torch.eye(CLASSES), t, CURVE, ignore_index=ignored),
    "divisor": lambda z, t, ignored: loss_divisor(t, ignore_index=ignored),
    "re-weighted": lambda z, t, ignored: reweighted_loss(z, t, torch.ones(CLASSES), CURVE, ignore_index=ignored),
}


@pytest.mark.parametrize("name", WITH_IGNORED)
@pytest.mark.parametrize("kind", [np.int64, np.int32, torch.tensor], ids=["int64", "int32", "tensor"])
def test_an_ignore_index_may_be_any_integer(name, kind):
    logits, labels = torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 100])
    torch.testing.assert_close(WITH_IGNORED[name](logits, labels, kind(2)), WITH_IGNORED[name](logits, labels, 2))


@pytest.mark.parametrize("value", [np.float64(2), 2.0, "2", torch.tensor(2.0)], ids=repr)
def test_an_ignore_index_that_is_no_integer_is_refused(value):
    with pytest.raises(ArgumentError, match="expected an integer, the label of rows to leave out"):
        curve_loss(torch.zeros(2, 3), torch.tensor([0, 1]), CURVE, ignore_index=value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_meta_device_gives_shapes_and_types(dtype):
    logits, labels = torch.empty(4, 8, device="meta", dtype=dtype), torch.zeros(4, dtype=torch.long, device="meta")
    for loss in (curve_loss(logits, labels, CURVE), mirror_mse_loss(logits, labels)):
        assert (loss.shape, loss.dtype, loss.device.type) == ((), dtype, "meta")


@pytest.mark.parametrize("arguments", [{}, {"reduction": "none"}, {"label_smoothing": 0.1}, {"match_norm": True}],
                         ids=str)
def test_on_the_meta_device_the_output_layer_has_shapes_and_gradients(arguments):
    layer = LinearCurveLoss(8, CLASSES, CURVE, bias=True, device="meta", **arguments)
    hidden = torch.empty(4, 8, device="meta", requires_grad=True)
    loss = layer(hidden, torch.zeros(4, dtype=torch.long, device="meta"))
    assert (loss.shape, loss.device.type) == ((4,) if "reduction" in arguments else (), "meta")
    loss.sum().backward()
    assert hidden.grad.shape == hidden.shape
    assert layer.weight.grad.shape == layer.weight.shape


def test_learned_class_weights_get_their_gradient_from_the_output_layer_too():
    draw = torch.Generator().manual_seed(0)
    hidden, layer = torch.randn(6, 8, generator=draw), torch.randn(5, 8, generator=draw)
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    ours, theirs = (torch.full((5,), 0.5, requires_grad=True) for _ in range(2))
    linear_curve_loss(hidden, layer, labels, CURVE, class_weight=ours, label_smoothing=0.1).backward()
    curve_loss(hidden @ layer.T, labels, CURVE, theirs, label_smoothing=0.1).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_clamp_that_came_with_a_curve_is_kept_through_a_schedule():
    loss = EncouragingLoss(log_end=0.5)
    loss.curve = curves.normal(0.01)
    loss.log_end = 0.5
    loss.log_end = 1.0
    assert loss.curve == curves.normal(0.01)


def test_the_clamp_can_be_set_whatever_the_curve_is():
    loss = EncouragingLoss(log_end=0.5)
    loss.curve = curves.focal(1.0)
    loss.eps = 0.01
    assert (loss.eps, loss.log_end, loss.curve) == (0.01, 0.75, curves.conservative(0.75))
    loss.log_end = 1.0
    assert loss.curve == curves.normal(0.01)


@pytest.mark.parametrize(("arguments", "words"), [
    ({"reduction": "average"}, "reduction='average': expected 'none', 'mean' or 'sum'"),
    ({"label_smoothing": 2.0}, "label_smoothing=2.0"),
    ({"divisor": 3.0, "reduction": "sum"}, "divisor with reduction='sum'"),
])
def test_an_output_layer_refuses_its_arguments_when_it_is_made(arguments, words):
    with pytest.raises(ArgumentError) as error:
        LinearCurveLoss(3, 4, CURVE, **arguments)
    assert words in str(error.value)


@pytest.mark.parametrize(("name", "words"), [
    ("weight", "The weights of classes are class_weight"), ("target", "no argument 'target'; it takes bias"),
    ("hidden", "no argument 'hidden'"), ("class_wieght", "Did you mean 'class_weight'"),
])
def test_an_output_layer_knows_its_own_arguments_and_those_of_the_loss(name, words):
    with pytest.raises(SignatureError, match=words):
        LinearCurveLoss(3, 4, CURVE, **{name: torch.ones(4)})


@pytest.mark.parametrize("bad", [None, "2", 2.0])
@pytest.mark.parametrize("name", WITH_IGNORED)
def test_every_way_refuses_it_in_words(name, bad):
    with pytest.raises(ArgumentError, match="expected an integer"):
        WITH_IGNORED[name](torch.randn(3, CLASSES), torch.tensor([0, 1, 2]), bad)


@pytest.mark.parametrize("bad", [2**70, -2**63 - 1])
@pytest.mark.parametrize("name", ["with stats", "in place", "output layer", "divisor"])
def test_an_ignore_index_has_64_bits(name, bad):
    with pytest.raises(ArgumentError, match="expected an integer of 64 bits"):
        WITH_IGNORED[name](torch.randn(3, CLASSES), torch.tensor([0, 1, 2]), bad)


SPARSE = {
    "curve_loss": lambda z, t: curve_loss(z, t, CURVE),
    "smoothed": lambda z, t: curve_loss(z, t, CURVE, reduction="none", label_smoothing=0.1),
    "cross-entropy": lambda z, t: curve_loss(z, t, curves.cross_entropy()),
    "kernels": lambda z, t: curve_loss(z, t, CURVE, impl="triton"),
    "by-products": lambda z, t: curve_loss_with_stats(z, t, CURVE),
    "sigmoid": lambda z, t: sigmoid_curve_loss(z, t, CURVE),
    "squared errors": mirror_mse_loss,
    "gradient": lambda z, t: curve_loss_and_gradient_(z, t, CURVE),
    "linear": lambda z, t: linear_curve_loss(z, torch.eye(3), t, CURVE),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("loss", SPARSE.values(), ids=SPARSE)
def test_sparse_tensors_are_refused_in_words(loss):
    z, labels, soft = torch.randn(2, 3), torch.tensor([0, 1]), torch.eye(3)[:2]
    for logits, target in ((z.to_sparse(), labels), (z.to_sparse_csr(), labels), (z, labels.to_sparse()),
                           (z, soft.to_sparse()), (z, soft.to_sparse_csr())):
        with pytest.raises(ArgumentError, match=r"layout torch\.sparse.*\.to_dense\(\)"):
            loss(logits, target)


def test_so_are_sparse_weights():
    z, labels, weight = torch.randn(2, 3), torch.tensor([0, 1]), torch.ones(3).to_sparse()
    for call in (lambda: curve_loss(z, labels, CURVE, weight),
                 lambda: curve_loss(z, labels, CURVE, weight, inplace=True),
                 lambda: sigmoid_curve_loss(z, labels, CURVE, weight), lambda: loss_divisor(labels, weight),
                 lambda: linear_curve_loss(z, torch.eye(3).to_sparse(), labels, CURVE)):
        with pytest.raises(ArgumentError, match=r"weight\.to_dense\(\)"):
            call()


def test_logits_that_cannot_hold_their_gradient_are_refused():
    labels = torch.tensor([0, 1, 0])
    for overlapping in (torch.randn(1, 2).expand(3, 2), torch.randn(3, 1).expand(3, 2),
                        torch.randn(4).as_strided((3, 2), (1, 1))):
        with pytest.raises(ArgumentError, match=r"logits\.contiguous\(\)"):
            curve_loss_and_gradient_(overlapping, labels, CURVE)
    for apart in (torch.randn(2, 3).T, torch.randn(6, 4)[::2, ::2], torch.randn(1, 2).expand(1, 2)):
        curve_loss_and_gradient_(apart, labels[:len(apart)], CURVE)


@pytest.mark.parametrize(("upstream", "error", "words"), [
    ([1.0, 1.0], DtypeError, r"upstream is list: expected a tensor of shape \(2,\)"),
    (2.0, DtypeError, "upstream is float"),
    (torch.ones(2, dtype=torch.complex64), DtypeError, "upstream is torch.complex64"),
    (torch.ones(2).to_sparse(), ArgumentError, r"upstream\.to_dense\(\)"),
    (torch.ones(3), ShapeError, r"upstream has shape \(3,\)"),
])
def test_an_upstream_gradient_that_does_not_fit_is_refused(upstream, error, words):
    with pytest.raises(error, match=words):
        curve_loss_and_gradient_(torch.randn(2, 3), torch.tensor([0, 1]), CURVE, upstream=upstream)


def test_an_output_layer_without_features_or_classes_is_refused():
    labels = torch.tensor([0, 1])
    for width, classes, target in ((0, 3, labels), (4, 0, labels), (4, 0, torch.ones(2, 0))):
        with pytest.raises(ShapeError, match=rf"weight has shape \({classes}, {width}\)"):
            linear_curve_loss(torch.randn(2, width), torch.randn(classes, width), target, CURVE)


PAIR = torch.zeros(2, 3), torch.tensor([0, 2])


@pytest.mark.parametrize("value", ["no", 1, 0, None], ids=repr)
@pytest.mark.parametrize(("name", "make"), [
    ("bonus", lambda **flag: mirror_mse_loss(*PAIR, **flag)), ("bonus", MirrorMSELoss),
    ("match_norm", lambda **flag: curve_loss(*PAIR, CURVE, **flag)),
    ("inplace", lambda **flag: curve_loss(*PAIR, CURVE, **flag)),
    ("match_norm", lambda **flag: encouraging_loss(*PAIR, **flag)),
    ("match_norm", lambda **flag: linear_curve_loss(PAIR[0], torch.eye(3), PAIR[1], CURVE, **flag)),
    ("match_norm", EncouragingLoss), ("match_norm", lambda **flag: LinearCurveLoss(4, 3, CURVE, **flag)),
], ids=["mse", "MSE module", "curve_loss", "in place", "encouraging_loss", "linear", "module", "linear module"])
def test_a_word_is_neither_true_nor_false(name, make, value):
    with pytest.raises(ArgumentError, match=f"{name}={value!r}: expected True or False"):
        make(**{name: value})


@pytest.mark.parametrize(("kind", "arguments"), [
    (EncouragingLoss, ()), (CurveLoss, (CURVE,)), (LDAMLoss, ([1, 2],)), (SigmoidCurveLoss, (CURVE,)),
    (MirrorMSELoss, ()), (LinearCurveLoss, (5, 3, CURVE)),
])
def test_an_argument_that_a_module_does_not_have_is_one_error_for_all(kind, arguments):
    words = f"{kind.__name__} has no argument 'reducton'; it takes .*reduction.* Did you mean 'reduction'"
    with pytest.raises(SignatureError, match=words):
        kind(*arguments, reducton="sum")


def test_the_squeezed_logits_of_a_binary_classifier_are_no_classes_of_one_example():
    with pytest.raises(ShapeError, match=r"a single example with 8 classes.* binary classifier.*SigmoidCurveLoss"):
        encouraging_loss(torch.randn(8), torch.zeros(8, dtype=torch.long))


@pytest.mark.parametrize("places", [(4, 6), (4, 6, 5)], ids=["image", "volume"])
def test_logits_of_pixels_with_the_classes_last_are_refused_with_the_way_to_move_them(places):
    logits, labels = torch.randn(2, *places, 7), torch.randint(7, (2, *places))
    with pytest.raises(ShapeError) as error:
        encouraging_loss(logits, labels)
    assert f"input.movedim(-1, 1), that is {(2, 7, *places)}" in str(error.value)
    assert encouraging_loss(logits.movedim(-1, 1), labels).isfinite()
