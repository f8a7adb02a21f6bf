"""Unusual input of the losses for JAX: infinities, excluded rows, labels of any type, own curves, errors in words."""

from __future__ import annotations

from math import inf, nan

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import encouraging
from encouraging import curves
from encouraging.errors import ArgumentError, CurveError, DtypeError, ShapeError, TargetError
from encouraging.integrations.jax import curve_loss, encouraging_loss, sigmoid_curve_loss
from paper_formulas import ALL_CURVES

EL, CE = curves.conservative(0.75), curves.cross_entropy()
Z, Y = np.array([[1.0, 0.0, 2.0], [0.5, 3.0, 1.0], [2.0, 0.0, 0.1]], np.float32), np.array([0, 1, 2])

@pytest.fixture(autouse=True)
def compile_quickly():
    """These programs run once: compiling them takes far longer than running them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def outcome(logits, labels, curve, **how):
    """The losses and the gradient of their sum, in JAX; operation by operation, which share what is compiled."""
    z = jnp.asarray(logits, jnp.float32)
    with jax.disable_jit():
        losses, back = jax.vjp(lambda z: curve_loss(z, labels, curve, **how), z)
        return [np.asarray(losses), np.asarray(back(jnp.ones_like(losses))[0])]


def torch_outcome(logits, labels, curve, **how):
    z = torch.tensor(np.asarray(logits), dtype=torch.float32, requires_grad=True)
    loss = encouraging.curve_loss(z, torch.as_tensor(labels), curve, reduction="none", **how)
    loss.sum().backward()
    return [loss.detach().numpy(), z.grad.numpy()]


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_infinities_and_nan_end_as_in_torch(smoothing):
    labels = np.zeros(3, np.int64)
    for rows in ([[0.0, -inf, 1.0], [0.0, -inf, -inf], [0.0, inf, 1.0]],
                 [[nan, 0.0, 1.0], [-inf, 2.0, 1.0], [5.0, 5.0, 5.0]]):
        for curve in (EL, curves.normal(), curves.focal(2.0)):
            same(outcome(rows, labels, curve, label_smoothing=smoothing),
                 torch_outcome(rows, labels, curve, label_smoothing=smoothing))


@pytest.mark.parametrize("curve", ALL_CURVES, ids=repr)
def test_one_class_and_rivals_at_minus_infinity_end_as_in_torch(curve):
    labels = np.zeros(3, np.int64)
    for rows in ([[2.0]] * 3, [[0.0, -inf, -inf], [-inf, 0.0, 1.0], [-inf, -inf, 0.0]]):
        same(outcome(rows, labels, curve), torch_outcome(rows, labels, curve))


def test_a_softmax_over_two_classes_is_a_sigmoid():
    z = jnp.linspace(-9, 9, 7)
    losses = [curve_loss(jnp.stack([z, -z], 1), jnp.zeros(7, jnp.int32), EL),
              sigmoid_curve_loss(2 * z, jnp.ones(7, jnp.int32), EL)]
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.parametrize(("soft", "how"), [
    (False, {}), (False, {"label_smoothing": 0.1, "weight": np.ones(3, np.float32)}), (True, {"label_smoothing": 0.1})])
def test_what_an_excluded_row_holds_reaches_nothing(soft, how):
    where = np.array([True, False, True])
    target = np.eye(3, dtype=np.float32)[Y] if soft else Y.copy()
    expected = outcome(Z, target, EL, **how)
    logits = Z.copy()
    logits[1], target[1] = nan, nan if soft else -100
    losses, gradient = outcome(logits, target, EL, where=where, **how)
    same([losses, gradient], [expected[0] * where, expected[1] * where[:, None]])
    slope = jax.grad(lambda z: curve_loss(z, target, EL, where=where, **how).sum())
    second = jax.jit(lambda z: jax.jvp(slope, (z,), (jnp.ones_like(z).at[:, 0].set(2),))[1])(logits)
    assert not jnp.isnan(second).any()
    assert not second[1].any()
    assert second[0].any()
    same(outcome(logits.T, target.T if soft else target, EL, where=where, axis=0, **how), [losses, gradient.T])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_an_excluded_class_is_no_class(smoothing):
    where = np.array([[True, True, False]] * 2 + [[False] * 3])
    logits = np.where(where, Z, nan)
    losses, gradient = outcome(logits, np.array([0, 1, 0]), EL, where=where, label_smoothing=smoothing)
    expected = torch_outcome(Z[:2, :2], np.array([0, 1]), EL, label_smoothing=smoothing)
    same([losses[:2], gradient[:2, :2]], expected)
    assert losses[2] == 0
    assert not gradient[~where].any()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_labels_of_every_integer_type(dtype):
    with jax.enable_x64("64" in dtype):
        many = jax.jit(lambda z, y: curve_loss(z, y, EL))(jnp.zeros((1, 300)), np.array([100], dtype))
        same(many, [np.log(299)])


def test_a_label_that_names_no_class_is_refused_and_nan_where_it_cannot_be_read():
    for label in (3, -1, -100, 2**32 + 1):
        with pytest.raises(TargetError, match=rf"label {label}, but there are 3 classes.*where="):
            curve_loss(Z, np.array([0, label, 2]), EL)
    for label in (3, -1):
        with pytest.raises(TargetError):
            curve_loss(Z, jnp.array([0, label, 2]), EL)
        for how in ({}, {"label_smoothing": 0.1}):
            losses, gradient = jax.jit(lambda z, y, how=how: (
                curve_loss(z, y, EL, **how), jax.grad(lambda z: curve_loss(z, y, EL, **how).sum())(z)))(
                    Z, jnp.array([0, label, 2]))
            assert np.isnan(losses).tolist() == [False, True, False]
            assert np.isnan(gradient).all(1).tolist() == np.isnan(gradient).any(1).tolist() == [False, True, False]


def test_empty_batches_and_single_rows():
    assert curve_loss(Z[:0], Y[:0], EL).shape == (0,)
    assert jax.grad(lambda z: curve_loss(z, Y[:0], EL).sum())(jnp.asarray(Z[:0])).shape == (0, 3)
    same([curve_loss(Z[0], Y[0], EL)], [curve_loss(Z, Y, EL)[0]])
    same([encouraging_loss(Z, Y, log_end=1.0)], [curve_loss(Z, Y, curves.normal())])


def test_without_x64_numpy_in_float64_is_computed_in_float32():
    assert curve_loss(Z.astype(np.float64), np.eye(3)[Y], EL).dtype == jnp.float32
    with jax.enable_x64(True):
        assert curve_loss(Z, np.eye(3)[Y], EL).dtype == jnp.float64  # the more precise of the two, as in torch


@pytest.mark.parametrize("name", curves.names())
def test_every_curve_of_the_catalogue_has_its_formula(name):
    with jax.disable_jit():
        same(outcome(Z, Y, curves.by_name(name)), torch_outcome(Z, Y, curves.by_name(name)))


def test_own_curves_are_written_with_jax_numpy():
    halved = curves.custom(lambda gap: -0.5 * gap, lambda gap: jnp.full_like(gap, 0.5), "halved")
    mine = curves.from_probability(lambda p: -jnp.log(p), "mine")
    for curve, known, factor in ((halved, curves.normal(0), 0.5), (mine, CE, 1.0)):
        for how in ({}, {"label_smoothing": 0.1}):
            same(outcome(Z, Y, curve, **how), [factor * part for part in outcome(Z, Y, known, **how)])
    far = np.array([[0.0, -300.0, 1.0]], np.float32)  # p underflows, and its slope is infinite
    same(outcome(far, np.array([1]), mine)[1:], outcome(far, np.array([1]), CE)[1:])


def test_a_pull_that_is_not_minus_the_derivative_is_refused_also_where_it_is_traced():
    value, pull = (lambda gap: jnp.logaddexp(0.0, -gap)), (lambda gap: -jax.nn.sigmoid(-gap))
    lifted = curves.custom(value, pull, "lifted")  # not seen yet: torch tensors are nothing for jax.numpy
    for loss in (curve_loss, jax.jit(curve_loss, static_argnums=2), jax.grad(lambda *a: curve_loss(*a).sum())):
        with pytest.raises(CurveError, match=r"'lifted'.*The sign is wrong"):
            loss(jnp.asarray(Z), jnp.asarray(Y), lifted)
    with pytest.raises(CurveError, match=r"'lifted'"):
        sigmoid_curve_loss(Z, np.eye(3)[Y], EL, negative_curve=lifted)
    unchecked = curves.custom(value, pull, "meant", check=False)
    assert curve_loss(Z, Y, unchecked).shape == Y.shape
    with pytest.raises(CurveError, match="its pull is"):  # an equal curve that is to be checked
        curve_loss(Z, Y, curves.custom(value, pull, "meant"))


def test_a_curve_with_a_traced_parameter_is_taken():
    def loss(strength):
        own = curves.custom(lambda gap: -strength * gap, lambda gap: strength * jnp.ones_like(gap))
        return curve_loss(Z, Y, own).sum()

    np.testing.assert_allclose(jax.jit(loss)(2.0), 2 * curve_loss(Z, Y, curves.normal(0)).sum(), rtol=1e-6)


@pytest.mark.parametrize("curve", [
    curves.custom(torch.nn.functional.logsigmoid, lambda gap: -torch.sigmoid(-gap), "for torch"),
    curves.from_probability(lambda p: -p.log(), "for torch"),
    curves.custom(lambda gap: gap.sum(), lambda gap: gap, "for torch", check=False),
    curves.custom(lambda gap: 1.0, lambda gap: gap, "for torch", check=False),
], ids=["function", "method", "shape", "number"])
def test_a_curve_written_for_torch_is_refused_in_words(curve):
    with pytest.raises(CurveError, match=r"for torch.*jax\.numpy"):
        curve_loss(Z, Y, curve)


@pytest.mark.parametrize("how", [{}, {"alpha": 0.25}, {"pos_weight": np.array([1.0, 2.0, 3.0])},
                                 {"weight": np.array([[1.0], [2.0], [0.5]]), "alpha": 0.5},
                                 {"negative_curve": curves.halted_focal(1.0, 0.5).on_logit()}], ids=str)
def test_the_sigmoid_losses_are_those_of_torch(how):
    present = np.eye(3, dtype=np.int64)[Y]
    for_torch = {key: torch.from_numpy(one) if isinstance(one, np.ndarray) else one for key, one in how.items()}
    logits = np.array([[30.0, -20.0, 2.0], [-5.0, 3.0, 1.0], [2.0, 0.0, -9.0]])
    with jax.enable_x64(True), jax.disable_jit():
        for curve in (EL, curves.halted_focal(1.0, 0.5)):
            for target in (present, 0.7 * present + 0.1, np.array([-1, 1, 7])):
                z = torch.from_numpy(logits).requires_grad_()
                expected = encouraging.sigmoid_curve_loss(z, torch.from_numpy(target), curve, reduction="none",
                                                          **for_torch)
                expected.sum().backward()
                losses, back = jax.vjp(lambda z, t=target, c=curve: sigmoid_curve_loss(z, t, c, **how), logits)
                np.testing.assert_allclose(losses, expected.detach().numpy(), rtol=1e-12, atol=1e-14)
                np.testing.assert_allclose(back(np.ones_like(losses))[0], z.grad.numpy(), rtol=1e-12, atol=1e-14)


def test_labels_without_the_axis_of_a_single_logit_are_not_taken_for_class_indices():
    with pytest.raises(ShapeError, match=r"pass logits\[\.\.\., 0\], or labels\[\.\.\., None\]"):
        sigmoid_curve_loss(Z[:, :1], np.array([1, 0, 1]), EL)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32"])
def test_a_sigmoid_loss_of_infinite_logits_ends_as_in_torch(dtype):
    target = np.array([1, 0]).astype(dtype)
    for z in (np.array([inf, -inf], np.float32), np.array([-inf, inf], np.float32)):
        same([sigmoid_curve_loss(z, target, EL)],
             [encouraging.sigmoid_curve_loss(torch.from_numpy(z), torch.from_numpy(target), EL, reduction="none")])


def test_logits_that_do_not_count_in_a_sigmoid_loss_reach_nothing():
    where = np.array([[True], [False], [True]])
    logits = np.where(where, Z, nan)
    losses, gradient = jax.jit(lambda z: (
        sigmoid_curve_loss(z, Y, EL, where=where),
        jax.grad(lambda z: sigmoid_curve_loss(z, Y, EL, where=where).sum())(z)))(logits)
    assert not np.isnan([losses, gradient]).any()
    assert not np.any([losses[1], gradient[1]])
    assert np.all(gradient[0])


@pytest.mark.parametrize("unknown", [-1.0, nan])
def test_labels_that_do_not_count_in_a_sigmoid_loss_may_hold_anything(unknown):
    present = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]], np.float32)
    where = np.array([[True, False, True], [True, True, False], [True, True, True]])
    target, weight = np.where(where, present, unknown), np.array([1.0, 2.0, 3.0], np.float32)
    losses, back = jax.vjp(lambda z, w: sigmoid_curve_loss(z, target, EL, where=where, pos_weight=w), Z, weight)
    every, back_of_every = jax.vjp(lambda z, w: sigmoid_curve_loss(z, present, EL, pos_weight=w), Z, weight)
    same([losses, *back(jnp.ones((3, 3)))], [every * where, *back_of_every(where.astype(np.float32))])
    with pytest.raises(TargetError, match=r"outside \[0, 1\]"):
        sigmoid_curve_loss(Z, -present, EL, where=where)


@pytest.mark.parametrize("how", [{}, {"label_smoothing": 0.1}], ids=str)
def test_explicit_sharding_takes_weights_and_excluded_rows(how):
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Explicit,))
    how = how | {"weight": np.array([1.0, 2.0, 3.0], np.float32), "where": Y != 1}
    with jax.set_mesh(mesh):
        by_row = jax.NamedSharding(mesh, jax.P("rows"))
        losses = curve_loss(jax.device_put(Z, by_row), jax.device_put(Y, by_row), EL, **how)
    assert losses.sharding == by_row
    same([losses], [curve_loss(Z, Y, EL, **how)])


@pytest.mark.parametrize(("call", "error", "words"), [
    (lambda: curve_loss(Z, Y, "focal"), DtypeError, "expected a Curve"),
    (lambda: curve_loss(Z.tolist(), Y, EL), DtypeError, "logits is a list"),
    (lambda: curve_loss(torch.zeros(3, 3), Y, EL), DtypeError, "torch.Tensor.*losses of encouraging itself"),
    (lambda: curve_loss(Z.astype(int), Y, EL), DtypeError, "astype"),
    (lambda: curve_loss(jnp.asarray(Z, jnp.float8_e4m3fn), Y, EL), DtypeError, "bfloat16"),
    (lambda: curve_loss(Z[0, 0], Y[0], EL), ShapeError, "single number"),
    (lambda: curve_loss(Z[:, :0], Y, EL), ShapeError, "no classes"),
    (lambda: curve_loss(Z, Y, EL, axis=2), ArgumentError, "from -2 to 1"),
    (lambda: curve_loss(Z, Y, EL, axis=(0, 1)), ArgumentError, "one integer"),
    (lambda: curve_loss(Z, Y[:2], EL), ShapeError, r"expected labels of shape \(3,\)"),
    (lambda: curve_loss(Z, Y[:, None], EL), ShapeError, r"reshape\(\(3,\)\)"),
    (lambda: curve_loss(Z, np.eye(3, dtype=int), EL), ShapeError, "One-hot rows are probabilities"),
    (lambda: curve_loss(Z, Y.astype(float), EL), TargetError, "astype"),
    (lambda: curve_loss(Z, Y > 0, EL), DtypeError, "bool"),
    (lambda: curve_loss(Z, jnp.eye(3, dtype=jnp.float8_e4m3fn), EL), DtypeError, "bfloat16"),
    (lambda: curve_loss(Z, Y, EL, where=np.ones(3)), DtypeError, "where != 0"),
    (lambda: curve_loss(Z, Y, EL, where=np.ones(2, bool)), ShapeError, "one per example"),
    (lambda: curve_loss(Z, Y, EL, where=np.ones((2, 3), bool)), ShapeError, "broadcasts"),
    (lambda: curve_loss(Z, Y, EL, label_smoothing=1.5), ArgumentError, "from 0 to 1"),
    (lambda: curve_loss(Z, Y, EL, weight=np.ones(2)), ShapeError, "one number per class"),
    (lambda: curve_loss(Z, Y, EL, weight=np.ones(3, int)), DtypeError, "floating-point"),
    (lambda: jax.jit(lambda end: curve_loss(Z, Y, curves.conservative(end)))(0.5), CurveError, "expected a number"),
    (lambda: encouraging_loss(Z, Y, log_end=2.0), CurveError, "log_end"),
    (lambda: sigmoid_curve_loss(Z, Y[:2], EL), ShapeError, "index of the one class"),
    (lambda: sigmoid_curve_loss(Z, 2 * np.ones((3, 3)), EL), TargetError, r"outside \[0, 1\]"),
    (lambda: sigmoid_curve_loss(Z, Z + 1j, EL), DtypeError, "complex"),
    (lambda: sigmoid_curve_loss(Z, Y, EL, alpha=2), ArgumentError, "alpha"),
    (lambda: sigmoid_curve_loss(Z, Y, EL, weight=np.ones(2)), ShapeError, "broadcasts"),
    (lambda: sigmoid_curve_loss(Z, Y, EL, weight=np.ones(3) + 1j), DtypeError, "real"),
])
def test_what_does_not_fit_is_refused_in_words(call, error, words):
    with pytest.raises(error, match=words):
        call()
