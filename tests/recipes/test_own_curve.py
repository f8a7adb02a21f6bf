"""A curve of the user's own in a recipe, from a file beside it."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import pytest
import torch
from rich.console import Console

from encouraging import curve_loss, curves
from encouraging.commands.run import run_recipe
from encouraging.data import Clock
from encouraging.engine.records import read_records
from encouraging.errors import RecipeError
from encouraging.recipes import kept_recipes, read_recipe

MINE = """
from dataclasses import dataclass
from typing import ClassVar

import torch
from encouraging import curves

capped = curves.custom(lambda gap: -torch.where(gap < 5, gap, 5 + 0.1 * (gap - 5)),
                       lambda gap: torch.where(gap < 5, 1.0, 0.1), "capped")
three = 3

@dataclass(frozen=True, repr=False)
class Tempered(curves.Curve):
    name: ClassVar[str] = "tempered"
    temperature: float = 1.0

    def value(self, gap):
        return self.temperature * torch.nn.functional.softplus(-gap / self.temperature)

    def pull(self, gap):
        return torch.sigmoid(-gap / self.temperature)

def loss(p):
    return -p.log()

def nothing():
    return None
"""
RECIPE = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
train = { epochs = 2, batch_size = 64, lr = 0.1 }
arms.ce = { curve = "cross_entropy" }
"""


@pytest.fixture
def write(tmp_path: Path):
    def write(*arms: str, name: str = "mine.toml") -> str:
        (tmp_path / "my_own_curves.py").write_text(MINE)
        (tmp_path / name).write_text(RECIPE + "\n".join(arms))
        return str(tmp_path / name)
    return write


def test_it_is_the_loss_of_its_arm(write):
    recipe = read_recipe(write('arms.mine = { curve = "my_own_curves.py:capped", bonus_from_epoch = 2 }'))
    (stage,) = recipe.stages_of("mine")
    before, after = (stage.objective.at(Clock(1, epoch)).curve for epoch in (1, 2))
    assert before == curves.cross_entropy()
    assert repr(after) == "custom('capped')"
    assert float(curve_loss(torch.tensor([[9.0, 0.0]]), torch.tensor([0]), after)) == pytest.approx(-5.4)


def test_other_keys_of_the_arm_are_its_parameters_and_can_change(write):
    recipe = read_recipe(write('arms.mine = { curve = "my_own_curves.py:Tempered", temperature = 2.0, '
                               'changes = [{ from_epoch = 2, temperature = 3.0 }] }'))
    (stage,) = recipe.stages_of("mine")
    assert [repr(stage.objective.at(Clock(1, epoch)).curve) for epoch in (1, 2)] == [
        "tempered(temperature=2.0)", "tempered(temperature=3.0)"]
    (objective,) = recipe.config("mine", 0)["objectives"]
    assert (objective["curve"], objective["temperature"]) == ("my_own_curves.py:Tempered", 2.0)


def test_a_recipe_travels_to_other_processes_without_the_curve(write):
    recipe = read_recipe(write('arms.mine = { curve = "my_own_curves.py:capped" }'))
    (stage,) = recipe.stages_of("mine")
    curve = stage.objective.at(Clock()).curve
    (again,) = pickle.loads(pickle.dumps(recipe)).stages_of("mine")
    assert again.objective.at(Clock()).curve == curve


@pytest.mark.parametrize(("name", "more", "words"), [
    ("my_own_curves.py:cappd", "", "Did you mean 'capped'?"),
    ("my_own_curves.py:three", "", "has the type int: expected a curve"),
    ("my_own_curves.py:loss", "", "with no parameters: missing a required argument: 'p'"),
    ("my_own_curves.py:nothing", "", "returned the type NoneType: expected a curve"),
    ("my_own_curves.py:capped", ", at = 5", "is a curve already, which takes no at"),
    ("my_own_curves.py:Tempered", ", heat = 2", "with heat: got an unexpected keyword argument 'heat'"),
    ("my_own_curves.py:Tempered", ", changes = [{ from_epoch = 2, heat = 2 }]", "unexpected keyword argument 'heat'"),
    ("no_such_file.py:capped", "", "there is no file no_such_file.py"),
])
def test_what_is_wrong_with_it_is_said_before_the_training(write, name, more, words):
    with pytest.raises(RecipeError) as error:
        read_recipe(write(f'arms.mine = {{ curve = "{name}"{more} }}'))
    assert words in str(error.value)
    assert "mine.toml: arms.mine.curve: " in str(error.value)


@pytest.mark.usefixtures("without_figures")
def test_it_is_trained_and_its_runs_are_read_without_its_file(write, tmp_path):
    path = write('arms.mine = { curve = "my_own_curves.py:capped" }',
                 '[[claims]]\nmetric = "accuracy"\narm = "mine"\nbeats = "ce"')
    said = io.StringIO()
    assert run_recipe(path, out=tmp_path / "runs", device="cpu", threads=1, jobs=2,
                      console=Console(file=said, width=200)) == 0, said.getvalue()
    assert "mine beats ce: accuracy" in said.getvalue()
    (tmp_path / "my_own_curves.py").unlink()
    records = read_records(tmp_path / "runs")
    assert kept_recipes(records)["mine"].arms["mine"].curve == "my_own_curves.py:capped"
    (diagnosis,) = (record.diagnosis for record in records if record.arm == "mine")
    assert "custom('capped')" in diagnosis["teaching"]["shares"]
