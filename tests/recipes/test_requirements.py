"""What the arms of a recipe need before any of them is trained."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from encouraging.errors import RecipeError
from encouraging.recipes import read_recipe
from encouraging.recipes.requirements import check_packages, datasets_of

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


@pytest.mark.parametrize(("name", "packages"), [
    ("digits", ()), ("cifar100-resnet50", ("torchvision",)), ("cifar100-efficientnet-b0", ("timm",)),
    ("proteins", ()), ("multi30k-de-en", ("tokenizers", "sacrebleu")), ("imagenet-resnet50", ("torchvision",)),
    ("imagenet-efficientnet-b0", ("torchvision", "timm")), ("bccd-retinanet", ("torchvision", "pycocotools")),
])
def test_missing_packages_are_named_in_one_error(name: str, packages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    for package in ("timm", "torchvision", "torch_geometric", "tokenizers", "sacrebleu", "pycocotools"):
        monkeypatch.setitem(sys.modules, package, None)  # its import fails
    recipe = read_recipe(name)
    if not packages:
        check_packages(recipe)
        return
    with pytest.raises(RecipeError) as caught:
        check_packages(recipe)
    assert sorted(str(caught.value).splitlines()) == sorted(
        f"{name} needs the package {package}: pip install {package}." for package in packages)


def test_a_package_that_is_installed_and_cannot_be_imported_is_not_blamed_on_torch(tmp_path: Path,
                                                                                   monkeypatch: pytest.MonkeyPatch):
    """A package that was built for another numpy raises a ValueError."""
    (tmp_path / "pycocotools.py").write_text("raise ValueError('numpy.dtype size changed')")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pycocotools"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RecipeError, match=r"needs the package pycocotools, and pycocotools .* cannot be imported "
                                          r"\(ValueError: numpy\.dtype size changed\)\. Install it again: pip install "
                                          r"--force-reinstall pycocotools\.$"):
        check_packages(read_recipe("bccd-retinanet"))


def test_packages_are_those_of_the_chosen_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "sounds.py").write_text(TASK)
    (tmp_path / "own.toml").write_text(RECIPE.replace('"image"', '"sounds:Sounds"').replace(
        '["mnist"] }', '[] }\n').replace("ood", "codec"))
    recipe = read_recipe(str(tmp_path / "own.toml"))
    check_packages(recipe, ["plain"])
    with pytest.raises(RecipeError, match="own needs the package nocodec: pip install nocodec"):
        check_packages(recipe)


TASK = """
from encouraging.engine import Needs
from encouraging.tasks import BaseTask

class Sounds(BaseTask):
    @classmethod
    def check(cls, spec):
        return Needs(packages=("nocodec",) if "codec" in spec.options else ())
"""
