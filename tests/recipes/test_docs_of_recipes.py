"""The page about recipes has every key, and what it shows can be read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from encouraging.engine import Train
from encouraging.recipes import check_recipe, names
from encouraging.recipes.schema import Arm, Recipe, Stage
from encouraging.tasks import Sampling
from encouraging.tasks.objective import DIVISORS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "recipes.md").read_text()
BASE = {"task": "image", "data": "digits", "model": "digits_mlp", "seeds": 1, "train": {"epochs": 1, "lr": 0.1},
        "arms": {"plain": {}}}
BLOCKS = [tomllib.loads(block) for name in ("recipes.md", "own-tasks.md")
          for block in re.findall(r"^```toml\n(.*?)^```", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)]


@pytest.mark.parametrize("model", [Train, Arm, Stage, Sampling, Recipe], ids=lambda model: model.__name__)
def test_the_page_has_every_key(model):
    words = set(re.findall(r"\w+", PAGE))
    assert [key for key in model.model_fields if key not in words and key != "name"] == []


def test_the_page_has_every_value_of_a_choice():
    for key, field in (*Train.model_fields.items(), *Sampling.model_fields.items()):
        for value in re.findall(r"'(\w+)'", str(field.annotation)) if "Literal" in str(field.annotation) else ():
            assert value in PAGE, f"{key} = {value}"
    assert all(f'"{name}"' in PAGE for name in DIVISORS)


@pytest.mark.parametrize("tree", BLOCKS, ids=range(len(BLOCKS)))
def test_what_the_pages_show_can_be_read(tree, monkeypatch):
    monkeypatch.chdir(DOCS.parent / "examples")
    check_recipe({**BASE, **tree}, "shown", "shown.toml")


def test_the_page_has_every_recipe_of_the_package():
    """A stand-in by the name of what it stands in for."""
    assert [name for name in names() if f"`{name.removesuffix('-quick')}`" not in PAGE] == []
