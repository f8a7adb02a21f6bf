"""A module whose curve, or one of its parameters, changes during training."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor

from encouraging import (
    EncouragingLoss,
    FocalLoss,
    HaltedFocalLoss,
    LinearCurveLoss,
    PolyLoss,
    curve_loss,
    curves,
)
from encouraging.errors import CurveError, DtypeError


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


@pytest.mark.parametrize(("kind", "changes", "curve", "text"), CHANGES)
def test_a_changed_parameter_or_curve_changes_loss_and_repr(kind, changes, curve, text):
    loss, (logits, target) = kind(), batch()
    for name, value in changes.items():
        setattr(loss, name, value)
    assert loss.curve == curve
    assert repr(loss) == text
    for same in (loss, copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert torch.equal(same(logits, target), curve_loss(logits, target, curve))
        assert all(getattr(same, name) == value for name, value in changes.items() if name != "curve")


def test_eps_is_remembered_while_log_end_is_below_1():
    loss = EncouragingLoss(log_end=0.5, eps=1e-3)
    for log_end in (0.75, 1.0, 0.5, 1.0):
        loss.log_end = log_end
        assert (loss.log_end, loss.eps) == (log_end, 1e-3)
    assert loss.curve == curves.normal(1e-3)


def test_a_wrong_value_is_refused_and_changes_nothing():
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


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("make", [EncouragingLoss, lambda: LinearCurveLoss(4, 4, curves.conservative())],
                         ids=["loss", "fused layer"])
def test_compiled_code_follows_a_schedule(make):
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
