"""Recipes: comparisons of the paper as files that one command trains, resumes and judges."""

from .read import check_recipe, kept_recipes, names, read_recipe
from .schema import Arm, Claim, Recipe

__all__ = ["Arm", "Claim", "Recipe", "check_recipe", "kept_recipes", "names", "read_recipe"]
