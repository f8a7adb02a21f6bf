"""The numbers that a task returns: converted to plain Python numbers, with names that the engine does not use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import RunError

ENGINE = ("stage", "epoch", "step", "lr", "loss", "grad_norm")  # what the engine itself writes per epoch
TRAINING_LOSS = "loss"  # the only one of them that measures how good an epoch was


def plain_numbers(numbers: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Numbers as JSON holds them; ``origin`` is the method that returned them.

    >>> import torch
    >>> plain_numbers({"bleu": torch.tensor(27.5), "length": 3}, "evaluate")
    {'bleu': 27.5, 'length': 3}
    """
    plain: dict[str, Any] = {}
    for name, value in numbers.items():
        if name in ENGINE:
            raise RunError(f"{origin}() of the task returns {name!r}, a name that the engine uses itself (its names: "
                           f"{', '.join(ENGINE)}). Choose another name, for example 'test_{name}'.")
        try:
            plain[name] = value if isinstance(value, int | float) else float(value)
        except (TypeError, ValueError) as error:
            raise RunError(f"{origin}() of the task returns {name} as a {type(value).__name__}: expected a number."
                           ) from error
    return plain
