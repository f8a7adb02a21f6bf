"""Laws of FGSM and PGD: where their results lie, what they depend on, and what they leave as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from encouraging.attacks import DAMPING, Attack, fgsm, pgd, pgd_l2
from encouraging.attacks._ball import L2_BALL, LINF
from encouraging.attacks._objective import OBJECTIVES, objective
from encouraging.metrics import margin
from strategies import SEEDS, generator

Network = Callable[..., tuple[nn.Module, Tensor, Tensor]]
LOSSES = sorted(OBJECTIVES)
EPS = st.one_of(st.sampled_from([0.0, 1e-4, 2 / 255, 0.3, 1.0, 5.0]), st.floats(0, 10))
IN_BOX = st.one_of(st.sampled_from([0.0, 1e-4, 2 / 255, 0.3, 1.0]), st.floats(0, 1))  # in L-infinity


def linear(classes: int, pixels: int, seed: int, scale: float = 1.0) -> Callable[[Tensor], Tensor]:
    weight = scale * torch.randn(classes, pixels, generator=generator(seed))
    return lambda x: torch.nn.functional.linear(x.flatten(1), weight.to(x.dtype)).tanh() * 3


@st.composite
def cases(draw: st.DrawFn) -> tuple[Callable[[Tensor], Tensor], Tensor, Tensor]:
    g = generator(draw(SEEDS))
    classes, count = draw(st.integers(2, 6)), draw(st.integers(1, 6))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    x = torch.rand(count, 1, 3, 3, generator=g, dtype=dtype)
    x = draw(st.sampled_from([x, x.round(), torch.zeros_like(x), torch.ones_like(x)]))
    return linear(classes, 9, draw(SEEDS)), x, torch.randint(classes, (count,), generator=g)


def slack(x: Tensor, eps: float) -> float:
    return 8 * torch.finfo(x.dtype).eps * (1 + eps)


@given(case=cases(), in_box=IN_BOX, in_l2=EPS, loss=st.sampled_from(LOSSES), start=st.booleans(),
       step=st.floats(1e-3, 20))
def test_pgd_stays_in_the_box_and_in_its_ball(case: Any, in_box: float, in_l2: float, loss: str, start: bool,
                                              step: float) -> None:
    model, x, y = case
    for attack, eps, length in ((pgd, in_box, lambda d: d.abs().amax(1)), (pgd_l2, in_l2, lambda d: d.norm(dim=1))):
        found = attack(model, x, y, eps, steps=3, step_size=step, loss=loss, random_start=start)
        assert found.dtype == x.dtype
        assert found.min() >= 0
        assert found.max() <= 1
        assert length((found - x).flatten(1)).max() <= eps + slack(x, eps)


@given(case=cases(), eps=IN_BOX, in_normalised=EPS, loss=st.sampled_from(LOSSES))
def test_fgsm_stays_in_the_box_unless_told_otherwise(case: Any, eps: float, in_normalised: float, loss: str) -> None:
    model, x, y = case
    found = fgsm(model, x, y, eps, loss=loss)
    assert found.min() >= 0
    assert found.max() <= 1
    assert (found - x).abs().max() <= eps + slack(x, eps)
    free = fgsm(model, 3 * x - 1, y, in_normalised, loss=loss, clip=False)
    assert (free - (3 * x - 1)).abs().max() <= in_normalised + 4 * slack(x, in_normalised)
    torch.testing.assert_close(fgsm(model, x, y, eps, loss=loss, clip=False).clamp(0, 1), found)


@given(case=cases(), seed=SEEDS, restarts=st.integers(1, 3))
def test_epsilon_0_changes_nothing(case: Any, seed: int, restarts: int) -> None:
    model, x, y = case
    for found in (fgsm(model, x, y, 0), fgsm(model, x, y, 0, clip=False),
                  pgd(model, x, y, 0, steps=2, seed=seed, restarts=restarts),
                  pgd_l2(model, x, y, 0, steps=2, seed=seed, restarts=restarts, random_start=True)):
        assert torch.equal(found, x)


@given(seed=SEEDS, eps=EPS, scale=st.sampled_from([1e-3, 1.0, 100.0]))
def test_projections_are_nearest_points_and_leave_the_ball_alone(seed: int, eps: float, scale: float) -> None:
    g = generator(seed)
    center, far = torch.rand(5, 7, generator=g).double(), scale * torch.randn(5, 7, generator=g).double()
    for ball, length in ((LINF, lambda d: d.abs().amax(1)), (L2_BALL, lambda d: d.norm(dim=1))):
        onto = ball.project(center + far, center, eps)
        assert (length(onto - center) <= eps + 1e-12 * (1 + eps)).all()
        torch.testing.assert_close(ball.project(onto, center, eps), onto, rtol=0, atol=1e-12 * (1 + eps))
        inside = length(far) <= eps
        torch.testing.assert_close(onto[inside], (center + far)[inside])
        # No other point of the ball is nearer in the Euclidean sense.
        for restart in range(3):
            other = ball.start(center, eps, seed, restart, torch.arange(5))
            there = (center + far - onto).norm(dim=1)
            assert (there <= (center + far - other).norm(dim=1) + 1e-9 * (1 + there)).all()


@given(seed=SEEDS, power=st.integers(-60, 60))
def test_directions_have_length_1_and_do_not_depend_on_the_scale(seed: int, power: int) -> None:
    gradient = torch.randn(4, 1, 3, 3, generator=generator(seed))
    gradient[0] = 0
    for ball, length in ((LINF, lambda d: d.abs().amax(1)), (L2_BALL, lambda d: d.norm(dim=1))):
        direction = ball.direction(gradient)
        torch.testing.assert_close(length(direction.flatten(1)), torch.tensor([0.0, 1.0, 1.0, 1.0]))
        assert torch.equal(ball.direction(gradient * 2.0**power), direction)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), eps=st.sampled_from([0.02, 0.05, 0.1]), l2=st.booleans(),
       loss=st.sampled_from(["ce", "margin"]))
def test_restarts_never_make_the_attack_weaker(digits: Any, seed: int, eps: float, l2: bool, loss: str) -> None:
    x, y = digits.first(60)
    attack = Attack("pgd_l2" if l2 else "pgd", loss=loss, steps=3, step_size=eps, random_start=True)
    before = torch.full((60,), torch.inf)
    for restarts in (1, 2, 4):
        found = Attack(attack.method, **attack.settings, restarts=restarts)(digits.model, x, y, 8 * eps if l2 else eps,
                                                                           seed=seed)
        now = margin(digits.model(found), y).detach()
        assert (now[before > 0] <= before[before > 0]).all()
        assert (now[before <= 0] == before[before <= 0]).all()  # what is broken is left alone
        before = now


@pytest.mark.parametrize("attack", [Attack("fgsm"), Attack("pgd", restarts=2), Attack("pgd", loss="dlr"),
                                    Attack("pgd_l2", random_start=True, restarts=3), Attack("pgd_l2", loss="margin")],
                         ids=repr)
def test_the_batch_size_does_not_change_the_result(network: Network, attack: Attack) -> None:
    model, x, y = network(count=13)
    whole = attack(model, x, y, 0.2)
    for size in (1, 4, 13, 100):
        torch.testing.assert_close(attack(model, x, y, 0.2, batch_size=size), whole, rtol=0, atol=1e-9)


@given(case=cases())
def test_losses_are_as_defined(case: Any) -> None:
    model, x, y = case
    z = model(x).double()
    rows = torch.arange(len(y))
    rival = z.scatter(1, y[:, None], -torch.inf).amax(1)
    ordered = z.sort(1, descending=True).values
    torch.testing.assert_close(objective("ce")(z, y), -z.log_softmax(1)[rows, y])
    torch.testing.assert_close(objective("margin")(z, y), rival - z[rows, y])
    torch.testing.assert_close(objective("label_logit")(z, y), -z[rows, y])
    if z.shape[1] == 2:  # no third logit: the margin itself
        torch.testing.assert_close(objective("dlr")(z, y), rival - z[rows, y])
    else:
        distance = ordered[:, 0] - ordered[:, 2]
        expected = torch.where(distance > 0, (rival - z[rows, y]) / distance, 0.0)
        torch.testing.assert_close(objective("dlr")(z, y), expected)


def test_equal_logits_have_a_finite_dlr_and_gradient() -> None:
    z = torch.zeros(1, 4, requires_grad=True)
    value = objective("dlr")(z, torch.tensor([1]))
    value.sum().backward()
    assert value.item() == 0
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_where_masked_classes_leave_two_the_dlr_is_that_of_two() -> None:
    """Divided by an infinite distance it would be 0, and an attack by it would stand still."""
    z, label = torch.tensor([[2.0, 1.0, -torch.inf, -torch.inf]], requires_grad=True), torch.tensor([0])
    value = objective("dlr")(z, label)
    value.sum().backward()
    assert value.item() == objective("dlr")(z[:, :2], label).item() == -1
    assert z.grad is not None
    assert z.grad.tolist() == [[-1, 1, 0, 0]]


@pytest.mark.parametrize("classes", [2, 3, 4, 10])
@pytest.mark.parametrize("loss", LOSSES)
def test_attacks_work_for_any_number_of_classes(network: Network, classes: int, loss: str) -> None:
    model, x, _ = network(classes)
    y = model.eval()(x).argmax(1)
    for found in (pgd(model, x, y, 0.5, loss=loss), pgd_l2(model, x, y, 3.0, loss=loss)):
        assert (margin(model(found), y) < margin(model(x), y)).double().mean() > 0.9


def test_the_models_mode_its_gradients_and_the_random_state_stay_as_they_were(network: Network) -> None:
    model, x, y = network()
    model.train()
    model[2].eval()  # a batch norm that its owner has frozen
    model[0].weight.requires_grad_(False)
    model[5].weight.grad = torch.ones_like(model[5].weight)
    modes, state = [m.training for m in model.modules()], {k: v.clone() for k, v in model.state_dict().items()}
    wants, random = [p.requires_grad for p in model.parameters()], torch.get_rng_state()
    x.requires_grad_()
    for attack in (Attack("fgsm"), Attack("pgd", restarts=2), Attack("pgd_l2")):
        found = attack(model, x, y, 0.1)
        assert not found.requires_grad
        assert found.grad_fn is None
    assert [m.training for m in model.modules()] == modes
    assert [p.requires_grad for p in model.parameters()] == wants
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert [p.grad is None for p in model.parameters()] == [p is not model[5].weight for p in model.parameters()]
    assert (model[5].weight.grad == 1).all()
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), random)


def test_the_mode_is_restored_after_an_error(network: Network) -> None:
    model, x, y = network()
    with pytest.raises(Exception, match="label 7"):
        pgd(model.train(), x, torch.full_like(y, 7), 0.1)
    assert all(m.training for m in model.modules())


def test_attacks_work_where_gradients_are_off_and_ignore_autocast(digits: Any) -> None:
    x, y = digits.first(20)
    expected = pgd(digits.model, x, y, 0.1)
    with torch.no_grad():
        assert torch.equal(pgd(digits.model, x, y, 0.1), expected)
    with torch.inference_mode():
        assert torch.equal(pgd(digits.model, x.clone(), y.clone(), 0.1), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(pgd(digits.model, x, y, 0.1), expected)


def test_a_gradient_that_is_nan_does_not_carry_the_example_out_of_its_ball() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.stack([x.sum(1), (x - x).sqrt().sum(1)], 1)  # the derivative of sqrt at 0 times 0

    x, y = torch.rand(3, 4), torch.tensor([0, 1, 0])
    for attack in (Attack("fgsm"), Attack("pgd"), Attack("pgd_l2")):
        found = attack(model, x, y, 0.1)
        assert found.isfinite().all()
        assert (found - x).abs().max() <= 0.1 + 1e-6


def _paper_l2(model: nn.Module, x: Tensor, y: Tensor, eps: float, constant: float) -> Tensor:
    """The paper's steps: the gradient of the mean loss over its length plus a constant, the ball, then the box."""
    found = x
    for _ in range(40):
        moved = found.detach().requires_grad_()
        gradient, = torch.autograd.grad(nn.functional.cross_entropy(model(moved), y), moved)
        length = gradient.flatten(1).norm(dim=1) + constant
        change = found + 0.2 * gradient / length.view(-1, 1, 1, 1) - x
        factor = (eps / change.flatten(1).norm(dim=1)).clamp(max=1).view(-1, 1, 1, 1)
        found = (x + change * factor).clamp(0, 1).detach()
    return found


@pytest.mark.parametrize("scale", [1.0, 8.0, 32.0])
def test_damped_it_is_the_papers_attack_and_comes_to_a_halt_on_confident_models(digits: Any, scale: float) -> None:
    """The paper takes batches of 128. Multiplying the logits changes no decision, but how far their attack gets."""
    x, y = digits.first(128)
    model = nn.Sequential(digits.model, _Times(scale))
    theirs = _paper_l2(model, x, y, 1.0, 1e-10)
    ours = pgd_l2(model, x, y, 1.0, damping=DAMPING)
    same = ((ours - theirs).flatten(1).abs().amax(1) < 1e-3).double().mean()
    assert same > 0.97
    undamped = pgd_l2(model, x, y, 1.0)
    reached = [(found - x).flatten(1).norm(dim=1).mean().item() for found in (ours, undamped)]
    if scale == 32:
        assert reached[0] < 0.7 * reached[1]  # many gradients are shorter than the constant, others 0 for both
    else:
        assert reached[0] <= reached[1] + 1e-3


class _Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, logits: Tensor) -> Tensor:
        return logits * self.factor


@pytest.mark.parametrize("damping", [-1.0, float("nan"), float("inf"), True, "1"])
def test_a_damping_that_is_no_number_is_refused(digits: Any, damping: Any) -> None:
    with pytest.raises(ValueError, match=r"damping=.*expected a finite number, 0 or more"):
        pgd_l2(digits.model, *digits.first(2), 1.0, damping=damping)


def test_a_batch_without_examples_stays_one(digits: Any) -> None:
    x, y = digits.first(0)
    for attack in (Attack("fgsm"), Attack("pgd", restarts=2), Attack("pgd_l2")):
        assert attack(digits.model, x, y, 0.1).shape == x.shape


def test_the_authors_fgsm_lowers_the_raw_label_logit_in_normalised_units(digits: Any) -> None:
    """Their attack on L-Softmax: the sign of the gradient of minus the label's logit, without clipping."""
    weight = torch.randn(10, 64, generator=generator(0))
    x = (digits.x[:20].flatten(1) - 0.1307) / 0.3081
    y = digits.y[:20]
    found = fgsm(lambda batch: batch @ weight.T, x, y, 0.2, loss="label_logit", clip=False)
    assert torch.equal(found, x + (x + 0.2 * -weight[y].sign() - x).clamp(-0.2, 0.2))
    assert found.min() < 0
