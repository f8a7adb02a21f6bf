"""The arguments of loss modules: those that are refused, and those that a repr shows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor, nn

from ..errors import SignatureError, did_you_mean


def keywords(module: type[nn.Module]) -> list[str]:
    """The arguments that a module takes by keyword alone."""
    return [parameter.name for parameter in inspect.signature(module).parameters.values()
            if parameter.kind == parameter.KEYWORD_ONLY]


def defaults_of(function: Callable[..., object]) -> dict[str, Any]:
    """The arguments of a module or a function that have defaults."""
    return {parameter.name: parameter.default for parameter in inspect.signature(function).parameters.values()
            if parameter.default is not parameter.empty}


def changed(module: nn.Module, defaults: Mapping[str, Any], given: Mapping[str, Any] = MappingProxyType({})
            ) -> list[str]:
    """What the repr of a module says of its arguments: those that differ from their defaults. They are attributes of
    the module or in ``given``."""
    values = {name: given[name] if name in given else getattr(module, name, default)
              for name, default in defaults.items()}
    return [f"{name}=({len(value)} classes)" if isinstance(value, Tensor) and value.ndim == 1 else
            f"{name}=({'x'.join(map(str, value.shape))} numbers)" if isinstance(value, Tensor) and value.ndim else
            f"{name}={value!r}"
            for name, value in values.items() if isinstance(value, Tensor) or value != defaults[name]]


def refuse_unknown(module: nn.Module, unknown: Iterable[str], passed_on: Iterable[str] = (),
                   hints: Mapping[str, str] = MappingProxyType({})) -> None:
    """Refuse arguments that a module does not have; ``passed_on`` are those that it has without naming them, and
    ``hints`` what to use instead of some."""
    for word in sorted(unknown):
        allowed = list(dict.fromkeys([*keywords(type(module)), *passed_on]))
        raise SignatureError(f"{type(module).__name__} has no argument {word!r}; it takes {', '.join(allowed)}."
                             + hints.get(word, did_you_mean(word, allowed)))
