"""Which implementation each call takes, and the errors where the kernels cannot do what is asked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from encouraging import curve_loss, curve_loss_with_stats, curves
from encouraging.errors import ArgumentError
from encouraging.ops import dispatch, reference
from encouraging.ops.triton import hard_loss
from kernel_cases import MARKS

pytestmark = MARKS


class TestDispatch:
    z, y = torch.randn(3, 4), torch.tensor([0, 1, 2])

    def test_the_cpu_takes_the_reference(self) -> None:
        assert dispatch.choose("auto", self.z, self.y, curves.normal()) == "reference"
        assert dispatch.choose("reference", self.z, self.y, curves.normal()) == "reference"

    def test_the_interpreter_takes_the_kernels_when_asked(self) -> None:
        assert dispatch.choose("triton", self.z, self.y, curves.normal()) == "triton"

    def test_a_wish_that_cannot_be_fulfilled_is_answered_in_words(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mine = curves.custom(lambda gap: -gap, torch.ones_like)
        cases = [
            (self.z.double(), self.y, curves.normal(), "float64"),
            (self.z, self.z.softmax(1).double(), curves.normal(), "probabilities"),
            (self.z, self.y, mine, "no kernel for custom"),
        ]
        for logits, target, curve, words in cases:
            with pytest.raises(ArgumentError, match=words):
                dispatch.choose("triton", logits, target, curve)
        with pytest.raises(ArgumentError, match="expected 'auto'"):
            dispatch.choose("cuda", self.z, self.y, curves.normal())
        monkeypatch.delenv("TRITON_INTERPRET")
        with pytest.raises(ArgumentError, match="TRITON_INTERPRET"):
            dispatch.choose("triton", self.z, self.y, curves.normal())
        monkeypatch.setattr(dispatch, "_HAS_TRITON", False)
        with pytest.raises(ArgumentError, match="not installed"):
            dispatch.choose("triton", self.z, self.y, curves.normal())

    def test_class_weights_and_divisors_that_need_a_gradient_are_left_to_the_reference(self) -> None:
        """The kernels would give them none, and say nothing."""
        weight, divisor = torch.ones(4, requires_grad=True), torch.tensor(3.0, requires_grad=True)
        for arguments in ({"weight": weight}, {"divisor": divisor}):
            for loss in (curve_loss, curve_loss_with_stats):
                with pytest.raises(ArgumentError, match="class weights or the divisor need one"):
                    loss(self.z, self.y, curves.normal(), impl="triton", **arguments)
            with torch.no_grad():
                curve_loss(self.z, self.y, curves.normal(), impl="triton", **arguments)
        for fixed in (torch.ones(4), None, 3.0):
            assert dispatch.choose("triton", self.z, self.y, curves.normal(), others=(fixed,)) == "triton"

    def test_transforms_are_refused(self) -> None:
        def loss(logits: Tensor) -> Tensor:
            dispatch.choose("triton", logits, self.y, curves.normal())
            return logits.sum()

        with pytest.raises(ArgumentError, match=r"torch\.func"):
            torch.func.grad(loss)(self.z)
        with pytest.raises(ArgumentError, match="forward-mode"), torch.autograd.forward_ad.dual_level():
            loss(self.z)

    def test_every_curve_of_the_catalogue_has_its_kernel(self) -> None:
        for name in curves.names():
            curve = curves.by_name(name)
            assert dispatch.choose("triton", self.z, self.y, curve) == "triton"
            torch.testing.assert_close(hard_loss(self.z, self.y, curve), reference.hard_loss(self.z, self.y, curve))
