"""``curve_loss`` and its named forms: torch's cross-entropy with another curve, in every layout."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import encouraging
from encouraging import (
    curve_loss,
    curves,
    encouraging_loss,
    focal_loss,
    halted_focal_loss,
    poly_loss,
)
from encouraging.ops import rows
from paper_formulas import edges, phi
from strategies import CURVES, SEEDS, Case, cases, generator, rows_with_gaps

CE = curves.cross_entropy()


def value_and_gradient(loss, input: Tensor, upstream_seed: int = 0) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient for a random upstream gradient (a random number a row for reduction none)."""
    input = input.detach().clone().requires_grad_()
    value = loss(input)
    upstream = torch.randn(value.shape, generator=generator(upstream_seed), dtype=torch.float64).to(value.dtype)
    return value.detach(), torch.autograd.grad(value, input, upstream)[0]


def torch_unit(case: Case) -> float:
    """What torch's own cross-entropy may be off by: log_softmax rounds at the size of the logits' differences, a sum
    over rows at the size of what is summed."""
    eps, n = torch.finfo(case.input.dtype).eps, max(1, case.input.numel())
    spread = (case.input.max() - case.input.min()).item() if case.input.numel() else 0.0
    return 8 * n * eps * (1 + spread)


# Cross-entropy is torch's


@settings(max_examples=300)
@given(case=cases(), seed=SEEDS)
def test_with_the_cross_entropy_curve_it_is_torchs_for_all_arguments_gradients_included(case, seed):
    input, target, arguments = case
    ours, our_gradient = value_and_gradient(lambda z: curve_loss(z, target, CE, **arguments), input, seed)
    torchs, torch_gradient = value_and_gradient(lambda z: F.cross_entropy(z, target, **arguments), input, seed)
    assert ours.shape == torchs.shape
    assert ours.dtype == torchs.dtype
    torch.testing.assert_close(ours, torchs, rtol=1e-14, atol=torch_unit(case), equal_nan=True)
    if input.numel():
        assert not torchs.isnan().any()
    torch.testing.assert_close(our_gradient, torch_gradient, rtol=1e-14, atol=torch_unit(case))


# Always the same draws: no bound on one draw holds for all of them, since torch may be lucky by more than two units
# where a gradient cancels or a loss is small. The next test is about many draws together.
@settings(max_examples=100, derandomize=True)
@given(case=cases(dtype=torch.float32), seed=SEEDS)
def test_in_float32_its_error_is_no_larger_than_torchs_own(case, seed):
    input, target, arguments = case
    assume(input.numel())
    wide = {k: v.double() if isinstance(v, Tensor) else v for k, v in arguments.items()}
    wide_target = target.double() if target.is_floating_point() else target
    exact = value_and_gradient(lambda z: F.cross_entropy(z, wide_target, **wide), input.double(), seed)
    ours = value_and_gradient(lambda z: curve_loss(z, target, CE, **arguments), input, seed)
    torchs = value_and_gradient(lambda z: F.cross_entropy(z, target, **arguments), input, seed)
    for mine, theirs, truth in zip(ours, torchs, exact, strict=True):
        # Beside torch's error, two units: where torch is lucky, a rounding of the last operations must be allowed.
        allowed = (theirs - truth).abs().max() + 2 * 2.0**-23 * truth.abs().max()
        assert (mine - truth).abs().max() <= allowed


@pytest.mark.parametrize("kind", ["labels", "soft", "smoothed", "smoothed and weighted", "weights that balance"])
@pytest.mark.parametrize(("classes", "size"), [(2, 1.0), (10, 3.0), (10, 12.0), (100, 5.0)])
def test_in_float32_its_mean_error_is_at_most_a_quarter_above_torchs(kind, classes, size):
    draw = generator(0)
    z = size * torch.randn(1000, classes, generator=draw)
    target = torch.randint(classes, (1000,), generator=draw)
    if kind == "soft":
        target = torch.softmax(2 * torch.randn(1000, classes, generator=draw), 1)
    arguments = {"label_smoothing": {"labels": 0.0, "soft": 0.0, "weights that balance": 1.0}.get(kind, 0.1)}
    if "weight" in kind:
        arguments["weight"] = torch.rand(classes, generator=draw) + 0.1
    wide = {k: v.double() if isinstance(v, Tensor) else v for k, v in arguments.items()}
    exact = value_and_gradient(lambda x: F.cross_entropy(
        x, target.double() if kind == "soft" else target, reduction="none", **wide), z.double())
    ours = value_and_gradient(lambda x: curve_loss(x, target, CE, reduction="none", **arguments), z)
    torchs = value_and_gradient(lambda x: F.cross_entropy(x, target, reduction="none", **arguments), z)
    for mine, theirs, truth in zip(ours, torchs, exact, strict=True):
        assert (mine - truth).abs().mean() <= 1.25 * (theirs - truth).abs().mean()


# Any curve is the sum that it says it is


def plain_rows(case: Case, curve) -> Tensor:
    """Losses a row in float64 from each class's own gap: (1-s) w_y phi(p_y) + s/C sum_k w_k phi(p_k)."""
    input, target, arguments = case
    axis = min(1, input.ndim - 1)
    classes = input.shape[axis]
    z = input.double().movedim(axis, -1)
    gaps = torch.stack([z[..., k] - torch.cat([z[..., :k], z[..., k + 1:]], -1).logsumexp(-1)
                        for k in range(classes)], -1)
    smoothing = arguments.get("label_smoothing", 0.0)
    weight = arguments.get("weight", torch.ones(classes)).double()
    if target.is_floating_point():
        mass, kept = target.double().movedim(axis, -1), None
    else:
        kept = target != arguments.get("ignore_index", -100)
        mass = F.one_hot(target.where(kept, 0), classes).double()
    mass = ((1 - smoothing) * mass + smoothing / classes) * weight
    losses = (mass * curve.value(gaps)).sum(-1)
    return losses if kept is None else losses * kept


@settings(max_examples=150)
@given(case=cases(), curve=CURVES, seed=SEEDS)
def test_every_curve_is_the_weighted_sum_of_its_values_over_the_classes(case, curve, seed):
    input, target, arguments = case
    reduction = arguments["reduction"]

    def plain(z):
        losses = plain_rows(case._replace(input=z), curve)
        if reduction == "none":
            return losses
        if reduction == "sum":
            return losses.sum()
        if target.is_floating_point():
            return losses.mean()
        kept = target != arguments.get("ignore_index", -100)
        weight = arguments.get("weight", torch.ones(input.shape[min(1, input.ndim - 1)], dtype=torch.float64))
        return losses.sum() / (weight[target.where(kept, 0)] * kept).sum()

    ours = value_and_gradient(lambda z: curve_loss(z, target, curve, **arguments), input, seed)
    plains = value_and_gradient(plain, input, seed)
    # The plain form subtracts logsumexps of shifted logits, so it rounds at 1000; its tangent at 0.999 times 1000.
    atol = 1e-10 * max(1, input.numel())
    for mine, truth in zip(ours, plains, strict=True):
        torch.testing.assert_close(mine, truth, rtol=1e-9, atol=atol, equal_nan=True)


@given(case=cases(soft=True), curve=CURVES)
def test_a_one_hot_distribution_is_its_label(case, curve):
    input, target, arguments = case
    assume(input.numel())
    axis = min(1, input.ndim - 1)
    label = target.argmax(axis)
    one_hot = F.one_hot(label, input.shape[axis]).movedim(-1, axis).to(input.dtype)
    del arguments["reduction"]
    soft, hard = (curve_loss(input, t, curve, reduction="none", **arguments) for t in (one_hot, label))
    torch.testing.assert_close(soft, hard, rtol=1e-12, atol=1e-12)


@given(case=cases(), curve=CURVES)
def test_rivals_are_pushed_exactly_as_hard_as_the_label_is_pulled(case, curve):
    input, target, arguments = case
    _, gradient = value_and_gradient(lambda z: curve_loss(z, target, curve, **arguments), input)
    assert gradient.sum(min(1, input.ndim - 1)).abs().amax().item() < 1e-12 if input.numel() else True


@given(case=cases(soft=False), curve=CURVES)
def test_ignored_rows_count_nothing_and_learn_nothing(case, curve):
    input, target, arguments = case
    ignored = target == arguments.get("ignore_index", -100)
    axis = min(1, input.ndim - 1)
    wild = torch.where(ignored.unsqueeze(axis), torch.nan, input)
    for z in (input, wild):
        value, gradient = value_and_gradient(lambda z: curve_loss(z, target, curve, **arguments), z)
        assert (gradient.movedim(axis, -1)[ignored] == 0).all()
        if arguments["reduction"] == "none":
            assert (value[ignored] == 0).all()
    torch.testing.assert_close(curve_loss(wild, target, curve, **arguments),
                               curve_loss(input, target, curve, **arguments), rtol=0, atol=0, equal_nan=True)


@given(case=cases(), curve=CURVES)
def test_neither_input_nor_target_nor_weight_is_written_to(case, curve):
    tensors = [case.input, case.target, *(v for v in case.arguments.values() if isinstance(v, Tensor))]
    before = [t.clone() for t in tensors]
    value_and_gradient(lambda z: curve_loss(z, case.target, curve, match_norm=True, **case.arguments), case.input)
    for old, now in zip(before, tensors, strict=True):
        assert torch.equal(old, now)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(seed=SEEDS, curve=CURVES, smoothing=st.sampled_from([0.0, 0.2]), soft=st.booleans())
def test_the_answer_does_not_depend_on_how_rows_are_cut_into_blocks(dtype, seed, curve, smoothing, soft):
    logits, label = rows_with_gaps(20 * torch.rand(7, generator=generator(seed), dtype=torch.float64) - 8, 5, seed)
    logits = logits.to(dtype)
    target = (0.8 * F.one_hot(label, 5) + 0.04).to(dtype) if soft else label.masked_fill(label == 4, -100)

    def results():
        return value_and_gradient(lambda z: curve_loss(z, target, curve, reduction="none", label_smoothing=smoothing,
                                                       match_norm=True), logits)

    whole = results()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rows._BLOCK_BYTES, "cpu", 2 * 5 * 4)  # two rows a block
        blocks = results()
    for a, b in zip(whole, blocks, strict=True):
        # The ends of a vectorised loop are computed with other instructions: the last bit of each term.
        torch.testing.assert_close(a, b, rtol=2 * torch.finfo(dtype).eps, atol=4 * 2.0**-23)


@given(curve=CURVES, seed=SEEDS, soft=st.booleans())
def test_strides_do_not_matter(curve, seed, soft):
    logits, label = rows_with_gaps(torch.linspace(-6, 9, 8, dtype=torch.float64), 6, seed)
    target = F.one_hot(label, 6).double() if soft else label
    plain = value_and_gradient(lambda z: curve_loss(z, target, curve, reduction="none"), logits)
    for view in (logits.T.contiguous().T, torch.stack([logits, logits], -1)[..., 1]):
        assert not view.is_contiguous()
        for a, b in zip(plain, value_and_gradient(lambda z: curve_loss(z, target, curve, reduction="none"), view),
                        strict=True):
            assert torch.equal(a, b)
    row = logits[:1].clone().requires_grad_()
    shared = curve_loss(row.expand(8, 6), label, curve, reduction="sum")
    apart = curve_loss(row.repeat(8, 1), label, curve, reduction="sum")
    torch.testing.assert_close(torch.autograd.grad(shared, row), torch.autograd.grad(apart, row))


def test_backward_may_be_called_again():
    logits, label = rows_with_gaps(torch.linspace(-6, 9, 8, dtype=torch.float64), 6, 0)
    logits.requires_grad_()
    loss = encouraging_loss(logits, label, label_smoothing=0.1)
    first = torch.autograd.grad(loss, logits, retain_graph=True)
    again = torch.autograd.grad(4 * loss, logits)
    assert torch.equal(again[0], 4 * first[0])


def test_logits_changed_between_forward_and_backward_are_noticed():
    logits = torch.zeros(2, 3, requires_grad=True) * 1
    loss = encouraging_loss(logits, torch.tensor([0, 1]))
    logits.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@given(seed=SEEDS, curve=CURVES)
def test_the_gradient_of_the_probabilities_is_the_value_of_their_class(seed, curve):
    """Learned or mixed targets: d loss / d q_k = w_k phi(p_k)."""
    logits, _ = rows_with_gaps(torch.linspace(-4, 6, 5, dtype=torch.float64), 4, seed)
    target = torch.rand(5, 4, generator=generator(seed), dtype=torch.float64).requires_grad_()
    weight = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
    loss = curve_loss(logits, target, curve, weight, reduction="sum")
    p = logits.softmax(1)
    gaps = torch.logit(p)
    assume(all((gaps - edge).abs().min() > 1e-6 for edge in edges(curve)))
    torch.testing.assert_close(torch.autograd.grad(loss, target)[0], weight * phi(curve, p), rtol=1e-8, atol=1e-8)


# The named losses


@given(case=cases(), log_end=st.sampled_from([0.0, 0.5, 0.75, 1.0]), match=st.booleans())
def test_the_named_losses_are_their_curves(case, log_end, match):
    input, target, arguments = case
    for named, parameters, curve in [(encouraging_loss, {"log_end": log_end}, curves.encouraging(log_end)),
                                     (focal_loss, {"gamma": 1.5}, curves.focal(1.5)),
                                     (halted_focal_loss, {"gamma": 1.5, "halt": 0.3}, curves.halted_focal(1.5, 0.3)),
                                     (poly_loss, {"epsilon": 2.0}, curves.poly(2.0))]:
        torch.testing.assert_close(named(input, target, match_norm=match, **parameters, **arguments),
                                   curve_loss(input, target, curve, match_norm=match, **arguments),
                                   rtol=0, atol=0, equal_nan=True)


def test_positional_arguments_stand_in_torchs_order():
    logits, label = rows_with_gaps(torch.linspace(-3, 3, 6, dtype=torch.float64), 3, 0)
    weight = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    torchs = F.cross_entropy(logits, label, weight, ignore_index=1, reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(curve_loss(logits, label, CE, weight, 1, "sum", 0.1), torchs)


@pytest.mark.parametrize("name", encouraging.__all__)
def test_every_public_name_exists(name):
    assert hasattr(encouraging, name)


def published_loss(logits: Tensor, label: Tensor, log_end: float, eps: float = 1e-5) -> Tensor:
    """The published class, written down from its description: log_softmax, exp, a clamped log, the tangent past LE."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    bonus = torch.log(torch.clamp(1 - p, min=eps))
    if log_end != 1:
        tangent = 1 / (log_end - 1) * (p - log_end) + math.log(1 - log_end)
        bonus = torch.where(p > log_end, tangent, bonus)
    return F.nll_loss(log_p + -bonus, label, reduction="none")


@given(seed=SEEDS, classes=st.integers(2, 20), log_end=st.sampled_from([0.25, 0.5, 0.75, 0.9, 1.0]))
def test_where_float32_can_express_it_values_and_gradients_are_the_published_classes(seed, classes, log_end):
    gaps = 18 * torch.rand(16, generator=generator(seed), dtype=torch.float64) - 9
    logits, label = (t if t.dtype == torch.int64 else t.float() for t in rows_with_gaps(gaps, classes, seed))
    assume(log_end == 1 or (gaps - torch.logit(torch.tensor(log_end))).abs().min() > 1e-3)

    def ours(z):
        return encouraging_loss(z, label, reduction="none", log_end=log_end)

    mine, theirs = (value_and_gradient(loss, logits, seed)
                    for loss in (ours, lambda z: published_loss(z, label, log_end)))
    # Theirs takes 1 - p from a p that is rounded at 6e-8: so much is unknown of 1 - p, relative to itself.
    q = torch.sigmoid(-gaps).float()
    spread = (logits.max() - logits.min()).item()
    unit = 2.0**-23 * (8 + spread) / q
    assert ((mine[0] - theirs[0]).abs() <= unit).all()
    assert ((mine[1] - theirs[1]).abs() <= 4 * unit[:, None]).all()
