"""What breaking the losses on purpose has shown, point by point: each of these failed before it was mended."""

from __future__ import annotations

import copy
import functools
import io
import itertools
import math
import pickle
import typing

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import encouraging
from encouraging import (
    CurveLoss,
    EncouragingLoss,
    FocalLoss,
    HaltedFocalLoss,
    LDAMLoss,
    LinearCurveLoss,
    LSoftmaxLinear,
    MirrorMSELoss,
    PolyLoss,
    SigmoidCurveLoss,
    curve_loss,
    curves,
    linear_curve_loss,
    sigmoid_curve_loss,
)
from encouraging.errors import CurveError, DtypeError, ShapeError, TargetError
from paper_formulas import ALL_CURVES

inf = math.inf


# 8: infinite logits beside float targets, and a gradient that vanishes


@pytest.mark.hardening(8)
@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_8_float_targets_of_0_and_1_are_integers_also_at_infinite_logits(curve):
    z = torch.tensor([-inf, -3.0, 0.0, 5.0, inf] * 2, dtype=torch.float64, requires_grad=True)
    present = torch.tensor([0] * 5 + [1] * 5)
    for arguments in ({}, {"alpha": 0.25}, {"pos_weight": torch.tensor(3.0)}, {"weight": torch.tensor(2.0)}):
        ours, theirs = (sigmoid_curve_loss(z, target, curve, reduction="none", **arguments)
                        for target in (present.double(), present))
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*(torch.autograd.grad(loss.sum(), z)[0] for loss in (ours, theirs)))


@pytest.mark.hardening(8)
def test_8_a_target_that_needs_a_gradient_still_gets_it():
    z, presence = torch.tensor([1.0, -2.0]), torch.tensor([0.0, 1.0], requires_grad=True)
    curve = curves.conservative()
    sigmoid_curve_loss(z, presence, curve, reduction="sum").backward()
    torch.testing.assert_close(presence.grad, curve.value(z) - curve.value(-z))


def optimum(curve: curves.Curve, mass: Tensor) -> Tensor:
    """Logits of two classes at which the pulls on both balance, by bisection in float64."""
    low, high = torch.tensor(-20.0).double(), torch.tensor(20.0).double()
    for _ in range(200):
        middle = (low + high) / 2
        rises = mass[0] * curve.pull(middle) > mass[1] * curve.pull(-middle)
        low, high = torch.where(rises, middle, low), torch.where(rises, high, middle)
    return torch.stack([low, torch.zeros_like(low)])


@pytest.mark.hardening(8)
@pytest.mark.parametrize("curve", [curves.conservative(0.75), curves.power(2.0, 1.0), curves.poly(2.0)], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["soft", "smoothed"])
def test_8_where_the_curves_gradient_vanishes_nothing_is_scaled(curve, dtype, kind):
    mass = torch.tensor([0.7, 0.3], dtype=torch.float64)
    z = optimum(curve, mass).to(dtype)[None].requires_grad_()
    if kind == "soft":
        loss = functools.partial(curve_loss, z, mass.to(dtype)[None], curve)
    else:
        loss = functools.partial(curve_loss, z, torch.tensor([0]), curve, label_smoothing=0.6)
    plain, matched = (torch.autograd.grad(loss(match_norm=match), z)[0] for match in (False, True))
    ce = torch.autograd.grad(F.cross_entropy(z, mass.to(dtype)[None]), z)[0]
    assert ce.norm() > 1e4 * plain.norm()  # cross-entropy has its optimum elsewhere
    assert torch.equal(plain, matched)


@pytest.mark.hardening(8)
def test_8_a_small_gradient_that_is_exact_is_scaled_as_before():
    """A label's gradient is no difference: however small, its direction is known."""
    for gap in (10.0, 18.0):
        z = torch.tensor([[gap, 0.0, -1.0]], requires_grad=True)
        for target in (torch.tensor([0]), torch.tensor([[1.0, 0.0, 0.0]])):
            matched = torch.autograd.grad(curve_loss(z, target, curves.focal(2.0), match_norm=True), z)[0]
            ce = torch.autograd.grad(curve_loss(z, target, curves.cross_entropy()), z)[0]
            torch.testing.assert_close(matched.norm(), ce.norm(), rtol=1e-5, atol=0)


# 11: a curve or its parameters changed during training


def batch() -> tuple[Tensor, Tensor]:
    return 3 * torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 4


CHANGES = [
    (EncouragingLoss, {"log_end": 0.5}, curves.conservative(0.5), "EncouragingLoss(log_end=0.5)"),
    (EncouragingLoss, {"log_end": 1.0}, curves.normal(1e-5), "EncouragingLoss(log_end=1.0, eps=1e-05)"),
    (EncouragingLoss, {"eps": 1e-3, "log_end": 1.0}, curves.normal(1e-3), "EncouragingLoss(log_end=1.0, eps=0.001)"),
    (EncouragingLoss, {"log_end": 1.0, "eps": 1e-3}, curves.normal(1e-3), "EncouragingLoss(log_end=1.0, eps=0.001)"),
    (EncouragingLoss, {"curve": curves.conservative(0.25)}, curves.conservative(0.25), "EncouragingLoss(log_end=0.25)"),
    (EncouragingLoss, {"curve": curves.normal(0.01)}, curves.normal(0.01), "EncouragingLoss(log_end=1.0, eps=0.01)"),
    (EncouragingLoss, {"curve": curves.focal()}, curves.focal(), "EncouragingLoss(curve=focal(gamma=2.0))"),
    (EncouragingLoss, {"curve": curves.focal(), "log_end": 0.5}, curves.conservative(0.5),
     "EncouragingLoss(log_end=0.5)"),
    (FocalLoss, {"gamma": 0.5}, curves.focal(0.5), "FocalLoss(gamma=0.5)"),
    (FocalLoss, {"curve": curves.focal(3.0)}, curves.focal(3.0), "FocalLoss(gamma=3.0)"),
    (HaltedFocalLoss, {"halt": 0.3}, curves.halted_focal(2.0, 0.3), "HaltedFocalLoss(gamma=2.0, halt=0.3)"),
    (HaltedFocalLoss, {"gamma": 1.0, "halt": 0.3}, curves.halted_focal(1.0, 0.3),
     "HaltedFocalLoss(gamma=1.0, halt=0.3)"),
    (PolyLoss, {"epsilon": 3.0}, curves.poly(3.0), "PolyLoss(epsilon=3.0)"),
]


@pytest.mark.hardening(11)
@pytest.mark.parametrize(("kind", "changes", "curve", "text"), CHANGES)
def test_11_a_changed_parameter_or_curve_changes_loss_and_repr(kind, changes, curve, text):
    loss, (logits, target) = kind(), batch()
    for name, value in changes.items():
        setattr(loss, name, value)
    assert loss.curve == curve
    assert repr(loss) == text
    for same in (loss, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert torch.equal(same(logits, target), curve_loss(logits, target, curve))
        assert all(getattr(same, name) == value for name, value in changes.items() if name != "curve")


@pytest.mark.hardening(11)
def test_11_eps_is_remembered_while_log_end_is_below_1():
    loss = EncouragingLoss(log_end=0.5, eps=1e-3)
    for log_end in (0.75, 1.0, 0.5, 1.0):
        loss.log_end = log_end
        assert (loss.log_end, loss.eps) == (log_end, 1e-3)
    assert loss.curve == curves.normal(1e-3)


@pytest.mark.hardening(11)
def test_11_a_wrong_value_is_refused_and_changes_nothing():
    loss = EncouragingLoss(log_end=0.5)
    with pytest.raises(CurveError, match=r"log_end=1\.5"):
        loss.log_end = 1.5
    with pytest.raises(CurveError, match="eps=2"):
        loss.eps = 2
    assert repr(loss) == "EncouragingLoss(log_end=0.5)"
    assert loss.eps == 1e-5
    loss.curve = "focal"
    with pytest.raises(DtypeError, match="expected a Curve"):
        loss(*batch())
    loss.curve = curves.focal()
    assert not hasattr(loss, "log_end")


@pytest.mark.hardening(11)
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("make", [EncouragingLoss, lambda: LinearCurveLoss(4, 4, curves.conservative())],
                         ids=["loss", "fused layer"])
def test_11_compiled_code_follows_a_schedule(make):
    torch._dynamo.reset()
    torch.manual_seed(0)
    loss, (logits, target) = make(), batch()
    logits.requires_grad_()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for curve in (curves.conservative(0.5), curves.conservative(0.75), curves.normal(), curves.focal()):
        loss.curve = curve
        ours, theirs = compiled(logits, target), loss(logits, target)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*(torch.autograd.grad(value, logits)[0] for value in (ours, theirs)))
    if isinstance(loss, EncouragingLoss):
        for log_end in (0.25, 1.0):
            loss.log_end = log_end
            expected = curve_loss(logits, target, curves.encouraging(log_end))
            torch.testing.assert_close(compiled(logits, target), expected)


# 12: libraries that wrap, trace or export a loss


class Wrapper:
    """What fastai's BaseLoss does with a loss: the wrapper takes the loss's name, docstring and annotations."""

    def __init__(self, make: typing.Callable[[], nn.Module]) -> None:
        self.func = make()
        functools.update_wrapper(self, self.func)

    def __call__(self, input: Tensor, target: Tensor) -> Tensor:
        return self.func(input, target)


MODULES: dict[str, typing.Callable[[], nn.Module]] = {
    "CurveLoss": lambda: CurveLoss(curves.focal()), "EncouragingLoss": EncouragingLoss, "FocalLoss": FocalLoss,
    "HaltedFocalLoss": HaltedFocalLoss, "PolyLoss": PolyLoss, "LDAMLoss": lambda: LDAMLoss(torch.arange(1, 5)),
    "SigmoidCurveLoss": lambda: SigmoidCurveLoss(curves.focal()), "MirrorMSELoss": MirrorMSELoss,
    "LinearCurveLoss": lambda: LinearCurveLoss(4, 4, curves.focal()), "LSoftmaxLinear": lambda: LSoftmaxLinear(4, 4),
}


@pytest.mark.hardening(12)
@pytest.mark.parametrize("name", MODULES)
def test_12_the_annotations_of_a_wrapped_module_can_be_evaluated(name):
    wrapped = Wrapper(MODULES[name])
    for what in (wrapped, wrapped.func, type(wrapped.func), wrapped.func.forward, type(wrapped.func).__init__):
        typing.get_type_hints(what)
    assert all(not isinstance(hint, str) for hint in getattr(wrapped, "__annotations__", {}).values())
    assert set(MODULES) == {public for public in encouraging.__all__
                            if isinstance(getattr(encouraging, public), type)
                            and issubclass(getattr(encouraging, public), nn.Module)}


class Model(nn.Module):
    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.layer, self.loss = nn.Linear(4, 4), loss

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return self.loss(self.layer(input), target)


def export(model: nn.Module) -> str:
    """What the legacy ONNX export does with a model. The package onnx is needed for its last step only."""
    try:
        torch.onnx.export(model, (torch.randn(3, 4), torch.tensor([0, 1, 3])), io.BytesIO(), dynamo=False)
    except torch.onnx.OnnxExporterError as error:
        return str(error)
    return "written"


@pytest.mark.hardening(12)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning",  # of the legacy export itself
                            "ignore::torch.jit.TracerWarning")  # shapes are checked while they are traced
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_12_legacy_onnx_export_gets_as_far_as_with_torchs_cross_entropy(smoothing):
    theirs = export(Model(nn.CrossEntropyLoss()))  # which has no export with smoothing
    for curve in (curves.conservative(), curves.normal(), curves.focal(), curves.halted_focal(), curves.power(2.0)):
        assert export(Model(CurveLoss(curve, label_smoothing=smoothing))) == theirs


@pytest.mark.hardening(12)
@pytest.mark.filterwarnings("ignore:`torch.jit.(trace|save|load)", "ignore::torch.jit.TracerWarning")
def test_12_a_trace_is_saved_loaded_and_right_for_other_numbers():
    cases = itertools.product([curves.conservative(), curves.normal(0), curves.focal()], [0.0, 0.1])
    for curve, smoothing in cases:
        model = Model(CurveLoss(curve, label_smoothing=smoothing, weight=torch.rand(4)))
        trace = torch.jit.trace(model, (torch.randn(3, 4), torch.tensor([0, 1, 3])))
        assert "PythonOp" not in str(trace.inlined_graph)
        file = io.BytesIO()
        torch.jit.save(trace, file)
        file.seek(0)
        input, target = 5 * torch.randn(3, 4), torch.tensor([-100, 2, 2])
        torch.testing.assert_close(torch.jit.load(file)(input, target), model(input, target))


# 14: the layouts of language models


TOKENS = torch.arange(34).reshape(2, 17) % 11
LOGITS = torch.zeros(2, 16, 11)
SHAPES = {
    "classes last": (lambda: curve_loss(LOGITS, TOKENS[:, 1:], curves.normal()),
                     r"\(2, 16\).*\(2, 16, 11\).*flatten\(0, 1\) and target\.flatten\(\).*\(N, C, d\)"),
    "classes last, target flattened": (lambda: curve_loss(LOGITS, TOKENS[:, 1:].flatten(), curves.normal()),
                                       r"\(32,\).*\(2, 16, 11\).*flatten\(0, 1\)"),
    "logits flattened, target not": (lambda: curve_loss(LOGITS.flatten(0, 1), TOKENS[:, 1:], curves.normal()),
                                     r"\(2, 16\).*\(32, 11\).*pass target\.flatten\(\)"),
    "unshifted": (lambda: curve_loss(LOGITS, TOKENS, curves.normal()),
                  r"\(2, 17\).*\(2, 16, 11\).*16 positions and 17 labels.*target\[:, 1:\]"),
    "unshifted and flattened": (lambda: curve_loss(LOGITS.flatten(0, 1), TOKENS.flatten(), curves.normal()),
                                r"\(34,\).*\(32, 11\).*32 positions and 34 tokens.*shift them before"),
    "fused layer, unshifted": (
        lambda: linear_curve_loss(torch.zeros(2, 16, 5), torch.zeros(11, 5), TOKENS, curves.normal()),
        r"\(2, 17\).*\(2, 16, 5\).*hidden\[:, :-1\].*target\[:, 1:\]"),
    "fused layer, target shifted only": (
        lambda: linear_curve_loss(torch.zeros(2, 17, 5), torch.zeros(11, 5), TOKENS[:, 1:], curves.normal()),
        r"\(2, 16\).*\(2, 17, 5\).*17 positions and 16 labels.*hidden\[:, :-1\]"),
    "fused layer, hidden flattened": (
        lambda: linear_curve_loss(torch.zeros(32, 5), torch.zeros(11, 5), TOKENS[:, 1:], curves.normal()),
        r"\(2, 16\).*\(32, 5\).*target\.flatten\(\)"),
}


@pytest.mark.hardening(14)
@pytest.mark.parametrize("what", SHAPES)
def test_14_a_target_of_a_language_model_that_does_not_fit_is_told_how_to(what):
    call, words = SHAPES[what]
    with pytest.raises(ShapeError, match=words):
        call()


@pytest.mark.hardening(14)
def test_14_the_advice_works():
    flat = curve_loss(LOGITS.flatten(0, 1), TOKENS[:, 1:].flatten(), curves.normal())
    moved = curve_loss(LOGITS.movedim(-1, 1), TOKENS[:, 1:], curves.normal())
    torch.testing.assert_close(flat, moved)
    with pytest.raises((ShapeError, TargetError)) as caught:
        curve_loss(torch.zeros(5, 3), torch.zeros(5, 2).long(), curves.normal())
    assert "language model" not in str(caught.value)
