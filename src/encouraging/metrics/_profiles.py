"""Energy profiles: the mean energies of all classes over the examples of one label."""

from __future__ import annotations

from typing import Any

from torch import Tensor

ALL_PROFILES = 32  # with more classes only one has an energy profile: the one chosen, else the first
LONGEST = 4096  # with more classes, lists with one number per class are left out


class Profiles:
    """The sums behind the profiles, which merge: of up to 32 classes all, of more the ``chosen`` one or else the first,
    and none above 4096."""

    def __init__(self, classes: int, chosen: int | None = None) -> None:
        self.labels = range(classes) if classes <= ALL_PROFILES else [chosen or 0] if classes <= LONGEST else []
        self.sums: dict[int, tuple[Tensor, Tensor, int]] = {}  # of finite logits, how many of them, examples

    def update(self, logits: Tensor, target: Tensor) -> None:
        for label in self.labels:
            rows = logits[target == label].double()
            if len(rows):
                finite = rows.isfinite()
                self._add(label, rows.masked_fill_(~finite, 0).sum(0).cpu(), finite.sum(0).cpu(), len(rows))

    def merge(self, other: Profiles) -> None:
        for label, sums in other.sums.items():
            self._add(label, *sums)

    def table(self) -> dict[str, dict[str, Any]]:
        """Mean energies per label. None for a class that was masked out in all examples of the label."""
        return {str(label): {"examples": examples, "energies": [-z / n if n else None for z, n in
                                                                zip(total.tolist(), finite.tolist(), strict=True)]}
                for label, (total, finite, examples) in sorted(self.sums.items())}

    def _add(self, label: int, total: Tensor, finite: Tensor, examples: int) -> None:
        if label in self.sums:
            before, finite_before, count = self.sums[label]
            total, finite, examples = before + total, finite_before + finite, count + examples
        self.sums[label] = (total, finite, examples)
