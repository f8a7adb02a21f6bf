"""Differences between runs and the recipe of their name, which is the package's or the file that they were run from.
Runs that differ do not test the recipe's claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..engine.run_dir import ABSENT, differing
from ..errors import RecipeError
from .read import kept_recipes, names
from .runs import read_recipe_once
from .schema import Overrides

if TYPE_CHECKING:
    from ..engine.records import Record
    from .claim import Claim
    from .schema import Recipe


@dataclass(frozen=True)
class Departures:
    """Differences between runs and the package's recipe of their name, or between runs with ``--set`` and the file of
    their recipe.

    ``settings`` has key, value of the runs and value of the recipe. ``images`` has metrics of the paper's claims that
    were measured on fewer test images than the recipe has: the number of the runs, and that of the recipe. ``claims``
    is the number of claims of the recipe, and ``papers`` is how many of them are the paper's.
    """

    settings: tuple[tuple[str, Any, Any], ...] = ()
    images: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    claims: int = 0
    papers: int = 0

    def covers(self, claim: Claim) -> bool:
        """Whether the runs do not test this claim."""
        return bool(self.settings) or any(path in self.images for path in claim.metrics)

    def sentence(self, claim: Claim) -> str:
        """Why the runs do not test this claim; an empty string if they do."""
        return " ".join(self.sentences) if self.covers(claim) else ""

    @property
    def sentences(self) -> list[str]:
        """The differences in words, for readers of verdicts."""
        sentences = []
        whose = "the paper's" if self.papers else "the recipe's"
        count = self.papers or self.claims
        if self.settings:
            parts = [f"{key} = {_value(ours)} (recipe: {_value(recipes)})" for key, ours, recipes in self.settings]
            listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
            end = f": they do not test {whose} {'claim' if count == 1 else 'claims'}" if count else ""
            sentences.append(f"These runs differ from the recipe in {listed}{end}.")
        if self.images:
            fewest, expected = min(self.images.values())
            sentences.append(f"Attacks were measured on the first {fewest} test images, and the recipe's claims are "
                             f"about {expected}: they do not test the paper's claims under attack.")
        return sentences


def departures_of(name: str, records: Iterable[Record]) -> Departures:
    """The differences of a recipe's runs: from the package's recipe if it has one of this name, or else from the file
    that they were run from, as the runs have noted it.

    Arms that the recipe does not have, such as those of a sweep, are not compared.
    """
    own = [record for record in records if record.recipe == name]
    if name not in names():
        changed = [setting for record in own for setting in overridden(record)]
        return Departures(_each_once(changed), {}, *_counts(kept_recipes(own)[name])) if changed else Departures()
    recipe = read_recipe_once(name)
    changed = [(key, ours, recipes) for record in own if record.arm in recipe.arms
               for key, recipes, ours in differing(recipe.config(record.arm, record.seed), record.config)]
    return Departures(_each_once(changed), _images(recipe, own), *_counts(recipe))


def overridden(record: Record) -> tuple[tuple[str, Any, Any], ...]:
    """The settings that ``--set`` changed in a run of a recipe that does not come with the package: key, value of the
    run, and value of the file."""
    overrides = overrides_of(record)
    return overrides.settings.get(record.arm, ()) if overrides is not None else ()


def overrides_of(record: Record) -> Overrides | None:
    """What ``--set`` changed in a recipe that does not come with the package, as its run has stored it."""
    stored = (record.recipe_tree or {}).get("overrides")
    try:
        return None if stored is None else Overrides.model_validate(stored)
    except ValidationError as error:
        raise RecipeError(f"the overrides that a run of {record.recipe} has stored cannot be read: {error}") from error


def _each_once(settings: Iterable[tuple[str, Any, Any]]) -> tuple[tuple[str, Any, Any], ...]:
    """Settings without those that have the same key and value as an earlier one."""
    unique: dict[str, tuple[str, Any, Any]] = {}
    for key, ours, recipes in settings:
        unique.setdefault(f"{key} {ours!r}", (key, ours, recipes))
    return tuple(unique.values())


def _counts(recipe: Recipe) -> tuple[int, int]:
    """The number of a recipe's claims, and how many of them are the paper's."""
    return len(recipe.claims), 0 if recipe.stands_in else sum(claim.is_papers for claim in recipe.claims)


def _images(recipe: Recipe, records: Iterable[Record]) -> dict[str, tuple[int, int]]:
    """The metrics of the paper's claims under attack that were measured on too few images: the fewest, and the expected
    number."""
    claimed = {path for claim in recipe.claims if claim.is_papers and not recipe.stands_in for path in claim.metrics}
    too_few: dict[str, tuple[int, int]] = {}
    for record in records:
        results = record.attacks or {}
        expected = min((n for n in (results.get("test_images"), recipe.attack_images) if n), default=0)
        for name, entry in results.get("attacks", {}).items():
            for eps, count in image_counts_of(entry).items():
                path = f"attacks.{name}.{eps}"
                if path in claimed and count < min(expected, too_few.get(path, (expected, expected))[0]):
                    too_few[path] = count, expected
    return too_few


def image_counts_of(entry: Mapping[str, Any]) -> dict[str, int]:
    """The number of test images on which an attack was measured, by epsilon; empty if it was not recorded.

    >>> image_counts_of({"examples": 500, "examples_at": {"0": 2000, "0.1": 500}, "accuracy": {"0": 99.0, "0.1": 80.0}})
    {'0': 2000, '0.1': 500}
    """
    if "examples" not in entry:
        return {}
    by_eps = entry.get("examples_at") or {}
    return {eps: int(by_eps.get(eps, entry["examples"])) for eps in entry.get("accuracy", {})}


def _value(value: Any) -> str:
    if value is None or value == ABSENT:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
