"""The sigmoid losses in blocks, against their definition in float64 and against the form that transforms take."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from encouraging import curves, sigmoid_curve_loss
from encouraging.curves import Curve
from encouraging.ops import rows

CURVES = [curves.cross_entropy(), curves.conservative(0.75), curves.conservative(0.0), curves.normal(),
          curves.focal(2.0), curves.focal(0.5), curves.halted_focal(2.0, 0.5), curves.aggressive(0.5),
          curves.custom(lambda gap: -0.5 * gap, lambda gap: torch.full_like(gap, 0.5))]
SHAPES = [(), (7,), (5, 3), (2, 3, 4), (0, 3), (3, 0)]
ARGUMENTS = [{}, {"alpha": 0.25}, {"alpha": 0.0}, {"pos_weight": True}, {"weight": True},
             {"negative_curve": curves.normal(0)}, {"alpha": 0.3, "pos_weight": True}]


def target_of(kind: str, shape: tuple[int, ...]) -> Tensor:
    g = torch.Generator().manual_seed(len(shape))
    if kind == "indices":
        return torch.randint(-1, max(1, shape[-1]), shape[:-1], generator=g)
    draws = torch.rand(shape, generator=g, dtype=torch.float64)
    if kind == "probabilities":
        return torch.where(draws < 0.2, 0.0, torch.where(draws > 0.8, 1.0, draws))
    return (draws < 0.3).to({"bool": torch.bool, "integers": torch.int64, "floats": torch.float64}[kind])


@pytest.mark.parametrize("kind", ["bool", "integers", "floats", "probabilities", "indices"])
@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_every_argument_is_its_definition(curve: Curve, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rows._BLOCK_BYTES, "cpu", 64)  # several blocks, of a row each
    for shape in SHAPES:
        if kind == "indices" and not (shape and shape[-1]):
            continue
        target = target_of(kind, shape)
        truth = (target[..., None] == torch.arange(shape[-1])).double() if kind == "indices" else target.double()
        for arguments in ARGUMENTS:
            given = {name: torch.linspace(0.5, 1.5, shape[-1] if shape else 1, dtype=torch.float64).reshape(shape[-1:])
                     if value is True else value for name, value in arguments.items()}
            z = (6 * torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
            leaf, again = z.clone().requires_grad_(), z.clone().requires_grad_()
            loss = sigmoid_curve_loss(leaf, target, curve, reduction="none", **given)
            negative, alpha = given.get("negative_curve", curve), given.get("alpha")
            for_positives = given.get("pos_weight", 1.0) * (1.0 if alpha is None else alpha)
            expected = given.get("weight", 1.0) * (
                truth * for_positives * curve.value(again)
                + (1 - truth) * (1.0 if alpha is None else 1 - alpha) * negative.value(-again))
            near = {"rtol": 1e-11, "atol": 1e-12}
            torch.testing.assert_close(loss, expected, **near)
            if z.numel():
                upstream = torch.linspace(-1, 1, z.numel(), dtype=torch.float64).reshape(shape)
                slope, = torch.autograd.grad(loss, leaf, upstream)
                torch.testing.assert_close(slope, torch.autograd.grad(expected, again, upstream)[0], **near)


@pytest.mark.parametrize("kind", ["bool", "probabilities"])
def test_a_confident_example_keeps_its_digits(kind: str) -> None:
    z, target = torch.tensor([[50.0, -50.0, 20.0]]), torch.tensor([[1.0, 0.0, 1.0]])
    target = target.bool() if kind == "bool" else torch.cat([target, torch.full((1, 3), 0.5)])
    for curve in (curves.cross_entropy(), curves.conservative(0.75), curves.focal(0.5)):
        single = z.expand(target.shape).clone().requires_grad_()
        double = single.detach().double().requires_grad_()
        sigmoid_curve_loss(single, target, curve, reduction="sum").backward()
        exact = target if kind == "bool" else target.double()
        sigmoid_curve_loss(double, exact, curve, reduction="sum").backward()
        torch.testing.assert_close(single.grad.double(), double.grad, rtol=2e-5, atol=0.0)


def test_infinite_logits_and_no_weight() -> None:
    z = torch.tensor([[torch.inf, -torch.inf, torch.nan, 0.0]])
    soft = torch.tensor([[1.0, 0.0, 0.5, 0.5]])
    loss = sigmoid_curve_loss(z, soft, curves.cross_entropy(), reduction="none", pos_weight=torch.tensor(2.0))
    assert loss[0, :2].tolist() == [0.0, 0.0]
    assert loss[0].isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", ["bool", "probabilities"])
def test_higher_and_batched_derivatives(kind: str) -> None:
    z, target = torch.randn(4, 3, dtype=torch.float64, requires_grad=True), target_of(kind, (4, 3))

    def loss(x: Tensor) -> Tensor:
        return sigmoid_curve_loss(x, target, curves.focal(2.0), reduction="none", alpha=0.25)

    assert torch.autograd.gradcheck(loss, z)
    assert torch.autograd.gradgradcheck(loss, z)
    rowwise = torch.func.vmap(torch.func.grad(lambda x, t: sigmoid_curve_loss(
        x, t, curves.focal(2.0), reduction="sum", alpha=0.25)))(z.detach(), target)
    torch.testing.assert_close(rowwise, torch.autograd.grad(loss(z).sum(), z)[0], rtol=1e-11, atol=1e-13)
    batched, = torch.autograd.grad(loss(z), z, torch.eye(12, dtype=torch.float64).view(12, 4, 3), is_grads_batched=True)
    plain = torch.autograd.functional.jacobian(loss, z).view(12, 4, 3)
    torch.testing.assert_close(batched, plain)
