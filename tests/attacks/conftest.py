"""A small classifier of scikit-learn's digits, trained once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn


class Scaled(nn.Module):
    """The same decisions with logits that are multiplied by a power of two, which is exact in floating point."""

    def __init__(self, model: nn.Module, scale: float) -> None:
        super().__init__()
        self.model, self.scale = model, scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.model(x)


@dataclass(frozen=True)
class Digits:
    model: nn.Module
    x: Tensor
    y: Tensor

    def scaled(self, scale: float) -> nn.Module:
        return Scaled(self.model, scale)

    def first(self, count: int) -> tuple[Tensor, Tensor]:
        return self.x[:count], self.y[:count]


@pytest.fixture(scope="session")
def digits() -> Digits:
    """A model with the margins of an ordinary training, and 400 images that it has not seen."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        images, labels = load_digits(return_X_y=True)
        x, y = torch.from_numpy(images / 16).float().reshape(-1, 1, 8, 8), torch.from_numpy(labels).long()
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(),
                              nn.Linear(64, 10))
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(150):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[400:]), y[400:]).backward()
            optimizer.step()
        optimizer.zero_grad()
    return Digits(model.eval(), x[:400], y[:400])


@pytest.fixture
def network() -> Callable[..., tuple[nn.Module, Tensor, Tensor]]:
    """A convolutional network that was not trained, and images for it, in float64."""
    def make(classes: int = 5, count: int = 12, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
        g = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(),
                                  nn.Linear(64, classes)).double()
        x = torch.rand(count, 2, 6, 6, generator=g, dtype=torch.float64)
        return model, x, torch.randint(classes, (count,), generator=g)

    return make
