"""The page about recipes has every key, and what it shows can be read."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from encouraging.cli import app
from encouraging.engine import Train
from encouraging.recipes import check_recipe, names, read_recipe
from encouraging.recipes.schema import Arm, Recipe, Stage
from encouraging.recipes.sweep import sweep_recipe
from encouraging.tasks import Sampling
from encouraging.tasks.objective import DIVISORS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "recipes.md").read_text()
BASE = {"task": "image", "data": "digits", "model": "digits_mlp", "seeds": 1, "train": {"epochs": 1, "lr": 0.1},
        "arms": {"plain": {}}}


def shown(language):
    """The blocks of all pages in this language, by page and number."""
    pages = (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))
    fences = re.compile(r"^```([^\n]*)\n(.*?)^``` *$", re.MULTILINE | re.DOTALL)
    return {f"{page.stem}-{number}": found[2] for page in pages
            for number, found in enumerate(fences.finditer(page.read_text())) if found[1] == language}


def commands(block):
    """Its lines that call the command, without comments; lines that end in a backslash go on."""
    lines = block.replace("\\\n", " ").splitlines()
    return [" ".join(found[1].split()) for line in lines
            if (found := re.search(r"(?:^|\| |-m )encouraging (\w.*)", line.partition(" #")[0]))]


BLOCKS = {name: tomllib.loads(block) for name, block in shown("toml").items()}
COMMANDS = sorted({line for block in shown("").values() for line in commands(block)})
COMMAND = get_command(app)


@pytest.mark.parametrize("model", [Train, Arm, Stage, Sampling, Recipe], ids=lambda model: model.__name__)
def test_the_page_has_every_key(model):
    words = set(re.findall(r"\w+", PAGE))
    assert [key for key in model.model_fields if key not in words and key != "name"] == []


def test_the_page_has_every_value_of_a_choice():
    for key, field in (*Train.model_fields.items(), *Sampling.model_fields.items()):
        for value in re.findall(r"'(\w+)'", str(field.annotation)) if "Literal" in str(field.annotation) else ():
            assert value in PAGE, f"{key} = {value}"
    assert all(f'"{name}"' in PAGE for name in DIVISORS)


def whole(tree):
    """A recipe of what a block shows; where it has claims alone, with the arms that they name."""
    named = {claim[key] for claim in tree.get("claims", ()) for key in ("arm", "beats") if key in claim}
    return {**BASE, **({"arms": {arm: {} for arm in sorted(named)}} if named else {}), **tree}


@pytest.mark.parametrize("block", BLOCKS)
def test_what_the_pages_show_can_be_read(block, monkeypatch, tmp_path):
    monkeypatch.chdir(DOCS.parent / "examples")
    if block.startswith("own-curves-"):  # its recipe takes the curves that the page writes
        (tmp_path / "mine.py").write_text("".join(text for name, text in shown("python").items()
                                                  if name.startswith("own-curves-")))
        monkeypatch.chdir(tmp_path)
    check_recipe(whole(BLOCKS[block]), "shown", "shown.toml")


@pytest.mark.parametrize("line", COMMANDS)
def test_the_commands_of_the_pages_can_be_called(line, tmp_path, monkeypatch):
    """Nothing is run: options, recipes, arms and settings are what they say."""
    monkeypatch.chdir(tmp_path)
    for weights in re.findall(r"=(\S+\.pth)", line):
        Path(weights).touch()
    words = shlex.split(line.partition(" <")[0])
    command = COMMAND.commands[words[0]]
    how = command.make_context(words[0], words[1:]).params
    if words[0] != "run" or how["recipe"].endswith(".toml"):
        return
    recipe = read_recipe(how["recipe"], how["set_"] or ())
    assert set(how["arm"] or ()) <= recipe.arms.keys()
    if how["sweep"]:
        sweep_recipe(recipe, how["sweep"], how["arm"] or ())


def test_the_page_has_every_recipe_of_the_package():
    """A stand-in by the name of what it stands in for."""
    assert [name for name in names() if f"`{name.removesuffix('-quick')}`" not in PAGE] == []
