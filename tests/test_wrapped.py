"""Libraries that wrap, trace or export a loss: its annotations, ONNX, and traces that are saved."""

from __future__ import annotations

import functools
import io
import itertools
import typing

import pytest
import torch
from torch import Tensor, nn

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
    curves,
)


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


@pytest.mark.parametrize("name", MODULES)
def test_the_annotations_of_a_wrapped_module_can_be_evaluated(name):
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


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning",  # of the legacy export itself
                            "ignore::torch.jit.TracerWarning")  # shapes are checked while they are traced
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_legacy_onnx_export_gets_as_far_as_with_torchs_cross_entropy(smoothing):
    theirs = export(Model(nn.CrossEntropyLoss()))  # which has no export with smoothing
    for curve in (curves.conservative(), curves.normal(), curves.focal(), curves.halted_focal(), curves.power(2.0)):
        assert export(Model(CurveLoss(curve, label_smoothing=smoothing))) == theirs


@pytest.mark.filterwarnings("ignore:`torch.jit.(trace|save|load)", "ignore::torch.jit.TracerWarning")
def test_a_trace_is_saved_loaded_and_right_for_other_numbers():
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
