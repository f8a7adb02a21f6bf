"""The paper's networks for MNIST, and the small one for scikit-learn's digits."""

from __future__ import annotations

from torch import nn

from .classifier import Classifier, linear_head
from .fused import Stack


def lsoftmax_cnn(classes: int = 10, channels: int = 1, margin: int | None = None,
                 cosine: bool = False) -> Classifier:
    """The CNN of the large-margin softmax paper: eleven 3x3 convolutions of 64 channels, for 28 x 28 images.

    Every convolution is followed by PReLU and then batch norm, in this order; the features have a batch norm and no
    activation; the output layer has no bias.
    """
    def conv(wide: int, padding: int = 1) -> list[nn.Module]:
        return [nn.Conv2d(wide, 64, 3, padding=padding), nn.PReLU(), nn.BatchNorm2d(64)]

    layers: list[nn.Module] = [nn.BatchNorm2d(channels), *conv(channels, padding=0)]
    for count in (3, 4, 3):
        for _ in range(count):
            layers += conv(64)
        layers.append(nn.MaxPool2d(2))
    body = Stack(*layers, nn.Flatten(), nn.Linear(576, 256), nn.BatchNorm1d(256))
    return Classifier(body, linear_head(256, classes, margin, bias=False, cosine=cosine))


def attack_cnn(classes: int = 10, channels: int = 1, margin: int | None = None,
               cosine: bool = False) -> Classifier:
    """The network of the paper's attacks and adversarial training, for 28 x 28 images."""
    body = nn.Sequential(
        nn.Conv2d(channels, 16, 5), nn.ReLU(), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(576, 100), nn.ReLU())
    return Classifier(body, linear_head(100, classes, margin, cosine=cosine))


def digits_mlp(classes: int = 10, channels: int = 1, margin: int | None = None,
               cosine: bool = False) -> Classifier:
    """Two hidden layers of 128 for 8 x 8 images: seconds on a laptop."""
    body = nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
    return Classifier(body, linear_head(128, classes, margin, cosine=cosine))
