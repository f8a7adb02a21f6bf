"""What a number of ``final.json`` is called and how it is shown. Without torch, for those who only judge numbers."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """A number that a task measures: its path in ``final.json``, and how it is shown.

    ``digits`` are those worth printing, ``low`` and ``high`` the ends of its range. The primary metric is the one that
    chooses the best epoch, unless the recipe names another, and the one that is shown first. ``shown`` metrics stand in
    the table of arms, with the sentence ``about`` them above it; ``log`` ones are drawn on a logarithmic axis.
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
