"""Lines below a table of claims that explain verdicts."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import RecipeError, did_you_mean
from ..judge.claims import FAILED, NOT_MEASURED, ClaimRow, Finals, number_at
from ..judge.stats import UNDECIDED
from ..plugins import is_reference
from ..report.numbers import listed, plural
from ..report.sections.claim_words import SKEWED

if TYPE_CHECKING:
    from ..judge.metric_book import MetricBook
    from ..recipes import Recipe


def claim_words(row: ClaimRow) -> str:
    """A claim as the terminal shows it: the path of its metric last."""
    claim = row.claim
    words = f"{claim.arm} beats {claim.beats}: {claim.metric}" if claim.beats is not None else claim.sentence()
    return words + (" (lower is better)" if claim.better == "lower" else "")


def in_common(rows: Sequence[ClaimRow]) -> str:
    """What three or more arms are claimed to beat, and on which metric, if it is the same for all of them."""
    sides = {(row.claim.beats, row.claim.metric, row.claim.better) for row in rows}
    if len(rows) < 3 or len(sides) > 1 or rows[0].claim.beats is None:
        return ""
    ((beats, metric, better),) = sides
    return f"{beats} on {metric}" + (" (lower is better)" if better == "lower" else "")


def notes(rows: Sequence[ClaimRow]) -> Iterator[str]:
    """What a reader should know about these verdicts."""
    few = [row for row in rows if row.verdict == UNDECIDED and 0 < row.comparison.n < 3]
    if few:
        others = any(row.comparison.n >= 3 for row in rows)
        claims = f" for {'; '.join(map(claim_words, few))}" if others else ""
        yield f"fewer than three seeds decide nothing, whatever the interval: train more{claims}"
    for row in rows:
        comparison = row.comparison
        if comparison.skewed:
            yield f"{claim_words(row)}: {SKEWED}"
        elif comparison.n and not math.isfinite(comparison.mean):
            yield f"{claim_words(row)}: a number is NaN or infinite, so there is no interval"
        elif comparison.n >= 3 and math.isnan(comparison.low):
            yield f"{claim_words(row)}: all differences are equal, so there is no interval"


def awaits_attack(row: ClaimRow) -> bool:
    """Whether a claim is about numbers under attack that no seed has on both sides."""
    return row.verdict == NOT_MEASURED and is_about_attacks(row)


def is_about_attacks(row: ClaimRow) -> bool:
    """Whether a claim is about numbers that ``encouraging attack`` measures after the training."""
    return any(path.startswith("attacks.") for path in row.claim.metrics)


def attack_words(recipe: Recipe, rows: Sequence[ClaimRow], finals: Finals, folder: Path | None) -> str:
    """How many claims wait for an attack, with which command they are measured, and which arms that needs first."""
    from .attack_plan import attack_command  # brings torch, without which `encouraging compare` prints these lines

    command = attack_command(recipe, folder or Path("runs") / recipe.name)
    untrained = dict.fromkeys(arm for row in rows for arm in row.claim.arms
                              if all(FAILED in final for final in finals.get(arm, {}).values()))
    single = len(rows) == 1
    words = (f"{plural(len(rows), 'claim')} {'waits' if single else 'wait'} for an attack: "
             f"measure {'it' if single else 'them'} with `{command}`")
    also_needed = f"; {'it also needs' if single else 'they also need'} finished runs of {listed(list(untrained))}"
    return words + (also_needed if untrained else "")


def missing_numbers(recipe: Recipe, finals: Finals) -> Iterator[str]:
    """Metrics of claims that no finished run has, with the nearest one that they have. Attacks come after training."""
    ended = [final for seeds in finals.values() for final in seeds.values()]
    for path in dict.fromkeys(path for claim in recipe.claims for path in claim.metrics):
        if ended and not path.startswith("attacks.") and all(number_at(final, path) is None for final in ended):
            known_paths = {name for final in ended for name in _paths(final)}
            yield (f"a claim is about {path!r}, a number that no run has in its final.json."
                   f"{did_you_mean(path, sorted(known_paths))}")


def unknown_metrics(recipe: Recipe, book: MetricBook) -> Iterator[str]:
    """Metrics of claims that look like a misspelt declared one, reported before hours of training. Other metrics may be
    among the final numbers, which a task need not declare; paths with dots are of this kind.

    Raises:
        RecipeError: no task of this package has such a number, because one of its words is no word of a metric.
    """
    declared = [name for path in book.metrics for name in (path, f"best_{path}")]
    for path in dict.fromkeys(path for claim in recipe.claims for path in claim.metrics):
        near = difflib.get_close_matches(path, declared, n=1, cutoff=0.85)
        if near and path not in declared and "." not in path:
            words = f"a claim is about {path!r}, which the task does not declare. Did you mean {near[0]!r}?"
            known_words = {word for name in declared for word in name.split("_")}
            if not is_reference(recipe.task) and not known_words.issuperset(path.split("_")):
                raise RecipeError(f"{recipe.name}: {words}", "claims")
            yield words


def check_directions(recipe: Recipe, book: MetricBook) -> None:
    """Refuse claims that leave ``better`` out, which means higher, where it would judge them the wrong way round, or
    where nothing says which way is right. A claim that states a direction keeps it.

    Raises:
        RecipeError: names the first such claim.
    """
    for claim in recipe.claims:
        if claim.constant is None and "better" not in claim.model_fields_set:
            for path in claim.metrics:
                better = book.direction(path)
                if better is None:
                    raise RecipeError(f"{recipe.name}: a claim on {path!r}: the task does not say whether it is better "
                                      "when higher or lower. Add better = \"higher\" or better = \"lower\" to the "
                                      f"claim.{did_you_mean(path, book.metrics)}", "claims")
                if better != claim.better:
                    raise RecipeError(f"{recipe.name}: a claim on {path!r} would be judged the wrong way round: "
                                      f"{path!r} is better when {better}. Add better = \"{better}\" to the claim.",
                                      "claims")


def _paths(final: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in final.items():
        if isinstance(value, Mapping):
            yield from _paths(value, f"{before}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{before}{key}"
