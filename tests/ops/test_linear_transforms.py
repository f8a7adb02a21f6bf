"""Output layer and loss in chunks under torch.compile and torch.func, and the second derivative that is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from encouraging import LinearCurveLoss, curve_loss, curves
from encouraging.errors import ArgumentError, DerivativeError
from encouraging.ops import linear_compiled
from encouraging.ops.linear import linear_curve_loss
from linear_cases import CLASSES, ROW_BYTES, assert_close, draw, gradients
from plain_formula import plain_loss


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_a_second_derivative_is_refused(reduction):
    hidden, weight, shift, target = draw(10)
    loss = linear_curve_loss(hidden, weight, target, curves.normal(), shift, reduction=reduction).sum()
    with pytest.raises(DerivativeError, match="second derivative"):
        torch.autograd.grad(loss, hidden, create_graph=True)
    loss = linear_curve_loss(hidden, weight, target, curves.normal(), shift, reduction=reduction).sum()
    with pytest.raises(DerivativeError, match="curve_loss"):
        loss.backward(create_graph=True)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_a_batch_of_upstream_gradients_is_refused(reduction):
    hidden, weight, shift, target = draw(10)
    loss = linear_curve_loss(hidden, weight, target, curves.normal(), shift, reduction=reduction)
    with pytest.raises(DerivativeError, match="one upstream gradient at a time"):
        torch.autograd.grad(loss, hidden, torch.ones(3, *loss.shape, dtype=loss.dtype), is_grads_batched=True)


@pytest.mark.filterwarnings("ignore:`torch.jit.script`")  # torch's own, on first use of forward mode
def test_functional_transforms_take_the_plain_layer():
    hidden, weight, _, target = draw(11)
    hidden, weight = hidden.detach(), weight.detach()

    def ours(h: Tensor, w: Tensor, t: Tensor) -> Tensor:
        return linear_curve_loss(h, w, t, curves.conservative())

    def theirs(h: Tensor, w: Tensor, t: Tensor) -> Tensor:
        return plain_loss(F.linear(h, w), t, curves.conservative())

    torch.testing.assert_close(torch.func.grad(ours, 1)(hidden, weight, target),
                               torch.func.grad(theirs, 1)(hidden, weight, target))
    each = torch.func.vmap(torch.func.grad(ours, 1), (0, None, 0))(hidden[:, None], weight, target[:, None])
    torch.testing.assert_close(each.mean(0), torch.func.grad(theirs, 1)(hidden, weight, target))
    tangent = torch.randn_like(hidden)
    torch.testing.assert_close(torch.func.jvp(lambda h: ours(h, weight, target), (hidden,), (tangent,)),
                               torch.func.jvp(lambda h: theirs(h, weight, target), (hidden,), (tangent,)))
    with torch.autograd.forward_ad.dual_level():
        dual = ours(torch.autograd.forward_ad.make_dual(hidden, tangent), weight, target)
        assert torch.autograd.forward_ad.unpack_dual(dual).tangent is not None


@pytest.mark.parametrize("impl", ["foo", "triton"])
def test_an_implementation_that_transforms_cannot_have_is_refused(impl):
    hidden, weight, _, target = draw(11)
    with pytest.raises(ArgumentError, match=f"impl='{impl}'"):
        torch.func.grad(lambda h: linear_curve_loss(h, weight, target, curves.normal(), impl=impl))(hidden.detach())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_compiled_code_is_one_graph(reduction, dtype, smoothing):
    torch._dynamo.reset()
    hidden, weight, shift, target = draw(12, dtype=dtype)
    target[3] = -100
    class_weight = torch.rand(CLASSES, generator=torch.Generator().manual_seed(0)) + 0.5

    def step(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        loss = linear_curve_loss(2 * h, w, target, curves.conservative(), b, class_weight, reduction=reduction,
                                 label_smoothing=smoothing, chunk_bytes=400)
        return (3 * loss * torch.arange(1, 1 + loss.numel()).reshape(loss.shape)).sum()

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    leaves = [hidden, weight, shift]
    torch.testing.assert_close(compiled(*leaves), step(*leaves))
    for frozen in (False, True):
        weight.requires_grad_(not frozen)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        for mine, eager in zip(*(gradients(how(*leaves), wanted) for how in (compiled, step)), strict=True):
            assert mine.dtype == eager.dtype == dtype
            bound = (1e-6 if dtype == torch.float32 else 2**-6) * eager.abs().max().item()
            torch.testing.assert_close(mine, eager, rtol=0, atol=bound)


FAMILIES = [curves.by_name(name) for name in curves.names()]  # with every default, that of halt among them


@pytest.mark.parametrize("kind", ["labels", "smoothed labels", "probabilities"])
@pytest.mark.parametrize("curve", FAMILIES, ids=repr)
def test_compiled_code_is_the_layer_followed_by_the_loss_for_every_curve_and_target(curve, kind):
    torch._dynamo.reset()
    hidden, weight, shift, target = draw(15, rows=12)
    if kind == "probabilities":
        target = F.softmax(3 * torch.randn(12, CLASSES, dtype=torch.float64), 1)
    smoothing = 0.1 if kind == "smoothed labels" else 0.0

    def step(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return linear_curve_loss(h, w, target, curve, b, label_smoothing=smoothing, chunk_bytes=5 * ROW_BYTES)

    leaves = [hidden, weight, shift]
    ours = torch.compile(step, backend="aot_eager", fullgraph=True)(*leaves)
    theirs = curve_loss(F.linear(*leaves), target, curve, label_smoothing=smoothing, impl="reference")
    assert_close([ours, *gradients(ours, leaves)], [theirs, *gradients(theirs, leaves)])


@pytest.mark.parametrize("strict", [False, True])
def test_it_is_exported_for_any_number_of_rows(strict):
    layer = LinearCurveLoss(4, CLASSES, curves.conservative(), bias=True)
    rows = torch.export.Dim("rows")
    exported = torch.export.export(layer, (torch.randn(4, 4), torch.arange(4)), strict=strict,
                                   dynamic_shapes={"input": {0: rows}, "target": {0: rows}})
    hidden, target = torch.randn(7, 4), torch.arange(7) % CLASSES
    torch.testing.assert_close(exported.module()(hidden, target), layer(hidden, target))


def test_compiled_code_with_all_rows_ignored_and_without_gradient():
    hidden, weight, _, target = draw(12, dtype=torch.float32)
    compiled = torch.compile(lambda h, t: linear_curve_loss(h, weight, t, curves.normal()), backend="aot_eager",
                             fullgraph=True)
    loss = compiled(hidden, torch.full_like(target, -100))
    assert loss.isnan()
    assert all((gradient == 0).all() for gradient in gradients(loss, [hidden, weight]))
    with torch.no_grad():
        torch.testing.assert_close(compiled(hidden, target), linear_curve_loss(hidden, weight, target, curves.normal()))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own, while tracing
def test_a_custom_curve_breaks_the_graph_of_compiled_code_and_stays_right():
    hidden, weight, shift, target = draw(12, dtype=torch.float32)
    own = curves.from_probability(lambda p: (1 - p) ** 3, "cubed")

    def step(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return 3 * linear_curve_loss(2 * h, w, target, own, b, chunk_bytes=400)

    compiled = torch.compile(step, backend="aot_eager")
    leaves = [hidden, weight, shift]
    assert_close(gradients(compiled(*leaves), leaves), gradients(step(*leaves), leaves), rtol=1e-6)


def test_operators_keep_their_promises():
    hidden, weight, shift, target = draw(14, dtype=torch.float32)
    common = (hidden, weight, shift, target, None, "conservative", [0.75], False, -100, 0.1, 400, "float32",
              "reference", torch.float32)
    torch.library.opcheck(linear_compiled.linear_curve_sum, (*common, [True, True, True]))
    torch.library.opcheck(linear_compiled.linear_curve_sum, (*common, [True, False, False]))
    torch.library.opcheck(linear_compiled.linear_curve_rows, common)
