"""Residual networks for 32 x 32 images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .classifier import Classifier, linear_head


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut.

    Where the shape changes, the shortcut is a 1x1 convolution; with ``pad`` it is every second pixel, and zeros for the
    new channels (He's option A, which has no parameters).
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int, pad: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.stride, self.more = stride, channels_out - channels_in
        changes = stride != 1 or self.more != 0
        self.short = nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                                   nn.BatchNorm2d(channels_out)) if changes and not pad else None

    def forward(self, input: Tensor) -> Tensor:
        out = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(input)))))
        return torch.relu(out + self.shortcut(input))

    def shortcut(self, input: Tensor) -> Tensor:
        if self.short is not None:
            projected: Tensor = self.short(input)
            return projected
        if self.stride == 1 and self.more == 0:
            return input
        strided = input[:, :, :: self.stride, :: self.stride]
        return F.pad(strided, (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))


def _body(widths: tuple[int, ...], blocks: int, channels: int, pad: bool) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(channels, widths[0], 3, padding=1, bias=False),
                               nn.BatchNorm2d(widths[0]), nn.ReLU()]
    channels_in = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            layers.append(Block(channels_in, width, 2 if stage > 0 and block == 0 else 1, pad))
            channels_in = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _he_resnet(blocks: int, classes: int, channels: int, margin: int | None, cosine: bool) -> Classifier:
    """As in the long-tail literature: option A, and Kaiming's normal (fan in) for the output layer too."""
    model = Classifier(_body((16, 32, 64), blocks, channels, pad=True), linear_head(64, classes, margin, cosine=cosine))
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    return model


def resnet20(classes: int = 10, channels: int = 3, margin: int | None = None, cosine: bool = False) -> Classifier:
    """He's CIFAR network of 20 layers, 0.27 million parameters."""
    return _he_resnet(3, classes, channels, margin, cosine)


def resnet32(classes: int = 10, channels: int = 3, margin: int | None = None, cosine: bool = False) -> Classifier:
    """He's CIFAR network of 32 layers, 0.46 million parameters: the one of the long-tail literature."""
    return _he_resnet(5, classes, channels, margin, cosine)


def resnet18(classes: int = 10, channels: int = 3, margin: int | None = None, cosine: bool = False) -> Classifier:
    """ResNet-18 with a 3x3 stem for small images, 11 million parameters."""
    body = _body((64, 128, 256, 512), 2, channels, pad=False)
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return Classifier(body, linear_head(512, classes, margin, cosine=cosine))
