"""The losses for JAX are the torch reference's: values, gradients and second derivatives, under JAX's transforms."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import encouraging
from encouraging import curves
from encouraging.integrations import jax as ours
from paper_formulas import ALL_CURVES
from strategies import generator, rows_with_gaps

CURVES = [*ALL_CURVES, curves.halted_focal(2.0, 0.3).on_logit()]
EL, CE = curves.conservative(0.75), curves.cross_entropy()
CLASSES = 4


@pytest.fixture(autouse=True)
def compile_quickly(request):
    """Most programs run once, and compiling them takes far longer than running them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", "float32" not in request.node.name)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


def drawn(gaps, seed=0, classes=CLASSES):
    """Logits with these gaps of their labels, labels, probabilities, and weights of the classes; float64, in NumPy."""
    g = generator(seed)
    logits, labels = rows_with_gaps(torch.as_tensor(gaps, dtype=torch.float64), classes, seed)
    soft = torch.rand(len(labels), classes, generator=g, dtype=torch.float64) ** 4
    soft[::3] = torch.nn.functional.one_hot(labels[::3], classes).double()
    weight = torch.rand(classes, generator=g, dtype=torch.float64) + 0.1
    return logits.numpy(), labels.numpy(), (soft / soft.sum(1, keepdim=True)).numpy(), weight.numpy()


def with_gradient(loss):
    """The losses and the gradient of their sum."""
    def both(logits):
        losses, back = jax.vjp(loss, logits)
        return losses, back(jnp.ones_like(losses))[0]
    return both


def torch_with_gradient(logits, target, curve, **arguments):
    z = torch.from_numpy(logits).requires_grad_()
    losses = encouraging.curve_loss(z, torch.from_numpy(target), curve, reduction="none", **arguments)
    return losses.detach().numpy(), torch.autograd.grad(losses.sum(), z)[0].numpy()


def close(found, expected, rtol=1e-11, atol=1e-13):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=rtol, atol=atol)


@pytest.mark.parametrize("curve", CURVES, ids=repr)
def test_values_gradients_and_second_derivatives_are_those_of_torch(curve, x64):
    """p from 1e-6 to 1 - 1e-7, and past it; labels, and soft targets with smoothing and weights."""
    logits, labels, soft, weight = drawn([*np.linspace(-14, 16, 24), 30.0, 80.0, 700.0])
    direction = np.random.default_rng(0).normal(size=logits.shape)
    with jax.disable_jit():  # operation by operation: compiling every curve would take longer than all else
        for target, how in ((labels, {}), (soft, {"label_smoothing": 0.1, "weight": weight})):
            for_torch = {key: torch.from_numpy(one) if key == "weight" else one for key, one in how.items()}
            both = with_gradient(lambda z, t=target, how=how: ours.curve_loss(z, t, curve, **how))
            (losses, gradient), (growth, second) = jax.jvp(both, (jnp.asarray(logits),), (jnp.asarray(direction),))
            z = torch.from_numpy(logits).requires_grad_()
            in_torch = encouraging.curve_loss(z, torch.from_numpy(target), curve, reduction="none", **for_torch)
            slope = torch.autograd.grad(in_torch.sum(), z, create_graph=True)[0]
            along = (slope * torch.from_numpy(direction)).sum(-1)
            expected = torch.autograd.grad(along.sum(), z)[0] if along.requires_grad else torch.zeros_like(z)
            close([losses, gradient], [part.detach().numpy() for part in (in_torch, slope)])
            close([growth, second], [along.detach().numpy(), expected.numpy()], rtol=1e-8, atol=1e-12)


def test_cross_entropy_is_that_of_optax(x64):
    logits, labels, soft, _ = drawn(np.linspace(-14, 16, 27))
    pairs = [
        (lambda z: ours.curve_loss(z, labels, CE),
         lambda z: optax.softmax_cross_entropy_with_integer_labels(z, labels)),
        (lambda z: ours.curve_loss(z, soft, CE), lambda z: optax.softmax_cross_entropy(z, soft)),
        (lambda z: ours.curve_loss(z, labels, CE, label_smoothing=0.1),
         lambda z: optax.softmax_cross_entropy(z, optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), 0.1))),
        (lambda z: ours.sigmoid_curve_loss(z, soft, CE), lambda z: optax.sigmoid_binary_cross_entropy(z, soft)),
        (lambda z: ours.sigmoid_curve_loss(z, jnp.round(soft), curves.focal(2.0), alpha=0.25),
         lambda z: optax.sigmoid_focal_loss(z, jnp.round(soft), alpha=0.25)),
    ]
    with jax.disable_jit():
        for mine, theirs in pairs:
            close(with_gradient(mine)(logits), with_gradient(theirs)(logits), rtol=1e-9, atol=1e-14)


def worst(found, expected):
    found, expected = np.asarray(found, np.float64), np.asarray(expected)
    return np.max(np.abs(found - expected) / np.abs(expected))


@pytest.mark.parametrize(("low", "high"), [(-14, 0), (0, 4), (4, 16.1), (16.1, 80)])
def test_in_float32_cross_entropy_is_no_less_exact_than_that_of_optax(low, high):
    logits, labels, _, _ = drawn(np.linspace(low, high, 200), classes=5)
    logits = logits.astype(np.float32)
    exact = torch_with_gradient(logits.astype(np.float64), labels, CE)
    mine, theirs = (jax.jit(with_gradient(lambda z, loss=loss: loss(z, labels)))(logits) for loss in (
        functools.partial(ours.curve_loss, curve=CE), optax.softmax_cross_entropy_with_integer_labels))
    for found, other, expected in zip(mine, theirs, exact, strict=True):
        assert worst(found, expected) <= worst(other, expected)
    assert worst(mine[1], exact[1]) < 1e-5
    if low > 16:
        assert worst(theirs[1], exact[1]) == 1  # gone altogether


@pytest.mark.parametrize("curve", [EL, curves.poly(-1.0), curves.focal(2.0)], ids=repr)
def test_in_float32_every_curve_is_as_exact_as_in_torch(curve):
    logits, labels, _, _ = drawn([*np.linspace(-14, 16.1, 200)], classes=5)
    logits = logits.astype(np.float32)
    kinds = [{}, {"label_smoothing": 0.1}]
    found = jax.jit(lambda z: [with_gradient(lambda z, how=how: ours.curve_loss(z, labels, curve, **how))(z)
                               for how in kinds])(logits)
    for how, (losses, gradient) in zip(kinds, found, strict=True):
        exact = torch_with_gradient(logits.astype(np.float64), labels, curve, **how)
        in_torch = torch_with_gradient(logits, labels, curve, **how)
        # Of a smoothed loss the gradient is a difference of pulls, to whose size its error is in proportion.
        size = [1 + np.abs(exact[0]), np.maximum(np.abs(exact[1]), 0.05) if how else np.abs(exact[1])]
        for mine, theirs, expected, unit in zip((losses, gradient), in_torch, exact, size, strict=True):
            mine, theirs = (np.abs(np.asarray(one, np.float64) - expected) / unit for one in (mine, theirs))
            assert np.max(mine) <= 2 * np.max(theirs) + 1e-7


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_steepest_bonus_pulls_at_any_margin(smoothing):
    z = jnp.array([10000.0, 0.0, 0.0, 0.0])
    loss, gradient = jax.value_and_grad(lambda z: ours.encouraging_loss(
        z, jnp.array(0), log_end=1.0, eps=0, label_smoothing=smoothing))(z)
    pull = 1 - 1.5 * smoothing  # the rivals, each taught with a quarter of the smoothing, pull back
    close([gradient], [[-pull, pull / 3, pull / 3, pull / 3]], rtol=1e-6)
    if not smoothing:
        assert loss == pytest.approx(np.log(3) - 10000)


@pytest.mark.parametrize(("dtype", "smoothing"), [(jnp.bfloat16, 0.0), (jnp.float16, 0.1)])
def test_half_precision_is_computed_in_float32(dtype, smoothing):
    logits, labels, _, _ = drawn(np.linspace(-14, 10, 50))
    z = jnp.asarray(logits, dtype)
    both = jax.jit(with_gradient(lambda z: ours.curve_loss(z, labels, EL, label_smoothing=smoothing)))
    losses, gradient = both(z)
    assert losses.dtype == gradient.dtype == dtype
    close([losses, gradient], [part.astype(dtype) for part in both(z.astype(jnp.float32))],
          rtol=float(jnp.finfo(dtype).eps) if smoothing else 0, atol=1e-7 if smoothing else 0)


def test_twenty_steps_of_training_are_those_of_torch(x64):
    g = generator(0)
    x, y = torch.randn(64, 6, generator=g, dtype=torch.float64), torch.randint(3, (64,), generator=g)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    start = [parameter.detach().numpy().copy() for parameter in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    expected = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = encouraging.encouraging_loss(model(x), y, label_smoothing=0.05)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())

    def mean(weights, x, y):
        first, bias, second, other_bias = weights
        logits = jnp.tanh(x @ first.T + bias) @ second.T + other_bias
        return ours.encouraging_loss(logits, y, label_smoothing=0.05).mean()

    sgd = optax.sgd(0.5, momentum=0.9)

    def step(carry, _):
        weights, state = carry
        loss, gradient = jax.value_and_grad(mean)(weights, jnp.asarray(x.numpy()), jnp.asarray(y.numpy()))
        updates, state = sgd.update(gradient, state)
        return (optax.apply_updates(weights, updates), state), loss

    weights = [jnp.asarray(one) for one in start]
    (weights, _), losses = jax.jit(lambda carry: jax.lax.scan(step, carry, length=20))((weights, sgd.init(weights)))
    close([losses], [expected])
    close(weights, [parameter.detach().numpy() for parameter in model.parameters()])
    assert losses[-1] < losses[0] - 0.5


def test_every_transform_gives_the_same_numbers():
    logits, labels, _, _ = drawn(np.linspace(-8, 8, 6))
    z, y = jnp.asarray(logits, jnp.float32), jnp.asarray(labels)
    hard, loss = (functools.partial(ours.curve_loss, curve=EL, label_smoothing=share) for share in (0.0, 0.1))
    in_torch = [torch_with_gradient(logits, labels, EL, label_smoothing=share) for share in (0.0, 0.1)]
    for one, expected in zip((hard, loss), in_torch, strict=True):
        close(jax.jit(jax.vmap(jax.value_and_grad(one)))(z, y), expected, rtol=1e-5, atol=1e-6)
    losses, gradient = with_gradient(lambda z: loss(z, y))(z)
    remade = jax.jit(with_gradient(jax.checkpoint(lambda z: loss(z, y))), donate_argnums=0)(jnp.array(z))
    close(remade, [losses, gradient], rtol=1e-6, atol=1e-7)
    static = jax.jit(ours.curve_loss, static_argnames=("curve", "label_smoothing"))
    close([static(z, y, curve=EL, label_smoothing=0.1)], [losses], rtol=1e-6)
    close([loss(z.reshape(2, 3, CLASSES).transpose(2, 0, 1), y.reshape(2, 3), axis=0)], [losses.reshape(2, 3)],
          rtol=1e-6)
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        half, _ = with_gradient(lambda z: loss(z, y.astype(jnp.uint8), where=y < 3, weight=jnp.ones(CLASSES)))(
            z.astype(jnp.bfloat16))
    close([half], [jnp.where(y < 3, losses, 0)], rtol=0.02, atol=0.02)


def test_the_gradient_on_the_logits_scatters_nothing():
    """A scatter would be a second pass over memory that XLA cannot fuse."""
    z, y = jnp.zeros((4, CLASSES)), jnp.zeros(4, jnp.int32)
    for how in ({}, {"label_smoothing": 0.1}):
        gradient = jax.jit(jax.grad(lambda z, how=how: ours.curve_loss(z, y, EL, **how).sum()))
        assert "scatter" not in gradient.lower(z).as_text()


def test_soft_targets_and_weights_have_gradients_too():
    logits, labels, _, weight = (jnp.asarray(one) for one in drawn(np.linspace(-3, 3, 6)))
    logits = logits.at[0, (labels[0] + 1) % CLASSES].set(-jnp.inf)  # an infinite value, without mass
    one_hot = jax.nn.one_hot(labels, CLASSES)
    gradient = jax.grad(lambda q: ours.curve_loss(logits, q, EL).sum())(one_hot)
    by_class = jnp.stack([ours.curve_loss(logits, jnp.full(len(labels), k), EL) for k in range(CLASSES)], 1)
    close([gradient], [jnp.where(jnp.isinf(by_class), 0, by_class)], rtol=1e-5)
    losses = ours.curve_loss(logits, labels, EL)
    of_weight = jax.grad(lambda w: ours.curve_loss(logits, labels, EL, weight=w).sum())(weight)
    close([of_weight], [jax.ops.segment_sum(losses, labels, CLASSES)], rtol=1e-5)


def test_rows_of_two_devices_are_those_of_one():
    code = """
import jax, jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec as P
from encouraging import curves
from encouraging.integrations.jax import curve_loss
z, y = 4 * jax.random.normal(jax.random.key(0), (8, 5)), jnp.arange(8) % 5
def step(z, y):
    loss = lambda z: curve_loss(z, y, curves.conservative(0.75), label_smoothing=0.1).sum()
    return jax.lax.psum(loss(z), "rows"), jax.grad(loss)(z)
mesh = Mesh(jax.devices(), ("rows",))
step = jax.shard_map(step, mesh=mesh, in_specs=(P("rows"), P("rows")), out_specs=(P(), P("rows")))
total, gradient = jax.jit(step)(z, y)
loss = lambda z: curve_loss(z, y, curves.conservative(0.75), label_smoothing=0.1).sum()
assert len(gradient.devices()) == 2
assert jnp.allclose(total, loss(z), rtol=1e-6) and jnp.allclose(gradient, jax.grad(loss)(z), atol=1e-6)
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env=os.environ | flags)
    assert done.returncode == 0, done.stderr
