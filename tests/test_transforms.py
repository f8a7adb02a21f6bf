"""Autograd's transforms, each against the plain formula under the same transform: never a wrong number."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from encouraging import curve_loss, curves, mirror_mse_loss, sigmoid_curve_loss
from paper_formulas import ALL_CURVES, phi
from strategies import SEEDS, generator
from transform_cases import CLASSES, ROWS, SMOOTHING, batch

SMOOTH = [curves.cross_entropy(), curves.normal(0), curves.conservative(0.6), curves.power(2.5, 0.5), curves.focal(2.0),
          curves.halted_focal(1.5, 0.4), curves.square()]
# torch's own tracer makes an object of every autograd Function that it meets, and warns about it.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


def ours(curve, label: Tensor, smoothing: float = 0.0, reduction: str = "sum"):
    return lambda z: curve_loss(z, label, curve, reduction=reduction, label_smoothing=smoothing)


def plain(curve, label: Tensor, smoothing: float = 0.0, reduction: str = "sum"):
    """The same in p, from torch's softmax; fine in float64 at these gaps."""
    def loss(z: Tensor) -> Tensor:
        target = (1 - smoothing) * F.one_hot(label, CLASSES).double() + smoothing / CLASSES
        rows = (target * phi(curve, z.softmax(-1))).sum(-1)
        return rows if reduction == "none" else rows.sum()
    return loss


def same(ours, plain) -> None:
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-11)


# Numerical derivatives


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_first_and_second_derivatives_are_those_of_finite_differences(curve):
    logits, label = (tensor[[1, 3]] for tensor in batch())
    logits.requires_grad_()
    loss = ours(curve, label, reduction="none")
    assert torch.autograd.gradcheck(loss, logits, check_forward_ad=True, check_batched_grad=True,
                                    check_batched_forward_grad=True)
    assert torch.autograd.gradgradcheck(loss, logits, check_fwd_over_rev=True, check_rev_over_rev=True)


@pytest.mark.parametrize("curve", SMOOTH, ids=repr)
def test_so_are_those_of_soft_targets_in_the_logits_and_in_the_target(curve):
    logits, label = (tensor[1:3] for tensor in batch())
    target = (0.7 * F.one_hot(label, CLASSES) + 0.06).double().requires_grad_()
    logits.requires_grad_()

    def loss(z, t):
        return curve_loss(z, t, curve, reduction="none", weight=torch.linspace(0.5, 1.5, CLASSES, dtype=torch.float64))

    assert torch.autograd.gradcheck(loss, (logits, target), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(loss, (logits, target), check_fwd_over_rev=True)


@pytest.mark.parametrize("curve", SMOOTH, ids=repr)
def test_so_are_those_of_the_sigmoid_form(curve):
    logits, label = (tensor[1:3] for tensor in batch())
    logits.requires_grad_()
    for target in (F.one_hot(label, CLASSES), 0.7 * F.one_hot(label, CLASSES).double() + 0.1):
        def loss(z, target=target):
            return sigmoid_curve_loss(z, target, curve, reduction="none", alpha=0.3)
        assert torch.autograd.gradcheck(loss, logits, check_forward_ad=True, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(loss, logits, check_fwd_over_rev=True)


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
def test_so_are_those_of_the_mirrored_mse(link):
    logits, label = batch()
    logits.requires_grad_()

    def loss(z):
        return mirror_mse_loss(z, label, link=link, reduction="none")

    assert torch.autograd.gradcheck(loss, logits, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(loss, logits, check_fwd_over_rev=True)


# torch.func against the plain formula


@pytest.mark.parametrize("smoothing", SMOOTHING)
@pytest.mark.parametrize("curve", SMOOTH, ids=repr)
def test_nests_of_torch_func_agree_with_the_plain_formula(curve, smoothing):
    logits, label = batch()
    direction = torch.randn(logits.shape, generator=generator(1), dtype=torch.float64)
    mine, theirs = ours(curve, label, smoothing), plain(curve, label, smoothing)
    mine_rows, their_rows = ours(curve, label, smoothing, "none"), plain(curve, label, smoothing, "none")
    for transform in (grad, hessian):
        same(transform(mine)(logits), transform(theirs)(logits))
    for transform in (jacrev, jacfwd):
        same(transform(mine_rows)(logits), transform(their_rows)(logits))
    same(jacfwd(jacrev(mine))(logits), hessian(theirs)(logits))
    same(jacrev(jacfwd(mine))(logits), hessian(theirs)(logits))
    same(jacrev(jacrev(mine))(logits), hessian(theirs)(logits))
    same(jacfwd(jacfwd(mine))(logits), hessian(theirs)(logits))
    same(jvp(mine_rows, (logits,), (direction,)), jvp(their_rows, (logits,), (direction,)))
    same(jvp(grad(mine), (logits,), (direction,)), jvp(grad(theirs), (logits,), (direction,)))
    same(*(grad(lambda z, f=f: jvp(f, (z,), (direction,))[1])(logits) for f in (mine, theirs)))
    same(vjp(mine_rows, logits)[1](direction[:, 0]), vjp(their_rows, logits)[1](direction[:, 0]))


@pytest.mark.parametrize("curve", SMOOTH, ids=repr)
@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_vmap_of_a_row_is_the_batch_and_its_derivatives_the_batchs(curve, smoothing):
    logits, label = batch()

    def row(z, y):
        return curve_loss(z, y, curve, label_smoothing=smoothing)

    losses = plain(curve, label, smoothing, "none")
    same(vmap(row)(logits, label), losses(logits))
    same(vmap(grad(row))(logits, label), grad(lambda z: losses(z).sum())(logits))
    same(grad(lambda z: vmap(row)(z, label).sum())(logits), grad(lambda z: losses(z).sum())(logits))
    same(vmap(hessian(row))(logits, label), torch.stack([
        hessian(plain(curve, y, smoothing))(z) for z, y in zip(logits, label, strict=True)]))
    direction = torch.randn(logits.shape, generator=generator(1), dtype=torch.float64)
    same(vmap(lambda z, y, v: jvp(lambda z: row(z, y), (z,), (v,))[1])(logits, label, direction),
         jvp(losses, (logits,), (direction,))[1])


@settings(max_examples=25)
@given(seed=SEEDS, dims=st.sampled_from([(0, 0), (1, 0), (0, None), (None, 0), (2, 1)]), soft=st.booleans())
def test_vmap_over_any_dimension_of_logits_or_target_is_a_loop(seed, dims, soft):
    g = generator(seed)
    logits = torch.randn(3, ROWS, CLASSES, generator=g, dtype=torch.float64) * 3
    if soft:
        target = torch.rand(3, ROWS, CLASSES, generator=g, dtype=torch.float64).softmax(-1)
    else:
        target = torch.randint(CLASSES, (3, ROWS), generator=g)
        target[0, 0] = -100
    weight = torch.rand(CLASSES, generator=g, dtype=torch.float64)
    z = logits[0] if dims[0] is None else logits.movedim(0, dims[0])
    t = target[0] if dims[1] is None else target.movedim(0, dims[1])

    def loss(z, t):
        return curve_loss(z, t, curves.conservative(0.5), weight, reduction="none")

    loop = torch.stack([loss(logits[0 if dims[0] is None else i], target[0 if dims[1] is None else i])
                        for i in range(3)])
    torch.testing.assert_close(vmap(loss, dims)(z, t), loop, rtol=1e-14, atol=1e-14)


def test_vmap_within_vmap_and_over_an_empty_batch():
    logits = torch.randn(2, 3, ROWS, CLASSES, dtype=torch.float64)
    label = torch.randint(CLASSES, (2, 3, ROWS))
    loss = ours(curves.conservative(), label[0, 0], reduction="none")
    assert vmap(vmap(loss))(logits).shape == (2, 3, ROWS)
    nested = vmap(vmap(lambda z, t: curve_loss(z, t, curves.normal(), reduction="none")))(logits, label)
    flat = curve_loss(logits.flatten(0, 2), label.flatten(), curves.normal(), reduction="none")
    torch.testing.assert_close(nested, flat.reshape(2, 3, ROWS))
    empty = vmap(lambda z, t: curve_loss(z, t, curves.normal(), reduction="none"))
    assert empty(logits[0][:, :0], label[0][:, :0]).shape == (3, 0)


@pytest.mark.parametrize("match", [False, True])
def test_match_norm_and_mirror_mse_pass_through_vmap_of_grad(match):
    logits, label = batch()

    def row(z, y):
        return curve_loss(z[None], y[None], curves.normal(), match_norm=match) + mirror_mse_loss(z, y)

    looped = torch.stack([torch.autograd.grad(row(z, y), z)[0] for z, y in
                          zip(logits.requires_grad_().unbind(), label, strict=True)])
    torch.testing.assert_close(vmap(grad(row))(logits.detach(), label), looped, rtol=1e-13, atol=1e-15)


def test_per_example_gradients_of_a_model_are_those_of_a_loop():
    model = torch.nn.Linear(3, CLASSES).double()
    x, label = torch.randn(ROWS, 3, dtype=torch.float64), torch.tensor([0, 3, 1, 4])
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def loss(parameters, x, y):
        return curve_loss(torch.func.functional_call(model, parameters, (x,)), y, curves.conservative())

    each = vmap(grad(loss), (None, 0, 0))(parameters, x, label)
    for i in range(ROWS):
        by_loop = torch.autograd.grad(curve_loss(model(x[i]), label[i], curves.conservative()), model.weight)[0]
        torch.testing.assert_close(each["weight"][i], by_loop, rtol=1e-12, atol=1e-14)


# torch.autograd's own


@pytest.mark.parametrize("smoothing", SMOOTHING)
@pytest.mark.parametrize("curve", SMOOTH, ids=repr)
def test_a_gradient_penalty_has_the_gradient_of_the_plain_formulas(curve, smoothing):
    _, label = batch()
    weight = torch.randn(CLASSES, 3, generator=generator(5), dtype=torch.float64)
    results = []
    for loss in (ours(curve, label, smoothing), plain(curve, label, smoothing)):
        x = torch.randn(ROWS, 3, generator=generator(6), dtype=torch.float64).requires_grad_()
        value = loss(x @ weight.T)
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        total = value + slope.square().sum()
        results.append(torch.autograd.grad(total, x)[0])
    same(*results)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_batch_of_upstream_gradients_is_a_loop_over_them(soft, create_graph):
    logits, label = batch()
    target = F.one_hot(label, CLASSES).double() if soft else label
    logits.requires_grad_()
    losses = curve_loss(logits, target, curves.conservative(), reduction="none")
    upstream = torch.randn(3, ROWS, dtype=torch.float64)
    (together,) = torch.autograd.grad(losses, logits, upstream, is_grads_batched=True, retain_graph=True,
                                      create_graph=create_graph)
    looped = torch.stack([torch.autograd.grad(losses, logits, u, retain_graph=True)[0] for u in upstream])
    torch.testing.assert_close(together, looped, rtol=1e-14, atol=1e-15)


def test_vectorised_jacobians_and_hessians_of_torch_autograd_agree_with_the_plain_formula():
    logits, label = batch()
    curve = curves.focal(2.0)
    functional = torch.autograd.functional
    same(functional.jacobian(ours(curve, label, 0, "none"), logits, vectorize=True),
         functional.jacobian(plain(curve, label, 0, "none"), logits))
    same(functional.hessian(ours(curve, label), logits, vectorize=True),
         functional.hessian(plain(curve, label), logits))


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_reverse_over_forward_mode_of_torch_autograd_is_the_hessian_times_the_direction(smoothing):
    logits, label = batch()
    direction = torch.randn(logits.shape, generator=generator(1), dtype=torch.float64)
    curve = curves.focal(2.0)
    logits.requires_grad_()
    with forward_ad.dual_level():
        dual = ours(curve, label, smoothing)(forward_ad.make_dual(logits, direction))
        (product,) = torch.autograd.grad(forward_ad.unpack_dual(dual).tangent, logits)
    same(product, torch.einsum("abcd,cd->ab", hessian(plain(curve, label, smoothing))(logits.detach()), direction))


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")  # torch's own, of its own graphs
@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_tracers_that_hold_no_numbers_get_through(smoothing):
    logits, label = batch()
    loss = ours(curves.conservative(), label, smoothing)
    direction = torch.randn(logits.shape, generator=generator(1), dtype=torch.float64)
    _, linear = torch.func.linearize(loss, logits)
    same(linear(direction), jvp(loss, (logits,), (direction,))[1])
    same(make_fx(grad(loss))(logits)(logits + 0.1), grad(loss)(logits + 0.1))
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert loss(torch.zeros(ROWS, CLASSES)).shape == ()
    assert curve_loss(logits.to("meta"), label.to("meta"), curves.conservative(), reduction="none").shape == (ROWS,)


def test_third_derivatives_are_right():
    logits, label = batch()
    curve = curves.conservative(0.6)
    row, same_row = (f(curve, label[2]) for f in (ours, plain))
    same(jacfwd(hessian(row))(logits[2]), jacfwd(hessian(same_row))(logits[2]))


def test_checkpointing_recomputes_the_same():
    logits, label = batch()
    logits.requires_grad_()
    loss = ours(curves.conservative(), label)
    again = torch.utils.checkpoint.checkpoint(loss, logits, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again, logits), torch.autograd.grad(loss(logits), logits))


def test_no_graph_is_made_where_nobody_asks_for_one():
    logits, label = batch()
    assert not ours(curves.conservative(), label)(logits).requires_grad
    with torch.no_grad():
        assert not ours(curves.conservative(), label)(logits.requires_grad_()).requires_grad
    with torch.inference_mode():
        assert curve_loss(logits.detach(), label, curves.conservative(), label_smoothing=0.1).isfinite()
