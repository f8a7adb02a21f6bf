"""FGSM and PGD against foolbox, example by example."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from encouraging.attacks import fgsm, pgd, pgd_l2

Network = Callable[..., tuple[nn.Module, Tensor, Tensor]]


@pytest.fixture(scope="module")
def foolbox() -> types.ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its import raises one of its own
        import foolbox

    return foolbox


def theirs(foolbox: types.ModuleType, attack: Any, model: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    wrapped = foolbox.PyTorchModel(model.eval(), bounds=(0, 1), device="cpu")
    found: Tensor = attack.run(wrapped, x, foolbox.criteria.Misclassification(y), epsilon=eps)
    return found


EPSILONS = [0.0, 0.01, 0.05, 0.3, 1.0]


@pytest.mark.parametrize("eps", EPSILONS)
def test_fgsm_is_foolboxs_bit_for_bit(foolbox: types.ModuleType, digits: Any, eps: float) -> None:
    attack = foolbox.attacks.LinfFastGradientAttack(random_start=False)
    assert torch.equal(fgsm(digits.model, digits.x, digits.y, eps),
                       theirs(foolbox, attack, digits.model, digits.x, digits.y, eps))


@pytest.mark.parametrize("eps", EPSILONS)
@pytest.mark.parametrize(("steps", "step_size"), [(1, 0.1), (7, 0.1), (40, 2 / 255)])
def test_pgd_without_random_start_is_foolboxs_bit_for_bit(foolbox: types.ModuleType, digits: Any, eps: float,
                                                          steps: int, step_size: float) -> None:
    attack = foolbox.attacks.LinfProjectedGradientDescentAttack(abs_stepsize=step_size, steps=steps,
                                                                random_start=False)
    x, y = digits.first(100)
    ours = pgd(digits.model, x, y, eps, steps=steps, step_size=step_size, random_start=False)
    assert torch.equal(ours, theirs(foolbox, attack, digits.model, x, y, eps))


@pytest.mark.parametrize("eps", [*EPSILONS, 10.0])
@pytest.mark.parametrize(("steps", "step_size"), [(1, 0.1), (7, 0.2), (40, 0.2)])
def test_pgd_l2_without_random_start_is_foolboxs(foolbox: types.ModuleType, network: Network, eps: float, steps: int,
                                                 step_size: float) -> None:
    model, x, y = network()
    attack = foolbox.attacks.L2ProjectedGradientDescentAttack(abs_stepsize=step_size, steps=steps, random_start=False)
    ours = pgd_l2(model, x, y, eps, steps=steps, step_size=step_size)
    torch.testing.assert_close(ours, theirs(foolbox, attack, model, x, y, eps), rtol=0, atol=1e-10)
