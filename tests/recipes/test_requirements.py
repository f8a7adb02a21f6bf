"""What the arms of a recipe need before any of them is trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from encouraging.recipes import read_recipe
from encouraging.recipes.requirements import datasets_of

RECIPE = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
train = { epochs = 1, lr = 0.1 }
[arms.plain]
[arms.far]
options = { ood = ["mnist"] }
"""
DIGITS = ("digits", ("train", "test"))
MNIST = ("mnist", ("test",))


@pytest.mark.parametrize(("arms", "expected"), [
    ([], [DIGITS, MNIST]), (["plain", "far"], [DIGITS, MNIST]), (["plain"], [DIGITS]), (["far"], [DIGITS, MNIST]),
])
def test_datasets_are_those_of_the_chosen_arms(tmp_path: Path, arms: list[str], expected: list[tuple[str, ...]]):
    (tmp_path / "own.toml").write_text(RECIPE)
    assert datasets_of(read_recipe(str(tmp_path / "own.toml")), arms) == expected


def test_a_dataset_is_named_once_with_all_parts_that_any_arm_needs(tmp_path: Path):
    (tmp_path / "own.toml").write_text(RECIPE.replace('"mnist"', '"digits"'))
    assert datasets_of(read_recipe(str(tmp_path / "own.toml"))) == [DIGITS]
