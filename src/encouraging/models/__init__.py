"""Networks of the paper by name that are not in a library. The others come from timm and torchvision."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import RecipeError, did_you_mean
from .classifier import Classifier
from .cosine import CosineLinear
from .efficientnet import efficientnet_b0
from .mnist import attack_cnn, digits_mlp, lsoftmax_cnn
from .resnet import resnet18, resnet20, resnet32

MODELS: dict[str, Callable[..., Classifier]] = {
    build.__name__: build for build in (lsoftmax_cnn, attack_cnn, digits_mlp, resnet20, resnet32, resnet18,
                                         efficientnet_b0)
}


def build_model(name: str, classes: int, channels: int, margin: int | None = None, cosine: bool = False) -> Classifier:
    """The network of that name, freshly initialised from torch's random state.

    Args:
        name: one of :data:`MODELS`.
        classes: number of logits.
        channels: channels of the images.
        margin: the margin of L-Softmax's output layer; None for a linear layer.
        cosine: whether to use LDAM's output layer, whose logits are cosines.
    """
    check_model(name)
    return MODELS[name](classes=classes, channels=channels, margin=margin, cosine=cosine)


def check_model(name: str) -> None:
    """Refuse an unknown name with the nearest right one."""
    if name not in MODELS:
        raise RecipeError(f"no model is called {name!r}; expected one of {', '.join(MODELS)}."
                          + did_you_mean(name, MODELS))


__all__ = ["MODELS", "Classifier", "CosineLinear", "attack_cnn", "build_model", "check_model", "digits_mlp",
           "efficientnet_b0", "lsoftmax_cnn", "resnet18", "resnet20", "resnet32"]
