"""What the arms of a recipe need before any of them is trained."""

from __future__ import annotations

from collections.abc import Sequence

from .schema import Recipe


def datasets_of(recipe: Recipe, arms: Sequence[str] = ()) -> list[tuple[str, tuple[str, ...]]]:
    """The datasets that these arms need, each once, with its parts; by default of all arms. Arms can differ in their
    options, and options can name datasets."""
    parts: dict[str, dict[str, None]] = {}
    for arm in arms or recipe.arms:
        for name, splits in recipe.needs(arm).datasets:
            parts.setdefault(name, {}).update(dict.fromkeys(splits))
    return [(name, tuple(splits)) for name, splits in parts.items()]
