"""Functions around modules: attacked in evaluation mode, and left as they were."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn

from encouraging.attacks import pgd


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


@pytest.mark.parametrize("kind", ["lambda", "nested", "partial", "object", "method", "of an object", "in circles",
                                  "in a list", "in a mapping"])
def test_a_function_around_a_module_leaves_it_as_it_was(kind: str) -> None:
    torch.manual_seed(0)
    net = Pair().train()
    holder, several, by_name = Holder(net), [net], {"net": net}

    def inner(x: Tensor) -> Tensor:
        return net(x)[0]

    def circle(x: Tensor, depth: int = 1) -> Tensor:
        return circle(x, depth - 1) if depth else inner(x)

    model = {"lambda": lambda x: net(x)[0], "nested": lambda x: inner(x), "partial": functools.partial(first_of, net),
             "object": holder, "method": holder.logits, "of an object": lambda x: holder.net(x)[0],
             "in circles": circle, "in a list": lambda x: several[0](x)[0],
             "in a mapping": lambda x: by_name["net"](x)[0]}[kind]
    x, y = torch.rand(32, 1, 4, 4), torch.randint(3, (32,))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = pgd(model, x, y, 0.1, steps=3)
    assert all(module.training for module in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    net.eval()
    assert torch.equal(found, pgd(model, x, y, 0.1, steps=3))
