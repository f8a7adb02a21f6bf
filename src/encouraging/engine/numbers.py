"""The numbers that a task hands over: plain ones, whatever library they came from, under names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import RunError

ENGINE = ("stage", "epoch", "step", "lr", "loss", "grad_norm")  # what the engine itself writes of every epoch
TRAINING_LOSS = "loss"  # the only one of them that says how good an epoch was


def plain_numbers(numbers: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Numbers as JSON holds them; ``origin`` is the method that they came from.

    >>> import torch
    >>> plain_numbers({"bleu": torch.tensor(27.5), "length": 3}, "evaluate")
    {'bleu': 27.5, 'length': 3}
    """
    plain: dict[str, Any] = {}
    for name, value in numbers.items():
        if name in ENGINE:
            raise RunError(f"{origin}() of the task returns {name!r}, which is a name of the engine (as are "
                           f"{', '.join(ENGINE)}). Choose another one, for example 'test_{name}'.")
        try:
            plain[name] = value if isinstance(value, int | float) else float(value)
        except (TypeError, ValueError) as error:
            raise RunError(f"{origin}() of the task returns {name} as a {type(value).__name__}: expected a number."
                           ) from error
    return plain
