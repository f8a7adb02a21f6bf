"""The loop behind FGSM and both forms of PGD: steps of a fixed length uphill, each followed by the projections."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..metrics import margin
from ._ball import Ball, lengths
from ._model import Model, input_gradient, plain
from ._objective import objective


@dataclass(frozen=True)
class Ascent:
    """The settings of one attack on any batch."""

    ball: Ball
    eps: float
    steps: int
    step_size: float
    loss: str
    random_start: bool = False
    restarts: int = 1
    clip: bool = True
    damping: float = 0.0

    def run(self, model: Model, x: Tensor, y: Tensor, *, seed: int | Tensor, index: Tensor, restart: int = 0) -> Tensor:
        """One start and a fixed number of steps; it never synchronises with the device."""
        loss = objective(self.loss)
        perturbed = self._boxed(self.ball.start(x, self.eps, seed, restart, index)) if self.random_start else x
        for _ in range(self.steps):
            gradient = input_gradient(model, perturbed, y, loss)
            step = self.ball.direction(gradient)
            if self.damping:
                length = lengths(gradient)
                step = step * (length / (length + self.damping))
            perturbed = self._boxed(self.ball.project(perturbed + self.step_size * step, x, self.eps))
        return perturbed

    def worst(self, model: Model, x: Tensor, y: Tensor, *, seed: int, index: Tensor) -> Tensor:
        """The first restart that breaks an example, or else the one that leaves it the smallest margin.

        Broken examples are left out of later restarts, which does not change the result.
        """
        perturbed = self.run(model, x, y, seed=seed, index=index)
        if self.restarts == 1:
            return perturbed
        remaining, lowest = torch.arange(len(x), device=x.device), _margins(model, perturbed, y)
        for restart in range(1, self.restarts):
            unbroken = (lowest > 0).nonzero()[:, 0]
            if not len(unbroken):
                break
            remaining, lowest = remaining[unbroken], lowest[unbroken]
            retried = self.run(model, x[remaining], y[remaining], seed=seed, index=index[remaining], restart=restart)
            margins = _margins(model, retried, y[remaining])
            better = ~(margins >= lowest)  # written so that NaN counts as broken
            perturbed[remaining[better]] = retried[better]
            lowest = torch.where(better, margins, lowest)
        return perturbed

    def _boxed(self, x: Tensor) -> Tensor:
        return x.clamp(0, 1) if self.clip else x


@torch.no_grad()
def _margins(model: Model, x: Tensor, y: Tensor) -> Tensor:
    return margin(model(x), y)


def attack(model: Model, x: Tensor, y: Tensor, ascent: Ascent, *, seed: int, index: Tensor,
           batch_size: int | None) -> Tensor:
    """The attack on a batch of any size, in pieces of at most ``batch_size`` examples."""
    x, y, index = plain(x), plain(y).long(), plain(index)
    if not len(x):
        return x.clone()
    size = batch_size or len(x)
    pieces = [slice(first, first + size) for first in range(0, len(x), size)]
    return torch.cat([ascent.worst(model, x[rows], y[rows], seed=seed, index=index[rows]) for rows in pieces]).detach()
