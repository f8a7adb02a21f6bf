"""Large-margin softmax: an angle multiplied, and how training gets there."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from encouraging import EncouragingLoss, LSoftmaxLinear, curve_loss, curves
from encouraging.errors import ArgumentError, DerivativeError, DtypeError
from encouraging.margins import angle_margin, logit_norm
from strategies import SEEDS, generator

MARGINS = st.sampled_from([1, 2, 3, 4])


def psi(theta: torch.Tensor, margin: int) -> torch.Tensor:
    """(-1)^k cos(m theta) - 2k on [k pi/m, (k+1) pi/m], from the angle."""
    k = (theta * margin / math.pi).floor().clamp(0, margin - 1)
    return (1 - 2 * (k % 2)) * torch.cos(margin * theta) - 2 * k


@given(margin=MARGINS, theta=st.floats(0, math.pi))
def test_from_the_cosine_psi_is_what_it_is_from_the_angle(margin, theta):
    theta = torch.tensor([theta], dtype=torch.float64)
    # cos(4 theta) is a polynomial with coefficients of 8 in the cosine.
    torch.testing.assert_close(angle_margin(theta.cos(), margin), psi(theta, margin), rtol=0, atol=64 * 2.0**-52)


@pytest.mark.parametrize("margin", [1, 2, 3, 4])
def test_psi_falls_from_1_to_1_minus_2m_without_a_jump(margin):
    cosine = torch.linspace(-1, 1, 20001, dtype=torch.float64)
    values = angle_margin(cosine, margin)
    steps = values.diff()
    assert (steps >= -1e-12).all()
    assert steps.max() <= margin**2 * 1e-4 * 1.01  # d psi / d cos is at most m^2
    assert values[-1] == pytest.approx(1)
    assert values[0] == pytest.approx(1 - 2 * margin)
    for k in range(1, margin):
        edge = math.cos(k * math.pi / margin)
        around = torch.tensor([math.nextafter(edge, -2), edge, math.nextafter(edge, 2)], dtype=torch.float64)
        assert angle_margin(around, margin).diff().abs().max() < 1e-14


@given(margin=MARGINS, cosine=st.floats(-1, 1))
def test_a_larger_margin_asks_more(margin, cosine):
    c = torch.tensor(cosine, dtype=torch.float64)
    assert angle_margin(c, margin) <= c + 1e-14


def layer_and_data(margin: int, seed: int = 0, beta: float = 0.0, **more):
    torch.manual_seed(seed)
    layer = LSoftmaxLinear(6, 4, margin, beta=beta, **more).double()
    return layer, torch.randn(9, 6, dtype=torch.float64), torch.arange(9) % 4


def test_margin_1_is_a_linear_layer():
    layer, x, y = layer_and_data(1)
    assert torch.equal(layer(x, y), nn.functional.linear(x, layer.weight))


@given(margin=MARGINS, seed=SEEDS, beta=st.sampled_from([0.0, 0.5, 100.0]))
def test_the_labels_logit_and_its_gradients_are_the_formulas(margin, seed, beta):
    layer, x, y = layer_and_data(margin, seed, beta)
    x.requires_grad_()
    mixed = layer(x, y)
    cotangent = torch.randn(mixed.shape, generator=generator(seed), dtype=torch.float64)
    ours = torch.autograd.grad(mixed, (x, layer.weight), cotangent)

    plain = x @ layer.weight.T
    length = x.norm(dim=1) * layer.weight[y].norm(dim=1)
    own = plain[torch.arange(9), y]
    theta = torch.acos(own / length)
    label = (length * psi(theta, margin) + beta * own) / (1 + beta)
    expected = plain.scatter(1, y[:, None], label[:, None])
    theirs = torch.autograd.grad(expected, (x, layer.weight), cotangent)
    torch.testing.assert_close(mixed, expected, rtol=1e-11, atol=1e-12)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)  # acos loses half its digits towards an angle of 0


@pytest.mark.parametrize("margin", [2, 3, 4])
def test_only_the_label_carries_the_margin_and_only_in_training(margin):
    layer, x, y = layer_and_data(margin)
    plain = x @ layer.weight.T
    trained = layer(x, y)
    rivals = torch.ones_like(plain, dtype=torch.bool).scatter(1, y[:, None], False)
    assert torch.equal(trained[rivals], plain[rivals])
    assert (trained[~rivals] <= plain[~rivals] + 1e-12).all()
    assert torch.equal(layer(x), plain)
    layer.eval()
    assert torch.equal(layer(x, y), plain)


def test_beta_decays_a_step_at_a_time_to_its_end_and_is_saved():
    layer, x, y = layer_and_data(2, beta=8.0, beta_min=1.0, decay=0.5)
    seen = []
    for _ in range(5):
        seen.append(layer.beta.item())
        layer(x, y).sum().backward()
    assert seen == [8, 4, 2, 1, 1]
    assert layer.state_dict()["beta"].item() == 1
    fresh, _, _ = layer_and_data(2, beta=8.0)
    fresh.load_state_dict(layer.state_dict())
    assert fresh.beta.item() == 1
    layer.eval()
    layer(x, y)
    layer.train()
    layer(x)
    assert layer.beta.item() == 1


def test_without_a_floor_beta_ends_at_the_whole_margin():
    layer, x, y = layer_and_data(2, beta=100.0, decay=0.9)
    whole, _, _ = layer_and_data(2, beta=0.0)
    whole.weight.data.copy_(layer.weight)
    for _ in range(600):
        layer(x, y)
    assert layer.beta.item() < 1e-20
    torch.testing.assert_close(layer(x, y), whole(x, y), rtol=1e-12, atol=1e-12)
    assert whole.beta.item() == 0


def test_the_gradient_is_that_of_the_beta_of_its_own_forward_pass():
    """beta has moved on when the backward pass comes."""
    layer, x, y = layer_and_data(3, beta=2.0, decay=0.1)
    frozen, _, _ = layer_and_data(3, beta=2.0, decay=1.0)
    frozen.weight.data.copy_(layer.weight)
    for each in (layer, frozen):
        each(x, y).square().sum().backward()
    torch.testing.assert_close(layer.weight.grad, frozen.weight.grad, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("margin", [2, 3, 4])
def test_zero_and_parallel_vectors_have_finite_gradients(margin, dtype):
    layer, x, y = layer_and_data(margin)
    layer = layer.to(dtype)
    with torch.no_grad():
        x[0] = 0
        layer.weight[1] = 0
        x[2] = layer.weight[y[2]]
        x[3] = -3 * layer.weight[y[3]]
        x[4] = 1e-30
    x = x.to(dtype).requires_grad_()
    loss = curve_loss(layer(x, y), y, curves.cross_entropy())
    assert loss.isfinite()
    for gradient in torch.autograd.grad(loss, (x, layer.weight)):
        assert gradient.isfinite().all()


def test_the_papers_combination_with_the_encouraging_loss_learns():
    torch.manual_seed(0)
    y = torch.arange(4).repeat(15)
    x = 3 * torch.eye(4)[y] + 0.5 * torch.randn(60, 4)
    layer, loss = LSoftmaxLinear(4, 4, 2, decay=0.9), EncouragingLoss(log_end=1.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        loss(layer(x, y), y).backward()
        optimizer.step()
    layer.eval()
    assert (layer(x).argmax(1) == y).float().mean() > 0.95


def test_labels_of_a_byte_are_labels_not_a_mask():
    layer, x, y = layer_and_data(2)
    assert torch.equal(layer(x, y.to(torch.uint8)), layer(x, y))


@pytest.mark.parametrize("target", [[0, 2], torch.tensor([0, 2]).numpy()], ids=["list", "array"])
def test_labels_that_are_no_tensor_are_refused_in_words(target):
    with pytest.raises(DtypeError, match=r"target is a (list|ndarray): expected a tensor"):
        LSoftmaxLinear(4, 3)(torch.randn(2, 4), target)


def test_more_dimensions_of_examples_are_more_examples():
    layer, x, y = layer_and_data(2)
    torch.testing.assert_close(layer(x.reshape(3, 3, 6), y.reshape(3, 3)).flatten(0, 1), layer(x, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_logits_of_one_length_keep_it_in_half_precision(dtype):
    logits = torch.tensor([[0.0] * 30, [3e4] * 30, [1.0] * 30], dtype=dtype, requires_grad=True)
    scaled = logit_norm(logits)
    assert scaled.dtype == dtype
    torch.testing.assert_close(scaled, logit_norm(logits.detach().double()).to(dtype))
    scaled.float().square().sum().backward()
    assert logits.grad.isfinite().all()
    with pytest.raises(DtypeError, match="expected floating-point logits"):
        logit_norm(torch.ones(2, 3, dtype=torch.long))


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_repeats_a_call_and_does_not_decay_beta_again(reentrant):
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.randint(4, (8,))
    plain = LSoftmaxLinear(6, 4, 2, beta=1.0, decay=0.5).double()
    again = copy.deepcopy(plain)
    for _ in range(3):
        found = []
        for layer in (plain, again):
            layer.weight.grad, z = None, x.clone().requires_grad_()
            logits = layer(z, y) if layer is plain else checkpoint(layer, z, y, use_reentrant=reentrant)
            logits.square().sum().backward()
            found.append((layer.beta, logits, z.grad, layer.weight.grad))
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    assert again.beta.item() == 0.125
    assert set(again.state_dict()) == {"weight", "beta"}


def test_compiled_it_has_the_gradient_of_its_own_forward_pass():
    """And not that of the beta that the next call has."""
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.randint(4, (8,))
    plain = LSoftmaxLinear(6, 4, 2, beta=1.0, decay=0.5).double()
    again = copy.deepcopy(plain)
    compiled = torch.compile(again, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        found = []
        for layer, call in ((plain, plain), (again, compiled)):
            layer.weight.grad, z = None, x.clone().requires_grad_()
            logits = call(z, y)
            logits.square().sum().backward()
            found.append((layer.beta, logits, z.grad, layer.weight.grad))
        torch.testing.assert_close(found[1], found[0])
    torch._dynamo.reset()


def test_a_layer_that_was_in_a_transform_can_be_copied():
    layer, x, y = LSoftmaxLinear(4, 3), torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])

    def loss(parameters, buffers):
        return torch.func.functional_call(layer, (parameters, buffers), (x, y)).square().sum()

    torch.func.grad(loss)(dict(layer.named_parameters()), {"beta": layer.beta.clone()})
    assert torch.equal(copy.deepcopy(layer).weight, layer.weight)


@pytest.mark.parametrize("wrong", [{"margin": 2.0}, {"margin": True}, {"margin": "2"}, {"margin": 5},
                                   {"beta": math.inf}, {"beta": math.nan}, {"beta": "a"}, {"beta": True},
                                   {"beta_min": None}, {"decay": "b"}, {"beta": 1.0, "beta_min": 2.0}], ids=str)
def test_arguments_that_are_not_numbers_in_range_are_refused_when_the_layer_is_made(wrong):
    with pytest.raises(ArgumentError, match=f"{next(iter(wrong))}="):
        LSoftmaxLinear(4, 3, **wrong)


def test_a_transform_without_the_buffers_is_refused_with_a_remedy_that_works():
    layer, plain, y = LSoftmaxLinear(4, 3), LSoftmaxLinear(4, 3), torch.tensor([0, 1, 2, 0, 1])
    x, parameters = torch.randn(5, 4), dict(layer.named_parameters())
    plain.load_state_dict(layer.state_dict())

    def loss(parameters, buffers, x, y):
        return torch.func.functional_call(layer, (parameters, buffers), (x[None], y[None])).square().sum()

    by_example = torch.func.grad(lambda parameters, x, y: loss(parameters, {}, x, y))
    for call in (lambda: by_example(parameters, x[0], y[0]),
                 lambda: torch.func.vmap(by_example, (None, 0, 0))(parameters, x, y)):
        with pytest.raises(DerivativeError, match=r"functional_call\(module, \(parameters, buffers\)"):
            call()
    assert layer.beta == 100
    rows = torch.func.vmap(torch.func.grad(loss), (None, None, 0, 0))(parameters, dict(layer.named_buffers()), x, y)
    plain(x, y).square().sum().backward()
    torch.testing.assert_close(rows["weight"].sum(0), plain.weight.grad)
    assert torch.equal(layer.beta, plain.beta)  # decayed, once


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_beta_falls_in_16_bits_as_it_does_in_32(dtype):
    layer = LSoftmaxLinear(4, 3, decay=0.9999).to(dtype)
    x, y = torch.randn(2, 4, dtype=dtype), torch.tensor([0, 2])
    for _ in range(10):
        assert layer(x, y).dtype == dtype
    assert layer.beta.item() == pytest.approx(100 * 0.9999**10, rel=1e-6)
    assert copy.deepcopy(layer).double().beta.dtype == torch.float64
    assert layer.to("meta").beta.is_meta
