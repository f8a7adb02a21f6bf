"""A network for running text by name: a small GPT, or your own function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ..errors import RecipeError, did_you_mean
from ..plugins import is_reference, load_function
from .gpt import GPT, check_gpt

LANGUAGE_MODELS: dict[str, Callable[..., nn.Module]] = {"gpt": GPT}


def check_language_model(name: str, options: Mapping[str, Any], folder: str | None = None) -> None:
    """Refuse an unknown model, or options that it does not take, before anything is built."""
    if is_reference(name):
        load_function(name, folder, "model")
        return
    if name not in LANGUAGE_MODELS:
        raise RecipeError(f"no network for text is called {name!r}; expected {', '.join(LANGUAGE_MODELS)}, or "
                          "module:function." + did_you_mean(name, LANGUAGE_MODELS), "model")
    takes = list(inspect.signature(LANGUAGE_MODELS[name]).parameters)[2:]
    for key in options:
        if key not in takes:
            raise RecipeError(f"{key}: the model {name} takes {', '.join(takes)}." + did_you_mean(key, takes),
                              "model_options")
    check_gpt(**options)


def build_language_model(name: str, size: int, context: int, options: Mapping[str, Any] | None = None,
                         folder: str | None = None) -> nn.Module:
    """The network, freshly initialised from torch's random state.

    Your own function is called with ``size``, the number of tokens of the vocabulary, ``context`` and the options. It
    returns a module that is called with tokens (rows, positions), and returns features (rows, positions, width) and the
    weight of the output layer (size, width).
    """
    options = dict(options or {})
    check_language_model(name, options, folder)
    if not is_reference(name):
        return LANGUAGE_MODELS[name](size, context, **options)
    model = load_function(name, folder, "model")(size=size, context=context, **options)
    if not isinstance(model, nn.Module):
        raise RecipeError(f"{name} returned a {type(model).__name__}: expected an nn.Module.", "model")
    return model
