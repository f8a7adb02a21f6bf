"""A sample of whole rows of logits, on which a temperature is fitted and judged."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..curves import Curve
from ._calibration import divided, fit_temperature, nll, reliability, temperature_bounds
from ._posterior import posterior_logits
from ._readings import as_floats, read


class Sample:
    """A random sample of whole rows: those with the smallest random numbers, so that samples of parts can be merged
    into a sample of the whole."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []  # random number, logits, label
        self.held = 0
        self.below = math.inf  # rows with a larger random number cannot be in the sample

    def add(self, chance: Tensor, logits: Tensor, target: Tensor) -> None:
        chosen = (chance < self.below).nonzero()[:, 0]
        if len(chosen) > self.size:
            chosen = chance.topk(self.size, largest=False).indices
        if not len(chosen):
            return
        self.parts.append((chance[chosen], as_floats(logits.index_select(0, chosen.to(logits.device))).cpu(),
                           target[chosen.to(target.device)].to(torch.int64).cpu()))
        self.held += len(chosen)
        if self.held >= 2 * self.size:  # not at every call: whole rows are copied
            self.thin()

    def thin(self) -> tuple[Tensor, Tensor, Tensor]:
        """Drop the surplus and return the sample, sorted by random number: so the order of arrival does not matter."""
        chance, logits, label = (torch.cat(column) for column in zip(*self.parts, strict=True))
        keep = chance.topk(min(self.size, len(chance)), largest=False).indices
        self.parts = [(chance[keep], logits[keep], label[keep])]
        self.held = len(keep)
        if self.held == self.size:
            self.below = float(chance[keep[-1]])
        return self.parts[0]

    def take(self, other: Sample) -> None:
        for part in other.parts:
            self.add(*part)

    def read_through(self, curve: Curve, bins: int) -> dict[str, float | str]:
        """What it changes that probabilities are read through the loss, on the half that temperatures are judged on."""
        _, logits, label = self.thin()
        logits, label = logits[len(label) // 2 :], label[len(label) // 2 :]
        before, after = (read(values, label) for values in (logits, posterior_logits(logits, curve)))
        return {"curve": repr(curve), "ece_before": reliability(before.confidence, before.correct, bins).ece,
                "ece_after": reliability(after.confidence, after.correct, bins).ece,
                "nll_before": nll(before), "nll_after": nll(after)}

    def temperature(self, bins: int) -> dict[str, float | str] | None:
        """The temperature fitted on one half of the sample, and its effect on the other half."""
        if self.held < 2:
            return None
        _, logits, label = self.thin()
        half = len(label) // 2
        value = fit_temperature(logits[:half], label[:half])
        low, high = temperature_bounds(logits[:half])
        before, after = (read(scaled, label[half:]) for scaled in (logits[half:], divided(logits[half:], value)))
        bound = "lowest" if value < 1.01 * low else "highest" if value > 0.99 * high else ""
        return {"value": value, "bound": bound, "fitted_on": half, "judged_on": len(label) - half,
                "ece_before": reliability(before.confidence, before.correct, bins).ece,
                "ece_after": reliability(after.confidence, after.correct, bins).ece,
                "nll_before": nll(before), "nll_after": nll(after)}
