"""Residual networks for 32 x 32 images."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .classifier import Classifier, linear_head


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut; where the shape changes the shortcut is a 1x1 convolution or padding."""

    def __init__(self, inside: int, outside: int, stride: int, pad: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.stride, self.more = stride, outside - inside
        changes = stride != 1 or self.more != 0
        self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)) \
            if changes and not pad else None

    def forward(self, input: Tensor) -> Tensor:
        out = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(input)))))
        return torch.relu(out + self.shortcut(input))

    def shortcut(self, input: Tensor) -> Tensor:
        if self.short is not None:
            projected: Tensor = self.short(input)
            return projected
        if self.stride == 1 and self.more == 0:
            return input
        thin = input[:, :, :: self.stride, :: self.stride]
        return F.pad(thin, (0, 0, 0, 0, self.more // 2, self.more - self.more // 2))


def _resnet(widths: tuple[int, ...], blocks: int, classes: int, channels: int, margin: int | None,
            pad: bool) -> Classifier:
    layers: list[nn.Module] = [nn.Conv2d(channels, widths[0], 3, padding=1, bias=False),
                               nn.BatchNorm2d(widths[0]), nn.ReLU()]
    wide = widths[0]
    for stage, width in enumerate(widths):
        for block in range(blocks):
            layers.append(Block(wide, width, 2 if stage > 0 and block == 0 else 1, pad))
            wide = width
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return Classifier(body, linear_head(wide, classes, margin))


def resnet20(classes: int = 10, channels: int = 3, margin: int | None = None) -> Classifier:
    """He's CIFAR network of 20 layers, 0.27 million parameters, shortcuts without parameters."""
    return _resnet((16, 32, 64), 3, classes, channels, margin, pad=True)


def resnet32(classes: int = 10, channels: int = 3, margin: int | None = None) -> Classifier:
    """He's CIFAR network of 32 layers, the one of the long-tail literature."""
    return _resnet((16, 32, 64), 5, classes, channels, margin, pad=True)


def resnet18(classes: int = 10, channels: int = 3, margin: int | None = None) -> Classifier:
    """ResNet-18 with a 3x3 stem for small images, 11 million parameters."""
    return _resnet((64, 128, 256, 512), 2, classes, channels, margin, pad=False)
