"""What runs have otherwise than the recipe of their name: the package's, or the file that they were run from. Such runs
do not test its claims: they answer a question of their own."""

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
    """Where runs differ from the recipe that comes with the package under their name, or from the file of the recipe
    that they were run from with ``--set``.

    ``settings`` has key, value here and value there. ``images`` has metrics of the paper's claims that were measured on
    fewer test images than the recipe's: the number of them, and the recipe's. ``claims`` and ``papers`` are how many
    claims the recipe has, and how many of them are the paper's.
    """

    settings: tuple[tuple[str, Any, Any], ...] = ()
    images: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    claims: int = 0
    papers: int = 0

    def covers(self, claim: Claim) -> bool:
        """Whether the runs do not test this claim."""
        return bool(self.settings) or any(path in self.images for path in claim.metrics)

    def sentence(self, claim: Claim) -> str:
        """Why the runs do not test this claim; nothing where they do."""
        return " ".join(self.sentences) if self.covers(claim) else ""

    @property
    def sentences(self) -> list[str]:
        """What a reader has to know before any verdict."""
        found = []
        whose = "the paper's" if self.papers else "the recipe's"
        count = self.papers or self.claims
        if self.settings:
            named = [f"{key} = {_value(here)} (recipe: {_value(there)})" for key, here, there in self.settings]
            words = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
            end = f": they do not test {whose} {'claim' if count == 1 else 'claims'}" if count else ""
            found.append(f"These runs differ from the recipe in {words}{end}.")
        if self.images:
            fewest, wanted = min(self.images.values())
            found.append(f"Attacks were measured on the first {fewest} test images, and the recipe's claims are about "
                         f"{wanted}: they do not test the paper's claims under attack.")
        return found


def departures_of(name: str, records: Iterable[Record]) -> Departures:
    """What the runs of a recipe have otherwise: those of the package's recipes than the package has it, and others than
    the file had it from which they were run, as they noted it.

    Arms that the recipe does not have, such as those of a sweep, have nothing to be compared with.
    """
    own = [record for record in records if record.recipe == name]
    if name not in names():
        changed = [setting for record in own for setting in overridden(record)]
        return Departures(_each_once(changed), {}, *_counts(kept_recipes(own)[name])) if changed else Departures()
    recipe = read_recipe_once(name)
    changed = [(key, here, there) for record in own if record.arm in recipe.arms
               for key, there, here in differing(recipe.config(record.arm, record.seed), record.config)]
    return Departures(_each_once(changed), _images(recipe, own), *_counts(recipe))


def overridden(record: Record) -> tuple[tuple[str, Any, Any], ...]:
    """The settings that ``--set`` changed in a run of a recipe that does not come with the package: key, value here and
    the file's value."""
    overrides = overrides_of(record)
    return overrides.settings.get(record.arm, ()) if overrides is not None else ()


def overrides_of(record: Record) -> Overrides | None:
    """What ``--set`` changed in a recipe that does not come with the package, as its run noted it."""
    noted = (record.recipe_tree or {}).get("overrides")
    try:
        return None if noted is None else Overrides.model_validate(noted)
    except ValidationError as error:
        raise RecipeError(f"the overrides that a run of {record.recipe} noted cannot be read: {error}") from error


def _each_once(settings: Iterable[tuple[str, Any, Any]]) -> tuple[tuple[str, Any, Any], ...]:
    """Settings without those that have the same key and value here as an earlier one."""
    found: dict[str, tuple[str, Any, Any]] = {}
    for key, here, there in settings:
        found.setdefault(f"{key} {here!r}", (key, here, there))
    return tuple(found.values())


def _counts(recipe: Recipe) -> tuple[int, int]:
    """How many claims a recipe has, and how many of them are the paper's."""
    return len(recipe.claims), 0 if recipe.stands_in else sum(claim.is_papers for claim in recipe.claims)


def _images(recipe: Recipe, records: Iterable[Record]) -> dict[str, tuple[int, int]]:
    """The paper's claims under attack that were measured on fewer images than they are about."""
    claimed = {path for claim in recipe.claims if claim.is_papers and not recipe.stands_in for path in claim.metrics}
    short: dict[str, tuple[int, int]] = {}
    for record in records:
        found = record.attacks or {}
        wanted = min((n for n in (found.get("test_images"), recipe.attack_images) if n), default=0)
        for name, entry in found.get("attacks", {}).items():
            for eps, count in image_counts_of(entry).items():
                path = f"attacks.{name}.{eps}"
                if path in claimed and count < min(wanted, short.get(path, (wanted, wanted))[0]):
                    short[path] = count, wanted
    return short


def image_counts_of(entry: Mapping[str, Any]) -> dict[str, int]:
    """On how many test images an attack was measured, by epsilon; nothing where it was not written down.

    >>> image_counts_of({"examples": 500, "examples_at": {"0": 2000, "0.1": 500}, "accuracy": {"0": 99.0, "0.1": 80.0}})
    {'0': 2000, '0.1': 500}
    """
    if "examples" not in entry:
        return {}
    at = entry.get("examples_at") or {}
    return {eps: int(at.get(eps, entry["examples"])) for eps in entry.get("accuracy", {})}


def _value(value: Any) -> str:
    if value is None or value == ABSENT:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
