"""The name of a number in ``final.json`` and how it is shown. Does not import torch, as judging needs only numbers."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

PERCENT: dict[str, Any] = {"unit": "%", "low": 0, "high": 100}  # keywords of a metric
HIDDEN: dict[str, Any] = {"shown": False}


class Metric(NamedTuple):
    """A number that a task measures: its path in ``final.json``, and how it is shown.

    ``digits`` is the number of decimals to print, ``low`` and ``high`` are the ends of its range. The primary metric
    is shown first and chooses the best epoch, unless the recipe names another one. Metrics with ``shown`` are in the
    table of arms, with the sentence ``about`` above it; those with ``log`` are drawn on a logarithmic axis.
    """

    path: str
    words: str
    unit: str = ""
    digits: int = 2
    better: Literal["higher", "lower"] = "higher"
    primary: bool = False
    low: float = -math.inf
    high: float = math.inf
    shown: bool = True
    log: bool = False
    about: str = ""
