"""The two balls around an example: which way is steepest, how to get back inside, and where to start."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ._noise import normal, uniform

STREAMS = 4  # of random numbers per restart; the starts use at most three


class Ball(ABC):
    """All points at most ``eps`` from an example in one norm."""

    @abstractmethod
    def direction(self, gradient: Tensor) -> Tensor:
        """The step of length 1 in this norm along which the loss rises fastest; 0 where the gradient is 0."""

    @abstractmethod
    def project(self, x: Tensor, center: Tensor, eps: float) -> Tensor:
        """The nearest points of the ball; points inside it stay, up to round-off."""

    @abstractmethod
    def start(self, center: Tensor, eps: float, seed: int | Tensor, restart: int, index: Tensor) -> Tensor:
        """A random point of the ball, uniformly distributed."""


class Linf(Ball):
    """No coordinate moves by more than ``eps``."""

    def direction(self, gradient: Tensor) -> Tensor:
        return gradient.sign()

    def project(self, x: Tensor, center: Tensor, eps: float) -> Tensor:
        return center + (x - center).clamp(-eps, eps)

    def start(self, center: Tensor, eps: float, seed: int | Tensor, restart: int, index: Tensor) -> Tensor:
        noise = 2 * uniform(center.shape, seed, STREAMS * restart, index) - 1
        return center + eps * noise.to(center.dtype)


class L2(Ball):
    """The Euclidean length of the perturbation of an example is at most ``eps``."""

    def direction(self, gradient: Tensor) -> Tensor:
        # The largest entry becomes 1 first: squares of a small gradient do not underflow then, and a gradient of
        # another scale gives the same bits.
        largest = _per_example(gradient.abs().flatten(1).amax(1), gradient)
        scaled = gradient / torch.where(largest > 0, largest, 1.0)
        length = lengths(scaled)
        return scaled / torch.where(length > 0, length, 1.0)

    def project(self, x: Tensor, center: Tensor, eps: float) -> Tensor:
        step = x - center
        length = lengths(step)
        return center + step * torch.where(length > eps, eps / length, 1.0)

    def start(self, center: Tensor, eps: float, seed: int | Tensor, restart: int, index: Tensor) -> Tensor:
        stream = STREAMS * restart
        ray = self.direction(normal(center.shape, seed, stream, index).to(center.dtype))
        depth = uniform((len(center), 1), seed, stream + 2, index)[:, 0].to(center.dtype)
        return center + eps * _per_example(depth ** (1 / max(1, center[0].numel())), center) * ray


def lengths(x: Tensor) -> Tensor:
    """The Euclidean length of every example, in a shape that broadcasts against it."""
    return _per_example(torch.linalg.vector_norm(x.flatten(1), dim=1), x)


def _per_example(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(-1, *[1] * (like.ndim - 1))


LINF, L2_BALL = Linf(), L2()
