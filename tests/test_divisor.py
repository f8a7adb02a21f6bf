"""``divisor``: the parts of a batch add up to the whole, whatever is ignored in each of them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
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
    curve_loss_and_gradient_,
    curve_loss_with_stats,
    curves,
    encouraging_loss,
    focal_loss,
    halted_focal_loss,
    linear_curve_loss,
    loss_divisor,
    mirror_mse_loss,
    poly_loss,
    sigmoid_curve_loss,
)
from encouraging.errors import ArgumentError, DtypeError, ShapeError, TargetError

ROWS, CLASSES = 24, 5
CE = curves.cross_entropy()
PARTS = [[slice(0, 1), slice(1, ROWS)], [slice(0, 3), slice(3, 4), slice(4, 17), slice(17, ROWS)]]


def draw(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels that are ignored unevenly (rows 4 to 16 hold four labels), and class weights."""
    g = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(ROWS, CLASSES, generator=g, dtype=torch.float64)
    target = torch.randint(CLASSES, (ROWS,), generator=g)
    target[5:14] = -100
    target[20] = -100
    return logits.requires_grad_(), target, torch.rand(CLASSES, generator=g, dtype=torch.float64) + 0.2


FORMS = {
    "curve_loss": partial(curve_loss, curve=CE),
    "encouraging_loss": encouraging_loss,
    "focal_loss": focal_loss,
    "halted_focal_loss": halted_focal_loss,
    "poly_loss": poly_loss,
    "with stats": lambda *a, **k: curve_loss_with_stats(*a, curve=curves.normal(), **k)[0],
}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("parts", PARTS, ids=len)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_gradients_of_the_parts_add_up_to_that_of_the_whole_batch(form, parts, weighted, smoothing):
    logits, target, weight = draw()
    arguments = {"weight": weight if weighted else None, "label_smoothing": smoothing}
    divisor = sum(loss_divisor(target[part], arguments["weight"]) for part in parts)
    pieces = [form(logits[part], target[part], divisor=divisor, **arguments) for part in parts]
    whole = form(logits, target, **arguments)
    torch.testing.assert_close(sum(pieces), whole, rtol=1e-13, atol=0)
    (ours,), (theirs,) = (torch.autograd.grad(loss, logits) for loss in (sum(pieces), whole))
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-16)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("parts", PARTS, ids=len)
def test_accumulated_gradients_are_those_of_torchs_cross_entropy_of_the_whole_batch(parts, weighted, smoothing):
    logits, target, weight = draw()
    arguments = {"weight": weight if weighted else None, "label_smoothing": smoothing}
    divisor = loss_divisor(target, arguments["weight"])
    for part in parts:
        curve_loss(logits[part], target[part], CE, divisor=divisor, **arguments).backward()
    (expected,) = torch.autograd.grad(F.cross_entropy(logits, target, **arguments), logits)
    torch.testing.assert_close(logits.grad, expected, rtol=1e-12, atol=1e-16)


def test_a_part_whose_labels_are_all_ignored_adds_0():
    logits, target, _ = draw()
    loss = curve_loss(logits[5:14], target[5:14], curves.conservative(), divisor=7)
    assert loss == 0
    assert torch.autograd.grad(loss, logits)[0].abs().sum() == 0


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_fused_layer_adds_up_too(weighted, soft):
    logits, target, class_weight = draw()
    weight = torch.randn(CLASSES, CLASSES, dtype=torch.float64, requires_grad=True)
    if soft:
        target = logits.detach().softmax(1)
    arguments: dict[str, Any] = {"class_weight": class_weight if weighted else None}
    loss = partial(linear_curve_loss, curve=curves.conservative(), chunk_bytes=2 * CLASSES * 8, **arguments)
    divisor = sum(loss_divisor(target[part], arguments["class_weight"], class_dim=-1) for part in PARTS[1])
    ours = sum(loss(logits[part], weight, target[part], divisor=divisor) for part in PARTS[1])
    theirs = loss(logits, weight, target)
    torch.testing.assert_close(ours, theirs)
    for mine, expected in zip(*(torch.autograd.grad(total, (logits, weight)) for total in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-12, atol=1e-15)


def test_sigmoid_and_squared_losses_divide_the_sum_by_it():
    logits, target, weight = draw()
    present = (logits.detach() > 0).long()
    for loss, truth in ((partial(sigmoid_curve_loss, curve=curves.focal(), weight=weight), present),
                        (mirror_mse_loss, target.clamp(min=0)),
                        (partial(mirror_mse_loss, link="sigmoid"), present.double())):
        total = loss(logits, truth, reduction="sum")
        torch.testing.assert_close(loss(logits, truth, divisor=7), total / 7)
        torch.testing.assert_close(loss(logits, truth, divisor=torch.tensor(logits.numel())), loss(logits, truth))


def test_the_default_divisor_is_torchs():
    logits, target, weight = draw()
    for kwargs in ({}, {"weight": weight}, {"ignore_index": 2}, {"weight": weight, "ignore_index": 2}):
        labels = torch.where(target == -100, 2, target) if "ignore_index" in kwargs else target
        total = F.cross_entropy(logits, labels, reduction="sum", **kwargs)
        torch.testing.assert_close(total / loss_divisor(labels, **kwargs), F.cross_entropy(logits, labels, **kwargs))
    image, truth = torch.randn(2, CLASSES, 3, 4, dtype=torch.float64), torch.rand(2, CLASSES, 3, 4, dtype=torch.float64)
    total = F.cross_entropy(image, truth, reduction="sum")
    torch.testing.assert_close(total / loss_divisor(truth), F.cross_entropy(image, truth))
    assert loss_divisor(truth.movedim(1, -1), class_dim=-1) == loss_divisor(truth) == 24
    assert loss_divisor(truth[0, :, 0, 0]) == 1
    assert loss_divisor(torch.tensor([156, 3], dtype=torch.uint8)) == 2  # in uint8, -100 is 156
    assert loss_divisor(target, weight.to(torch.bfloat16)).dtype == torch.float32


MODULES = {
    "CurveLoss": partial(CurveLoss, CE), "EncouragingLoss": EncouragingLoss, "FocalLoss": FocalLoss,
    "HaltedFocalLoss": HaltedFocalLoss, "PolyLoss": PolyLoss, "LDAMLoss": partial(LDAMLoss, torch.arange(1, 6)),
    "SigmoidCurveLoss": partial(SigmoidCurveLoss, CE), "MirrorMSELoss": MirrorMSELoss,
    "LinearCurveLoss": partial(LinearCurveLoss, CLASSES, CLASSES, CE, dtype=torch.float64),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_modules_take_it_when_they_are_made_and_when_they_are_called(make):
    logits, target, _ = draw()
    target = target.clamp(min=0)
    torch.manual_seed(0)
    made = make(divisor=8.0)
    torch.manual_seed(0)
    plain = make()
    truth = F.one_hot(target, CLASSES) if isinstance(made, SigmoidCurveLoss) else target
    torch.testing.assert_close(made(logits, truth), plain(logits, truth, divisor=8.0))
    torch.testing.assert_close(made(logits, truth, divisor=2), 4 * made(logits, truth))
    torch.manual_seed(0)
    torch.testing.assert_close(make(reduction="sum")(logits, truth) / 8, made(logits, truth))
    with pytest.raises(ArgumentError, match="reduction='sum'"):
        make(reduction="sum", divisor=8.0)(logits, truth)


def test_it_shows_in_the_repr_of_a_module():
    assert repr(EncouragingLoss(divisor=64)) == "EncouragingLoss(log_end=0.75, divisor=64)"
    assert repr(SigmoidCurveLoss(CE, divisor=64)) == "SigmoidCurveLoss(curve=cross_entropy(), divisor=64)"


def test_the_dtype_of_the_loss_does_not_follow_the_divisors():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        logits = draw()[0].to(dtype)
        for divisor in (3, 3.0, torch.tensor(3), torch.tensor(3.0, dtype=torch.float64)):
            loss = encouraging_loss(logits, draw()[1], divisor=divisor)
            assert loss.dtype == dtype
            assert torch.autograd.grad(loss, logits)[0].dtype == dtype


def test_a_tensor_is_never_read_by_the_host():
    """Fake tensors have no numbers: reading one is an error."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        logits, target = torch.randn(8, CLASSES, requires_grad=True), torch.zeros(8, dtype=torch.long)
        divisor = loss_divisor(target, torch.rand(CLASSES))
        for loss in (encouraging_loss(logits, target, divisor=divisor),
                     mirror_mse_loss(logits, target, divisor=divisor),
                     sigmoid_curve_loss(logits, logits.detach() > 0, CE, divisor=divisor)):
            loss.backward()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own, while tracing
@pytest.mark.parametrize("loss", [
    encouraging_loss, partial(linear_curve_loss, weight=torch.eye(CLASSES).double(), curve=CE)],
    ids=["loss", "fused layer"])
def test_a_changing_divisor_does_not_compile_again(loss):
    torch._dynamo.reset()
    logits, target, _ = draw()
    graphs = []

    def step(z: Tensor, divisor: Tensor) -> Tensor:
        return loss(z, target=target, divisor=divisor)

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(step, backend=backend, fullgraph=True)
    for number in (3.0, 5.0, 7.0):
        divisor = torch.tensor(number, dtype=torch.float64)
        torch.testing.assert_close(compiled(logits, divisor), step(logits, divisor))
    assert len(graphs) == 1


@pytest.mark.parametrize(("divisor", "reduction", "error", "words"), [
    (3, "sum", ArgumentError, "reduction='sum'"),
    (3, "none", ArgumentError, "reduction='none'"),
    (torch.tensor(3), "sum", ArgumentError, "divide the result yourself"),
    (0, "mean", ArgumentError, "positive"),
    (-1.0, "mean", ArgumentError, "positive"),
    (math.nan, "mean", ArgumentError, "positive"),
    (math.inf, "mean", ArgumentError, "positive"),
    (torch.ones(2), "mean", ShapeError, r"\(2,\)"),
    (torch.tensor(True), "mean", DtypeError, "bool"),
    (torch.tensor(1j), "mean", DtypeError, "complex"),
    (True, "mean", DtypeError, "bool"),
    ("24", "mean", DtypeError, "str"),
])
def test_what_cannot_divide_is_refused_in_words(divisor, reduction, error, words):
    logits, target, _ = draw()
    target = target.clamp(min=0)
    for call in (lambda **k: curve_loss(logits, target, CE, **k), lambda **k: encouraging_loss(logits, target, **k),
                 lambda **k: linear_curve_loss(logits, torch.eye(CLASSES).double(), target, CE, **k),
                 lambda **k: sigmoid_curve_loss(logits, logits.detach() > 0, CE, **k),
                 lambda **k: mirror_mse_loss(logits, target, **k),
                 lambda **k: curve_loss_with_stats(logits, target, CE, **k),
                 lambda **k: CurveLoss(CE, **k), lambda **k: MirrorMSELoss(**k)):
        with pytest.raises(error, match=words):
            call(divisor=divisor, reduction=reduction)
    if reduction == "mean":
        with pytest.raises(error, match=words):
            curve_loss_and_gradient_(logits.detach(), target, CE, divisor=divisor)


def test_a_label_without_a_weight_is_refused():
    with pytest.raises(TargetError, match=r"label 7.*3 classes"):
        loss_divisor(torch.tensor([0, 7]), torch.ones(3))
    with pytest.raises(DtypeError, match="list"):
        loss_divisor([0, 1])


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda t: loss_divisor(t, [1.0] * 5), DtypeError, "weight is list"),
    (lambda t: loss_divisor(t, torch.ones(5, dtype=torch.long)), DtypeError, "weight is torch.int64"),
    (lambda t: loss_divisor(t, torch.ones(5, 1)), ShapeError, r"weight has shape \(5, 1\): expected \(C,\)"),
    (lambda t: loss_divisor(torch.rand(3, 4), torch.ones(5)), ShapeError, r"\(5,\): expected \(4,\)"),
    (lambda t: loss_divisor(t > 1), DtypeError, r"target is torch.bool.*target\.long\(\)"),
    (lambda t: loss_divisor(t * 1j), TargetError, "target is torch.complex64"),
    (lambda t: loss_divisor(torch.tensor(0.5)), TargetError, r"of shape \(\): expected integer labels"),
    (lambda t: loss_divisor(t.to_sparse()), ArgumentError, r"target\.to_dense\(\)"),
    (lambda t: loss_divisor(torch.rand(3, 4), class_dim=7), ArgumentError, "class_dim=7.*from -2 to 1"),
    (lambda t: loss_divisor(torch.rand(3, 4), class_dim=-3), ArgumentError, "class_dim=-3"),
    (lambda t: loss_divisor(torch.rand(3, 4), class_dim="last"), ArgumentError, "class_dim='last'"),
])
def test_what_the_losses_refuse_has_no_divisor_either(call, error, words):
    with pytest.raises(error, match=words):
        call(torch.tensor([0, 1, 2]))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_are_0_where_all_labels_are_ignored_and_the_divisor_is_0(smoothing):
    target = torch.full((3,), -100)
    divisor = loss_divisor(target)
    hidden, weight = torch.randn(3, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    loss = linear_curve_loss(hidden, weight, target, curves.conservative(), label_smoothing=smoothing, divisor=divisor)
    loss.backward()
    assert loss.isnan()
    assert not hidden.grad.any()
    assert not weight.grad.any()
    logits = torch.randn(3, 4)
    losses = curve_loss_and_gradient_(logits, target, curves.conservative(), label_smoothing=smoothing, divisor=divisor)
    assert not losses.any()
    assert not logits.any()


@pytest.mark.parametrize("upstream", [torch.float16, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_divisor_of_a_gradient_is_as_exact_as_the_logits(smoothing, upstream):
    logits, target = torch.randn(3, 4, dtype=torch.float64), torch.tensor([0, 3, 1])
    above = torch.tensor([1.0, 0.5, 3.0]).to(upstream)
    plain, divided = logits.clone(), logits.clone()
    curve_loss_and_gradient_(plain, target, curves.normal(), label_smoothing=smoothing)
    curve_loss_and_gradient_(divided, target, curves.normal(), label_smoothing=smoothing, upstream=above, divisor=1e6)
    torch.testing.assert_close(divided, plain * above[:, None] / 1e6, rtol=1e-13, atol=0)
