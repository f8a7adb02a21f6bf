"""Recipes: comparisons of the paper as files that one command trains, resumes and judges.

Names are imported on first use, so that code that only judges numbers does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

_HOME = {
    name: home
    for home, names in {
        "claim": ("Claim",),
        "departures": ("Departures", "departures_of"),
        "read": ("check_recipe", "kept_recipes", "names", "read_recipe"),
        "runs": ("read_runs",),
        "schema": ("Arm", "Recipe"),
    }.items()
    for name in names
}

if TYPE_CHECKING:
    from .claim import Claim as Claim
    from .departures import Departures as Departures
    from .departures import departures_of as departures_of
    from .read import check_recipe as check_recipe
    from .read import kept_recipes as kept_recipes
    from .read import names as names
    from .read import read_recipe as read_recipe
    from .runs import read_runs as read_runs
    from .schema import Arm as Arm
    from .schema import Recipe as Recipe
else:  # hidden from type checkers, which would take it as a promise that every attribute exists

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        return value



__all__ = ["Arm", "Claim", "Departures", "Recipe", "check_recipe", "departures_of", "kept_recipes", "names",
           "read_recipe", "read_runs"]
