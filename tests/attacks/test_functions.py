"""Functions around modules: attacked in evaluation mode, and left as they were."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from encouraging.attacks import Attack, accuracy_over_eps, adversarial_batch, autoattack, fgsm, pgd
from encouraging.errors import ArgumentError


class Holder:
    """An object that is no module and calls one."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net

    def __call__(self, x: Tensor) -> Tensor:
        return self.net(x)[0]

    def logits(self, x: Tensor) -> Tensor:
        return self.net(x)[0]


def first_of(net: nn.Module, x: Tensor) -> Tensor:
    return net(x)[0]


class Pair(nn.Module):
    """A network with batch norm and dropout that returns more than logits."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.body(x), x


KINDS = ["lambda", "nested", "partial", "object", "method", "of an object", "in circles", "in a list", "in a mapping"]


def around(net: nn.Module, kind: str) -> Callable[[Tensor], Tensor]:
    """A function that calls the module in one of several ways."""
    holder, several, by_name = Holder(net), [net], {"net": net}

    def inner(x: Tensor) -> Tensor:
        return net(x)[0]

    def circle(x: Tensor, depth: int = 1) -> Tensor:
        return circle(x, depth - 1) if depth else inner(x)

    return {"lambda": lambda x: net(x)[0], "nested": lambda x: inner(x), "partial": functools.partial(first_of, net),
            "object": holder, "method": holder.logits, "of an object": lambda x: holder.net(x)[0],
            "in circles": circle, "in a list": lambda x: several[0](x)[0],
            "in a mapping": lambda x: by_name["net"](x)[0]}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_around_a_module_leaves_it_as_it_was(kind: str) -> None:
    torch.manual_seed(0)
    net = Pair().train()
    model = around(net, kind)
    x, y = torch.rand(32, 1, 4, 4), torch.randint(3, (32,))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = pgd(model, x, y, 0.1, steps=3)
    assert all(module.training for module in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    net.eval()
    assert torch.equal(found, pgd(model, x, y, 0.1, steps=3))


@pytest.mark.parametrize("kind", KINDS)
def test_autoattack_adds_no_gradients_to_a_module_that_a_function_calls(kind: str) -> None:
    torch.manual_seed(0)
    net = Pair()
    x = torch.rand(8, 1, 4, 4)
    autoattack(around(net, kind), x, net.eval()(x)[0].argmax(1), 0.02, parts=["fab-t"])
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_a_function_around_another_module_is_refused(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(0)
    net, other = Pair().eval(), Pair().eval()
    x, y = torch.rand(8, 1, 4, 4), torch.randint(3, (8,))
    path = tmp_path / "state.json"
    first, again = (accuracy_over_eps(around(net, kind), x, y, [Attack("fgsm")], [0, 0.1], state_path=path).table()
                    for _ in range(2))
    assert first == again
    with pytest.raises(ArgumentError, match="state of another model"):
        accuracy_over_eps(around(other, kind), x, y, [Attack("fgsm")], [0, 0.1], state_path=path)


class NormalisedInPlace(nn.Module):
    """A network that begins by writing over its input, as torchvision's ``Normalize(inplace=True)`` does."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.inplace, self.net = inplace, nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.sub_(0.5).div_(0.25) if self.inplace else (x - 0.5) / 0.25)


@pytest.mark.parametrize("attack", [
    lambda model, x, y: fgsm(model, x, y, 0.1),
    lambda model, x, y: pgd(model, x, y, 0.1, steps=3, restarts=2, loss="margin"),
    lambda model, x, y: adversarial_batch(model, x, y, Attack("pgd", steps=2), 0.1),
    lambda model, x, y: autoattack(model, x, y, 0.1, parts=["apgd-ce"]),
    lambda model, x, y: accuracy_over_eps(model, x, y, [Attack("fgsm")], [0, 0.1]).survived["fgsm"][0.1],
], ids=["fgsm", "pgd", "in training", "autoattack", "accuracy"])
def test_a_model_that_writes_over_its_input_is_attacked_like_another_and_the_images_stay(attack: Callable[..., Tensor]
                                                                                         ) -> None:
    torch.manual_seed(0)
    plain = NormalisedInPlace(inplace=False)
    changing = NormalisedInPlace(inplace=True)
    changing.load_state_dict(plain.state_dict())
    x, y = torch.rand(8, 1, 4, 4), torch.randint(3, (8,))
    before = x.clone()
    assert torch.equal(attack(changing, x, y), attack(plain, x, y))
    assert torch.equal(x, before)
