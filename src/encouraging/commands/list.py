"""``encouraging list``: the recipes, losses, datasets and models that there are."""

from __future__ import annotations

from rich.console import Console

from ..curves import catalogue
from ..models import MODELS
from ..recipes import names, read_recipe
from .inventory import dataset_table, new_table


def print_list(data: str | None = None, console: Console | None = None) -> None:
    """Recipes with the table of the paper they come from, losses, datasets and where they are, models."""
    console = console or Console()
    recipes = new_table("recipes", "name", "paper", "data", "model", "arms", "seeds")
    for name in names():
        recipe = read_recipe(name)
        recipes.add_row(name, recipe.paper or "-", recipe.data, recipe.model, ", ".join(recipe.arms),
                        str(len(recipe.seeds)))
    console.print(recipes)
    losses = new_table("losses", "curve", "parameters")
    for entry in sorted(catalogue().values()):
        defaults = (f"{parameter.name} = {parameter.default}" for parameter in entry.parameters)
        losses.add_row(entry.name, ", ".join(defaults) or "-")
    losses.add_row("mse (loss = \"mse\")", "link, bonus")
    console.print(losses)
    console.print(dataset_table(data)[0])
    models = new_table("models", "name", "what it is")
    for name, build in MODELS.items():
        models.add_row(name, (build.__doc__ or "").splitlines()[0])
    console.print(models)
