"""Sentences about out-of-distribution detection: by which score, which one was best, and what is worse than chance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from .numbers import listed, show
from .sections.out_of_distribution import SCORES

# Chosen before looking at the data: the paper's score. docs/diagnose.md compares it with the others.
RECOMMENDED = "min_energy"
WITHOUT_BONUS = "max_probability"  # recommended after training without a bonus


def score_words(score: str) -> str:
    """A score as the terminal and the page call it, in a sentence."""
    name = SCORES.get(score, score)
    return f"the {name}" if name[0].islower() else name


def headline(detection: Mapping[str, Any], score: str) -> str:
    """The score by which detection is reported."""
    return score if score in detection["scores"] else next(iter(detection["scores"]))


def best_words(detection: Mapping[str, Any], score: str) -> str:
    """Which score was best, or which ones at the digits shown, where the one that was chosen beforehand is not."""
    highest = show(max(rates["auroc"] for rates in detection["scores"].values()))
    best = [name for name, rates in detection["scores"].items() if show(rates["auroc"]) == highest]
    if score in best:
        return ""
    subject = "scores on these data are" if len(best) > 1 else "score on these data is"
    names = listed([score_words(name) for name in best])
    return f"The best {subject} {names}, {highest}%, which is known only afterwards."


def below_chance(detection: Mapping[str, Any], examples: int) -> Iterator[str]:
    """A sentence about the scores that rank out-of-distribution examples above test examples, by more than the noise of
    so few examples."""
    others = detection["examples"]
    noise = 100 * math.sqrt((examples + others + 1) / (12 * examples * others))  # of an AUROC, where nothing differs
    scores = [score for score, rates in detection["scores"].items() if rates["auroc"] < 50 - 2 * noise]
    if scores:
        yield (f"The AUROC of {listed([score_words(score) for score in scores])} is below 50%, worse than chance: the "
               "out-of-distribution examples look more certain than the test examples.")
