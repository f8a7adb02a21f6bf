"""The modules: wherever an nn.CrossEntropyLoss fits, they fit."""

from __future__ import annotations

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from encouraging import (
    CurveLoss,
    EncouragingLoss,
    FocalLoss,
    HaltedFocalLoss,
    LDAMLoss,
    LinearCurveLoss,
    MirrorMSELoss,
    PolyLoss,
    SigmoidCurveLoss,
    curve_loss,
    curves,
    encouraging_loss,
    mirror_mse_loss,
    sigmoid_curve_loss,
)
from encouraging.errors import ArgumentError, DtypeError, ShapeError, SignatureError
from strategies import rows_with_gaps

WEIGHT = torch.tensor([0.5, 1.0, 2.0])
CROSS_ENTROPIES = {
    "CurveLoss": lambda **k: CurveLoss(curves.power(2.0, 0.5), **k),
    "EncouragingLoss": lambda **k: EncouragingLoss(log_end=0.5, **k),
    "FocalLoss": lambda **k: FocalLoss(gamma=1.5, **k),
    "HaltedFocalLoss": lambda **k: HaltedFocalLoss(gamma=1.5, halt=0.4, **k),
    "PolyLoss": lambda **k: PolyLoss(epsilon=2.0, **k),
    "LDAMLoss": lambda **k: LDAMLoss(torch.tensor([1, 16, 81]), **k),
}
every_cross_entropy = pytest.mark.parametrize("make", CROSS_ENTROPIES.values(), ids=CROSS_ENTROPIES)


def batch(dtype: torch.dtype = torch.float32):
    logits, label = rows_with_gaps(torch.linspace(-4, 6, 8, dtype=torch.float64), 3, 0)
    return logits.to(dtype), label


@every_cross_entropy
def test_it_is_an_nn_cross_entropy_loss(make):
    assert isinstance(make(), nn.CrossEntropyLoss)


@every_cross_entropy
def test_arguments_are_keywords_only(make):
    kinds = {p.kind for p in list(inspect.signature(type(make()).__init__).parameters.values())[1:]
             if p.name not in ("curve", "class_counts")}
    assert inspect.Parameter.POSITIONAL_OR_KEYWORD not in kinds


@pytest.mark.parametrize("kind", [EncouragingLoss, FocalLoss, HaltedFocalLoss, PolyLoss])
def test_a_positional_argument_which_could_mean_two_things_is_refused(kind):
    parameter = "log_end" if kind is EncouragingLoss else next(iter(kind().curve.params))
    with pytest.raises(SignatureError, match=rf"by keyword: expected {kind.__name__}\({parameter}=0\.5\) or"):
        kind(0.5)
    with pytest.raises(SignatureError, match=rf"{kind.__name__}\({parameter}=\.\.\.\)"):
        kind(WEIGHT)


@pytest.mark.parametrize("kind", [EncouragingLoss, FocalLoss, HaltedFocalLoss, PolyLoss])
def test_a_misspelt_argument_is_answered_with_the_nearest_of_this_loss(kind):
    with pytest.raises(SignatureError, match=f"{kind.__name__} has no argument 'label_smooth'.*'label_smoothing'"):
        kind(label_smooth=0.1)


def test_a_misspelt_parameter_is_answered_with_the_curve_s_own():
    with pytest.raises(SignatureError, match="Did you mean 'log_end'"):
        EncouragingLoss(logend=0.5)


def test_the_class_of_a_curve_is_no_curve():
    with pytest.raises(DtypeError, match="the class Focal, which was not called: expected a Curve"):
        CurveLoss(curves.focal)


def test_a_function_that_makes_curves_is_no_curve():
    with pytest.raises(DtypeError, match="the function encouraging, which was not called: expected a Curve") as raised:
        CurveLoss(curves.encouraging)
    assert "function of p" not in str(raised.value)


@pytest.mark.parametrize(("given", "words"), [
    (EncouragingLoss(log_end=0.5), r"curve is EncouragingLoss: .*Pass the curve of that loss, conservative\("),
    (lambda p: -p.log(), r"curve is function: .*curves\.from_probability\(function\)"),
], ids=["a loss", "a function"])
def test_what_could_become_a_curve_is_refused_with_the_way_to_do_it(given, words):
    with pytest.raises(DtypeError, match=words):
        CurveLoss(given)


@pytest.mark.parametrize("kind", [EncouragingLoss, FocalLoss, HaltedFocalLoss, PolyLoss])
def test_a_loss_named_after_its_curve_takes_no_other(kind):
    with pytest.raises(SignatureError, match=rf"{kind.__name__} has no argument 'curve'.* use CurveLoss\(curve\)"):
        kind(curve=curves.normal())


@every_cross_entropy
@pytest.mark.parametrize("arguments", [
    {}, {"weight": WEIGHT}, {"ignore_index": 1, "reduction": "sum"}, {"reduction": "none", "label_smoothing": 0.1},
    {"match_norm": True, "weight": WEIGHT}])
def test_a_module_is_its_function(make, arguments):
    logits, label = batch()
    module = make(**arguments)
    z = logits if not isinstance(module, LDAMLoss) else 30 * (logits - F.one_hot(label, 3) * module.margins)
    expected = curve_loss(z, label, module.curve, **arguments)
    torch.testing.assert_close(module(logits, label), expected, rtol=1e-6, atol=1e-6)


def test_encouraging_loss_is_the_papers_by_default():
    logits, label = batch()
    assert torch.equal(EncouragingLoss()(logits, label), encouraging_loss(logits, label, log_end=0.75))
    assert torch.equal(EncouragingLoss(log_end=1.0, eps=0)(logits, label), curve_loss(logits, label, curves.normal(0)))


@every_cross_entropy
def test_copies_and_pickles_compute_the_same(make):
    logits, label = batch()
    module = make(weight=WEIGHT, label_smoothing=0.1)
    saved = io.BytesIO()
    torch.save(module, saved)
    saved.seek(0)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(saved, weights_only=False)):
        assert torch.equal(twin(logits, label), module(logits, label))
        assert repr(twin) == repr(module)


@every_cross_entropy
def test_the_class_weight_is_a_buffer_saved_loaded_and_moved(make):
    module, other = make(weight=WEIGHT), make(weight=torch.ones(3))
    assert torch.equal(module.state_dict()["weight"], WEIGHT)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.weight, WEIGHT)
    assert "weight" not in make().state_dict()
    module = module.to(torch.float64)
    assert module.weight.dtype == torch.float64
    logits, label = batch(torch.float64)
    assert module(logits, label).dtype == torch.float64
    assert module.to("meta").weight.device.type == "meta"
    assert list(module.parameters()) == []


@pytest.mark.parametrize(("module", "text"), [
    (EncouragingLoss(), "EncouragingLoss(log_end=0.75)"),
    (EncouragingLoss(log_end=1.0, eps=0.0, reduction="sum"), "EncouragingLoss(log_end=1.0, eps=0.0, reduction='sum')"),
    (EncouragingLoss(weight=WEIGHT, match_norm=True),
     "EncouragingLoss(log_end=0.75, weight=(3 classes), match_norm=True)"),
    (FocalLoss(gamma=1.0, ignore_index=0), "FocalLoss(gamma=1.0, ignore_index=0)"),
    (HaltedFocalLoss(), "HaltedFocalLoss(gamma=2.0, halt=0.5)"),
    (PolyLoss(label_smoothing=0.1, impl="reference"), "PolyLoss(epsilon=1.0, label_smoothing=0.1, impl='reference')"),
    (CurveLoss(curves.square(True)), "CurveLoss(curve=square(bonus=True))"),
    (SigmoidCurveLoss(curves.focal(), reduction="sum"), "SigmoidCurveLoss(curve=focal(gamma=2.0), reduction='sum')"),
    (SigmoidCurveLoss(curves.focal(), weight=WEIGHT, pos_weight=torch.ones(2, 3), alpha=0.3, divisor=2.0),
     "SigmoidCurveLoss(curve=focal(gamma=2.0), weight=(3 classes), pos_weight=(2x3 numbers), alpha=0.3, divisor=2.0)"),
    (MirrorMSELoss(), "MirrorMSELoss()"), (MirrorMSELoss(bonus=False), "MirrorMSELoss(bonus=False)"),
    (MirrorMSELoss(divisor=torch.tensor(3.0)), "MirrorMSELoss(divisor=tensor(3.))"),
    (LinearCurveLoss(4, 3, curves.focal()),
     "LinearCurveLoss(in_features=4, out_features=3, bias=False, curve=focal(gamma=2.0))"),
    (LinearCurveLoss(4, 3, curves.focal(), class_weight=WEIGHT, label_smoothing=0.1, reduction="sum", impl="auto"),
     "LinearCurveLoss(in_features=4, out_features=3, bias=False, curve=focal(gamma=2.0), class_weight=(3 classes), "
     "reduction='sum', label_smoothing=0.1)"),
    (LDAMLoss([1, 2], divisor=3.0),
     "LDAMLoss(classes=2, scale=30.0, curve=cross_entropy(), divisor=3.0)"),
    (LDAMLoss([1, 2], max_margin=0.3), "LDAMLoss(classes=2, max_margin=0.3, scale=30.0, curve=cross_entropy())"),
])
def test_repr_tells_what_differs_from_the_default(module, text):
    assert repr(module) == text


def test_a_tiny_training_loop_takes_it_as_a_drop_in():
    torch.manual_seed(0)
    centres = torch.eye(3) * 3
    label = torch.arange(3).repeat(20)
    x = centres[label] + torch.randn(60, 3)
    for criterion in (nn.CrossEntropyLoss(), EncouragingLoss(), EncouragingLoss(log_end=1.0, match_norm=True),
                      FocalLoss()):
        model = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(50):
            optimizer.zero_grad()
            criterion(model(x), label).backward()
            optimizer.step()
        assert (model(x).argmax(1) == label).float().mean() > 0.9


def test_well_classified_examples_keep_growing_their_margin_with_el_alone():
    """The paper in a few lines: from a certain start, a step of CE moves nothing and a step of EL does."""
    moved = []
    for criterion in (nn.CrossEntropyLoss(), EncouragingLoss(log_end=1.0, eps=0)):
        logits = torch.tensor([[30.0, 0.0, 0.0]], requires_grad=True)
        criterion(logits, torch.tensor([0])).backward()
        moved.append(logits.grad.abs().sum().item())
    assert moved[0] < 1e-12
    assert moved[1] == 2


# The others


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"reduction": "sum", "label_smoothing": 0.1}, {"ignore_index": 1}])
def test_linear_curve_loss_is_a_linear_layer_and_a_loss(bias, arguments):
    torch.manual_seed(0)
    _, label = batch()
    layer = LinearCurveLoss(4, 3, curves.conservative(), bias=bias, class_weight=WEIGHT.double(), dtype=torch.float64,
                            **arguments)
    plain = nn.Linear(4, 3, bias=bias, dtype=torch.float64)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "class_weight"})
    loss = CurveLoss(curves.conservative(), weight=WEIGHT.double(), **arguments)
    x = torch.randn(8, 4, dtype=torch.float64, requires_grad=True)
    fused, apart = layer(x, label), loss(plain(x), label)
    torch.testing.assert_close(fused, apart, rtol=1e-13, atol=1e-14)
    ours = torch.autograd.grad(fused, [x, *layer.parameters()])
    theirs = torch.autograd.grad(apart, [x, *plain.parameters()])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(layer(x), plain(x))
    assert isinstance(layer, nn.Linear)
    assert "curve=conservative" in repr(layer)


@every_cross_entropy
@pytest.mark.parametrize(("wrong", "words"), [
    ({"impl": "zzz"}, "impl='zzz': expected 'auto'"), ({"ignore_index": "a"}, "ignore_index='a': expected an integer"),
    ({"weight": [1, 2, 3]}, r"weight is a list: expected a tensor\. Use torch\.tensor\(weight, dtype=torch\.float32\)"),
], ids=["impl", "ignore_index", "weight"])
def test_wrong_arguments_are_refused_when_the_module_is_made(make, wrong, words):
    with pytest.raises((ArgumentError, DtypeError), match=words):
        make(**wrong)


def test_other_modules_refuse_wrong_arguments_when_they_are_made():
    curve = curves.focal()
    for call, words in ((lambda: LinearCurveLoss(3, 5, curve, impl="zzz"), "impl='zzz': expected 'auto'"),
                        (lambda: LinearCurveLoss(3, 5, curve, ignore_index=0.5), "ignore_index=0.5: expected an int"),
                        (lambda: LinearCurveLoss(3, 5, curve, class_weight=[1.0]), "class_weight is a list"),
                        (lambda: LinearCurveLoss(3, 5, curve, class_weight=WEIGHT),
                         r"class_weight has shape \(3,\): expected \(5,\)"),
                        (lambda: LinearCurveLoss(3, 5, curve, accumulate="foo"), "accumulate='foo'"),
                        (lambda: LinearCurveLoss(3, 5, curve, chunk_bytes=-3), "chunk_bytes=-3"),
                        (lambda: SigmoidCurveLoss(curve, pos_weight=[1.0]), "pos_weight is a list"),
                        (lambda: LDAMLoss([1, 2], scale="x"), "scale='x': expected a positive number"),
                        (lambda: LDAMLoss([1, 2], max_margin="a"), "max_margin='a': expected a number")):
        with pytest.raises((ArgumentError, DtypeError, ShapeError), match=words):
            call()


def test_the_sigmoid_module_is_its_function_and_its_weights_are_buffers():
    z, target = torch.randn(4, 3), torch.randint(2, (4, 3))
    module = SigmoidCurveLoss(curves.focal(), weight=WEIGHT, pos_weight=2 * WEIGHT, alpha=0.3, reduction="none")
    expected = sigmoid_curve_loss(z, target, curves.focal(), WEIGHT, "none", 2 * WEIGHT, alpha=0.3)
    assert torch.equal(module(z, target), expected)
    assert set(module.state_dict()) == {"weight", "pos_weight"}
    assert torch.equal(pickle.loads(pickle.dumps(module))(z, target), expected)
    assert module.double().weight.dtype == torch.float64


def test_the_mse_module_is_its_function():
    logits, label = batch()
    for link in ("softmax", "sigmoid"):
        module = MirrorMSELoss(link=link, bonus=False, reduction="sum")
        expected = mirror_mse_loss(logits, label, link=link, bonus=False, reduction="sum")
        assert torch.equal(module(logits, label), expected)
