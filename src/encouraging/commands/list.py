"""``encouraging list``: the recipes, losses, datasets and models that there are."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich.console import Console

from ..curves import catalogue
from ..models import MODELS
from ..models.graph_named import GRAPH_MODELS
from ..models.language_named import LANGUAGE_MODELS
from ..models.translation_named import TRANSLATION_MODELS
from ..recipes import names, read_recipe
from .inventory import dataset_table


def print_list(data: str | None = None, console: Console | None = None) -> None:
    """Recipes with the table of the paper they come from, losses, datasets and where they are, models."""
    console = console or Console()
    _print(console, "recipes", ((name, _recipe(name)) for name in names()))
    losses = [(entry.name, ", ".join(f"{parameter.name} = {parameter.default}" for parameter in entry.parameters))
              for entry in sorted(catalogue().values())]
    _print(console, "losses", [*losses, ('mse (loss = "mse")', "link, bonus")])
    console.print(dataset_table(data)[0])
    console.print()
    models = {**MODELS, **GRAPH_MODELS, **TRANSLATION_MODELS, **LANGUAGE_MODELS}
    _print(console, "models", ((name, (build.__doc__ or "").splitlines()[0]) for name, build in models.items()))


def _recipe(name: str) -> str:
    recipe = read_recipe(name)
    seeds = f"{len(recipe.seeds)} seeds" if len(recipe.seeds) > 1 else "1 seed"
    return "; ".join(filter(None, [recipe.paper, f"{recipe.model} on {recipe.data}", seeds,
                                   f"arms {', '.join(recipe.arms)}"]))


def _print(console: Console, title: str, entries: Iterable[tuple[str, str]]) -> None:
    """Names and descriptions; a description that does not fit goes below the name, so that names are never broken."""
    entries = list(entries)
    column = max(len(name) for name, _ in entries) + 2
    console.print(title, style="bold", markup=False)
    for name, words in entries:
        line = f"  {name:{column}}{words}".rstrip()
        if len(line) > console.width:
            below = textwrap.wrap(words, max(console.width - 6, 20), break_long_words=False, break_on_hyphens=False)
            line = "\n".join([f"  {name}", *(f"      {words_line}" for words_line in below)])
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()
