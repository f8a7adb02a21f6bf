"""A network by name: one of this package, ``timm/NAME``, ``torchvision/NAME``, or your own function.

All of them become a :class:`Classifier`, a body that computes features and a head that computes logits, so that stages
can reset or freeze them and the logits stay in float32 under autocast.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from torch import nn

from ..errors import RecipeError, did_you_mean, install_words
from ..plugins import is_reference, load_function
from . import MODELS, build_model, check_model
from .classifier import Classifier
from .cosine import CosineLinear
from .efficientnet import import_timm

LIBRARIES = ("timm", "torchvision")
HEAD = ("head_init", "head_scale", "cosine")  # options of the output layer; networks of this package take no others


def packages_of(name: str) -> tuple[str, ...]:
    """The optional packages that a model needs."""
    library = "timm" if name == "efficientnet_b0" else name.partition("/")[0]
    return (library,) if library in LIBRARIES else ()


def check_named(name: str, options: Mapping[str, Any], margin: int | None = None, folder: str | None = None) -> None:
    """Refuse an unknown model, or options that it does not take, before anything is built."""
    own, library = is_reference(name), name.partition("/")[0]
    if own:
        _check_options(name, load_function(name, folder, "model"), options)
    elif library not in LIBRARIES:
        try:
            check_model(name)
        except RecipeError as error:
            raise RecipeError(f"{error} Others are timm/NAME, torchvision/NAME and module:function.",
                              "model") from error
        for key in options:
            if key not in HEAD:
                raise RecipeError(f"{key}: the model {name} takes no options but {', '.join(HEAD)}."
                                  + did_you_mean(key, HEAD), "model_options")
        if options.get("cosine") and margin is not None:
            raise RecipeError(f"cosine = true with margin = {margin}: L-Softmax has its own output layer; leave one of "
                              "the two out.", "model_options")
    if margin is not None and (own or library in LIBRARIES):
        raise RecipeError(f"margin = {margin} needs a network of this package ({', '.join(MODELS)}), not {name}.",
                          "model")
    if not own and not isinstance(options.get("cosine", False), bool):
        raise RecipeError(f"cosine = {options['cosine']!r}: expected true or false.", "model_options")
    if options.get("head_init", "default") not in ("default", "kaiming_normal"):
        raise RecipeError(f"head_init = {options['head_init']!r}: expected 'default' or 'kaiming_normal'.",
                          "model_options")
    scale = options.get("head_scale", 1.0)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < math.inf:
        raise RecipeError(f"head_scale = {scale!r}: expected a positive number.", "model_options")


def build_named(name: str, classes: int, channels: int, margin: int | None = None,
                options: Mapping[str, Any] | None = None, folder: str | None = None) -> Classifier:
    """The network, freshly initialised from torch's random state."""
    options = dict(options or {})
    init, scale = options.pop("head_init", "default"), options.pop("head_scale", None)
    cosine = bool(options.pop("cosine", False)) if not is_reference(name) else False
    library, _, inner_name = name.partition("/")
    if is_reference(name):
        model = _split(_own(name, classes, channels, options, folder), classes, name)
    elif library == "timm":
        model = _timm(inner_name, classes, channels, options)
    elif library == "torchvision":
        model = _torchvision(inner_name, classes, channels, options)
    else:
        model = build_model(name, classes, channels, margin, cosine)
    if cosine and library in LIBRARIES:
        assert isinstance(model.head, nn.Linear)
        model.head = CosineLinear(model.head.in_features, classes)
    initialise_head(model.head, init, scale)
    return model


def initialise_head(head: nn.Module, init: Literal["default", "kaiming_normal"], scale: float | None) -> None:
    """Initialise the output layer: with Kaiming's normal, as the paper's code does (standard deviation
    sqrt(2 / fan_in)), or with a normal of ``scale`` times the standard deviation of torch's default,
    1 / sqrt(3 fan_in)."""
    if init == "default" and scale is None:
        return
    weight = getattr(head, "weight", None)
    if not isinstance(weight, nn.Parameter):
        raise RecipeError(f"head_init, head_scale: the output layer is a {type(head).__name__} without a weight.",
                          "model_options")
    if init == "kaiming_normal":
        nn.init.kaiming_normal_(weight)
        if scale is not None:
            weight.data.mul_(scale)
    elif scale is not None:
        nn.init.normal_(weight, std=scale / math.sqrt(3 * weight.shape[1]))


def _own(name: str, classes: int, channels: int, options: Mapping[str, Any], folder: str | None) -> nn.Module:
    build = load_function(name, folder, "model")
    takes = _parameters(build)
    arguments = {"classes": classes, "channels": channels}
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes.values()):
        arguments = {key: value for key, value in arguments.items() if key in takes}
    model = build(**arguments, **options)
    if not isinstance(model, nn.Module):
        raise RecipeError(f"{name} returned a {type(model).__name__}: expected an nn.Module.", "model")
    return model


def _parameters(build: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(build).parameters
    except (TypeError, ValueError):  # some builtins have none
        return {}


def _check_options(name: str, build: Any, options: Mapping[str, Any]) -> None:
    """Check the options of your own function by its signature; those of the head are not passed to it."""
    takes = _parameters(build)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes.values()):
        return
    for key in options:
        if key not in takes and key not in ("head_init", "head_scale"):
            raise RecipeError(f"{key}: {name} takes {', '.join(takes) or 'no arguments'}."
                              + did_you_mean(key, takes), "model_options")
    needed = [key for key, parameter in takes.items() if parameter.default is inspect.Parameter.empty
              and parameter.kind is not inspect.Parameter.VAR_POSITIONAL]
    for key in needed:
        if key not in ("classes", "channels", *options):
            raise RecipeError(f"{name} needs the argument {key!r}: give it in model_options. Only classes and channels "
                              "are passed automatically.", "model_options")


def _timm(name: str, classes: int, channels: int, options: Mapping[str, Any]) -> Classifier:
    timm = import_timm(f"timm/{name}")
    if not timm.is_model(name):
        names = timm.list_models()
        near = [other for other in names if name in other][:3]
        raise RecipeError(f"timm has no model {name!r}." + (did_you_mean(name, names)
                          or (f" Near: {', '.join(near)}." if near else "")), "model")
    with _explain_options(f"timm/{name}"):
        model = timm.create_model(name, pretrained=False, num_classes=classes, in_chans=channels, **options)
    if isinstance(getattr(model, "get_classifier", lambda: None)(), tuple):
        raise RecipeError(f"timm/{name} has several output layers, as networks for distillation do; expected one.",
                          "model")
    return _split(model, classes, f"timm/{name}")


def _torchvision(name: str, classes: int, channels: int, options: Mapping[str, Any]) -> Classifier:
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:
        raise RecipeError(f"torchvision/{name} needs {install_words('torchvision', error)}", "model") from error
    names = models.list_models(module=models)  # without detectors and the like, which have no logits
    if name not in names:
        raise RecipeError(f"torchvision has no model {name!r} for image classification." + did_you_mean(name, names),
                          "model")
    if channels != 3:
        raise RecipeError(f"torchvision/{name} takes images of 3 channels, and these have {channels}. timm's models "
                          "take any number.", "model")
    with _explain_options(f"torchvision/{name}"):
        model = models.get_model(name, weights=None, num_classes=classes, **options)
    if getattr(model, "aux_logits", False):
        raise RecipeError(f"torchvision/{name} has more than one output in training. Set model_options = "
                          "{ aux_logits = false }.", "model_options")
    return _split(model, classes, f"torchvision/{name}")


@contextmanager
def _explain_options(name: str) -> Iterator[None]:
    """Turn the TypeError of a library's model that does not take an option into a RecipeError."""
    try:
        yield
    except TypeError as error:
        raise RecipeError(f"{name} does not take these options: {error}.", "model_options") from error


def _split(model: nn.Module, classes: int, name: str) -> Classifier:
    """Take the output layer out of a network: its last linear layer, which must have as many outputs as classes."""
    if isinstance(model, Classifier):
        return model
    linear = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear or linear[-1][1].out_features != classes or not linear[-1][0]:
        raise RecipeError(f"{name}: its last linear layer was expected to be the output layer, with {classes} outputs; "
                          f"found {f'{linear[-1][1].out_features} outputs' if linear else 'none'}. Return an "
                          "encouraging.models.Classifier(body, head) instead.", "model")
    path, head = linear[-1]
    parent, _, last = path.rpartition(".")
    setattr(model.get_submodule(parent), last, nn.Identity())
    return Classifier(model, head)
