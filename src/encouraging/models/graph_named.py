"""A network for graphs by name: the paper's, one of torch-geometric's, or your own function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from ..errors import RecipeError, did_you_mean
from ..plugins import is_reference, load_function
from .classifier import Classifier
from .graph import GraphInput, max_and_mean, sagpool_gcn

GRAPH_MODELS: dict[str, Callable[..., Classifier]] = {"sagpool_gcn": sagpool_gcn}
LIBRARY = "torch_geometric"


class GeometricBody(nn.Module):
    """A stack of torch-geometric's layers, and the largest and mean features of every graph."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, graphs: GraphInput) -> Tensor:
        return max_and_mean(self.layers(graphs.x, graphs.edge_index), graphs.batch, graphs.sizes)


def graph_packages_of(name: str) -> tuple[str, ...]:
    """The optional packages that a model needs."""
    return (LIBRARY,) if name.partition("/")[0] == LIBRARY else ()


def check_graph_model(name: str, options: Mapping[str, Any], folder: str | None = None) -> None:
    """Refuse an unknown model, or options that it does not take, before anything is built."""
    if is_reference(name):
        _check_own(name, options, folder)
        return
    if name.startswith(f"{LIBRARY}/"):
        _geometric_class(name)
        takes = list(inspect.signature(_geometric).parameters)[3:]
    elif name in GRAPH_MODELS:
        takes = list(inspect.signature(GRAPH_MODELS[name]).parameters)[2:]
    else:
        raise RecipeError(f"no network for graphs is called {name!r}; expected {', '.join(GRAPH_MODELS)}, "
                          f"{LIBRARY}/NAME, or module:function." + did_you_mean(name, GRAPH_MODELS), "model")
    for key, value in options.items():
        if key not in takes:
            raise RecipeError(f"{key}: the model {name} takes {', '.join(takes)}." + did_you_mean(key, takes),
                              "model_options")
        _check_value(key, value)


def _check_value(key: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if key in ("hidden", "layers"):
        least = 2 if key == "hidden" else 1  # the output layer of sagpool_gcn takes half of the hidden features
        fits, words = number and isinstance(value, int) and value >= least, f"a whole number, {least} or more"
    elif key == "ratio":
        fits, words = number and 0 < value <= 1, "a number above 0, up to 1: the fraction of nodes that pooling keeps"
    else:
        fits, words = number and 0 <= value <= 1, "a number from 0 to 1"
    if not fits:
        raise RecipeError(f"{key} = {value!r}: expected {words}.", "model_options")


def _check_own(name: str, options: Mapping[str, Any], folder: str | None) -> None:
    """Check the options of your own function by its signature."""
    build = load_function(name, folder, "model")
    try:
        takes = inspect.signature(build).parameters
    except (TypeError, ValueError):  # some builtins have none
        return
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes.values()):
        return
    for key in ("classes", "features", *options):
        if key not in takes:
            raise RecipeError(f"{key}: {name} takes {', '.join(takes) or 'no arguments'}; expected classes, features "
                              "and the keys of model_options." + did_you_mean(key, takes), "model")


def build_graph_model(name: str, classes: int, features: int, options: Mapping[str, Any] | None = None,
                      folder: str | None = None) -> nn.Module:
    """The network, freshly initialised from torch's random state. It is called with a
    :class:`~encouraging.data.GraphBatch`, which has ``x``, ``edge_index`` and ``batch`` as torch-geometric's have."""
    options = dict(options or {})
    if is_reference(name):
        _check_own(name, options, folder)
        model = load_function(name, folder, "model")(classes=classes, features=features, **options)
        if not isinstance(model, nn.Module):
            raise RecipeError(f"{name} returned a {type(model).__name__}: expected an nn.Module.", "model")
        return model
    check_graph_model(name, options)
    if name.startswith(f"{LIBRARY}/"):
        return _geometric(name, classes, features, **options)
    return GRAPH_MODELS[name](classes, features, **options)


def _geometric(name: str, classes: int, features: int, hidden: int = 128, layers: int = 3,
               dropout: float = 0.5) -> Classifier:
    stack = _geometric_class(name)(features, hidden, num_layers=layers, dropout=dropout)
    return Classifier(GeometricBody(stack), nn.Linear(2 * hidden, classes))


def _geometric_class(name: str) -> Callable[..., nn.Module]:
    try:
        from torch_geometric.nn import models as library
    except (ImportError, RuntimeError) as error:
        raise RecipeError(f"{name} needs the package torch-geometric ({error}): pip install torch-geometric.",
                          "model") from error
    stacks = [kind for kind in ("GCN", "GraphSAGE", "GIN", "GAT", "EdgeCNN") if hasattr(library, kind)]
    wanted = name.partition("/")[2]
    if wanted not in stacks:
        raise RecipeError(f"{name!r}: expected one of {', '.join(f'{LIBRARY}/{kind}' for kind in stacks)}."
                          + did_you_mean(wanted, stacks), "model")
    stack: Callable[..., nn.Module] = getattr(library, wanted)
    return stack
