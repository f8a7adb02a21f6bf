"""``list`` and ``doctor`` say what is true of this package, in names that can be copied."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest
from rich.console import Console

import encouraging
from encouraging import curves
from encouraging.commands import doctor
from encouraging.commands.doctor import OPTIONAL, print_doctor
from encouraging.commands.list import print_list
from encouraging.data import DATASETS
from encouraging.models import MODELS
from encouraging.recipes import names, read_recipe

pytestmark = pytest.mark.hardening(13)


def listed(width: int) -> str:
    printed = io.StringIO()
    print_list(None, Console(file=printed, width=width))
    return printed.getvalue()


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_name_is_broken_at_any_width(width: int) -> None:
    words = set(listed(width).replace(",", " ").replace(";", " ").split())
    for name in names():
        recipe = read_recipe(name)
        assert {name, recipe.model, recipe.data, *recipe.arms} <= words, name
    assert {*curves.names(), *DATASETS, *MODELS} <= words


def test_lines_fit_80_columns() -> None:
    assert max(map(len, listed(80).splitlines())) <= 80


def imported() -> set[str]:
    """The parts of the names of all packages that the source imports, wherever in a file."""
    packages: set[str] = set()
    for path in Path(encouraging.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                packages |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                packages.add(node.module)
    return {part for package in packages for part in package.split(".")}


def test_doctor_names_only_packages_that_the_code_uses() -> None:
    assert set(OPTIONAL) <= imported()


def test_doctor_advises_only_what_can_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "has", lambda package: False)
    printed = io.StringIO()
    print_doctor(None, Console(file=printed, width=200))
    said = printed.getvalue()
    assert "encouraging-loss[" not in said  # no index has it
    for package in OPTIONAL:
        assert f"pip install {package} " in said
    for promise in ("ImageNet", "IWSLT", "COCO"):
        assert promise not in said
