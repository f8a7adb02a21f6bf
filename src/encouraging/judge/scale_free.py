"""Which gains under attack remain once the attack does not depend on the scale of the logits."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..attack_names import DAMPED, METHODS
from .claims import CONTRADICTED, REPRODUCED, ClaimRow, Finals, paired
from .stats import FAILS, HOLDS, NO_DIFFERENCE

# Attacks that follow the gradient of cross-entropy, and the same attacks by losses that do not depend on the scale.
TWINS = {name: method.scale_free for method in METHODS.values()
         for name in (method.by("ce"), DAMPED.get(method.name)) if name is not None}
SURVIVES, GONE, OPEN, NO_CLAIM, NO_GAIN = ("survives", "does not survive", "undecided", "not judged",
                                           "not established")


@dataclass(frozen=True)
class Gain:
    """A claim that one arm beats another under an attack by cross-entropy, and the same under scale-free attacks.

    ``difference`` is the mean difference over seeds under the scale-free attack; NaN where it was not measured.
    ``judged`` is the recipe's own claim about that attack, where it has one.
    """

    row: ClaimRow
    attack: str
    size: str
    difference: float
    judged: ClaimRow | None

    @property
    def answer(self) -> str:
        """Whether the gain survives: only for an established gain, and with a claim about the scale-free attack."""
        if self.row.verdict not in (REPRODUCED, HOLDS):
            return NO_GAIN
        if self.judged is None or not self.judged.comparison.n:
            return NO_CLAIM
        verdict = self.judged.verdict
        return SURVIVES if verdict in (REPRODUCED, HOLDS) else (
            GONE if verdict in (CONTRADICTED, FAILS, NO_DIFFERENCE) else OPEN)


def gains_under_attack(rows: Sequence[ClaimRow], finals: Finals) -> list[Gain]:
    """The claims about attacks by cross-entropy that were measured, where scale-free attacks were measured too."""
    by_claim = {(row.claim.metric, row.claim.arm, row.claim.beats): row for row in rows}
    gains = []
    for row in rows:
        kind, attack, size = (*row.claim.metric.split(".", 2), "", "")[:3]
        if kind != "attacks" or attack not in TWINS or row.claim.beats is None or not row.comparison.n:
            continue
        metric = f"attacks.{TWINS[attack]}.{size}"
        pairs = paired(row.claim.model_copy(update={"metric": metric}), finals, row.pairs.seeds)
        judged = by_claim.get((metric, row.claim.arm, row.claim.beats))
        if pairs.seeds or judged is not None:
            sign = 1 if row.claim.direction == "higher" else -1
            difference = (sign * statistics.fmean(a - b for a, b in zip(pairs.ours, pairs.theirs, strict=True))
                          if pairs.seeds else math.nan)
            gains.append(Gain(row, attack, size, difference, judged))
    return gains
