"""EfficientNet-B0 as in the paper's code for CIFAR."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from ..errors import RecipeError, install_words
from .classifier import Classifier, linear_head

DROPOUT = DROP_CONNECT = 0.2


def efficientnet_b0(classes: int = 10, channels: int = 3, margin: int | None = None,
                    cosine: bool = False) -> Classifier:
    """EfficientNet-B0 of the paper's CIFAR experiments, 4.0 million parameters without the output layer; needs timm.

    It is timm's network with three changes to match the authors' implementation: TensorFlow's padding, every residual
    branch dropped with the same probability 0.2 (timm: from 0 in the first block to 0.19 in the last), and convolutions
    from Kaiming's normal over a fan-out that counts all groups. So a depthwise filter over n channels starts sqrt(n)
    times smaller than timm's; batch norm hides this from the forward pass, but early updates change the direction of
    these filters much more.
    """
    timm = import_timm("efficientnet_b0")
    body = timm.create_model("efficientnet_b0", pretrained=False, num_classes=0, in_chans=channels, drop_rate=DROPOUT,
                             drop_path_rate=DROP_CONNECT, pad_type="same")
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        elif type(module).__name__ == "DropPath":
            module.drop_prob = DROP_CONNECT
    head = linear_head(body.num_features, classes, margin, cosine=cosine)
    if isinstance(head, nn.Linear):
        nn.init.uniform_(head.weight, -1 / math.sqrt(classes), 1 / math.sqrt(classes))
        nn.init.zeros_(head.bias)
    return Classifier(body, head)


def import_timm(name: str) -> Any:
    """The library; a RecipeError says which model needs it if it is missing."""
    try:
        import timm
    except (ImportError, RuntimeError) as error:
        raise RecipeError(f"{name} needs {install_words('timm', error)}", "model") from error
    return timm
