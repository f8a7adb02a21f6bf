"""A network for translation by name: the paper's Transformer, or your own function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from ..errors import RecipeError, did_you_mean
from ..plugins import is_reference, load_function
from .transformer import Transformer, check_sizes

TRANSLATION_MODELS: dict[str, Callable[..., nn.Module]] = {"transformer": Transformer}


def check_translation_model(name: str, options: Mapping[str, Any], folder: str | None = None) -> None:
    """Refuse an unknown model, or options that it does not take, before anything is built."""
    if is_reference(name):
        load_function(name, folder, "model")
        return
    if name not in TRANSLATION_MODELS:
        raise RecipeError(f"no network for translation is called {name!r}; expected "
                          f"{', '.join(TRANSLATION_MODELS)}, or module:function."
                          + did_you_mean(name, TRANSLATION_MODELS), "model")
    takes = list(inspect.signature(TRANSLATION_MODELS[name]).parameters)[2:]
    for key in options:
        if key not in takes:
            raise RecipeError(f"{key}: the model {name} takes {', '.join(takes)}." + did_you_mean(key, takes),
                              "model_options")
    if name == "transformer":
        check_sizes(**options)


def build_translation_model(name: str, source_size: int, target_size: int, options: Mapping[str, Any] | None = None,
                            folder: str | None = None) -> nn.Module:
    """The network, freshly initialised from torch's random state.

    Your own function is called with ``source_size``, ``target_size`` and the options. It returns a module that is
    called with sentences and beginnings of translations, and returns features and the weight of the output layer; it
    has the methods ``begin`` and ``advance`` of :class:`~encouraging.models.beam.Searched`.
    """
    options = dict(options or {})
    check_translation_model(name, options, folder)
    if not is_reference(name):
        return TRANSLATION_MODELS[name](source_size, target_size, **options)
    model = load_function(name, folder, "model")(source_size=source_size, target_size=target_size, **options)
    if not isinstance(model, nn.Module) or not all(hasattr(model, method) for method in ("begin", "advance")):
        raise RecipeError(f"{name} returned a {type(model).__name__}: expected an nn.Module with begin and advance, by "
                          "which beam search asks for the next piece.", "model")
    return model
