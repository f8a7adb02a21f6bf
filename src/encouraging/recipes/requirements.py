"""What the arms of a recipe need before any of them is trained."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from ..errors import RecipeError, install_words
from .schema import Recipe


def datasets_of(recipe: Recipe, arms: Sequence[str] = ()) -> list[tuple[str, tuple[str, ...]]]:
    """The datasets that these arms need, each once, with its parts; by default of all arms. Arms can differ in their
    options, and options can name datasets."""
    parts: dict[str, dict[str, None]] = {}
    for arm in arms or recipe.arms:
        for name, splits in recipe.needs(arm).datasets:
            parts.setdefault(name, {}).update(dict.fromkeys(splits))
    return [(name, tuple(splits)) for name, splits in parts.items()]


def check_packages(recipe: Recipe, arms: Sequence[str] = ()) -> None:
    """Refuse, once instead of once per run, what these arms import and cannot; by default all arms.

    The packages are imported, because one that is installed may still not work.

    Raises:
        RecipeError: names every such package and what to install.
    """
    lines = []
    for package in dict.fromkeys(name for arm in arms or recipe.arms for name in recipe.needs(arm).packages):
        try:
            import_module(package)
        except Exception as error:  # a package that is damaged, or built for another numpy or torch, raises any of them
            lines.append(f"{recipe.name} needs {install_words(package, error)}")
    if lines:
        raise RecipeError("\n".join(lines))
