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
from encouraging.commands.import_checks import import_failures
from encouraging.commands.list import print_list
from encouraging.data import DATASETS
from encouraging.models import MODELS
from encouraging.recipes import names, read_recipe


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


def test_a_text_that_is_split_later_has_both_parts_in_its_file_or_none(tmp_path: Path) -> None:
    def row(name: str) -> list[str]:
        printed = io.StringIO()
        print_list(str(tmp_path), Console(file=printed, width=200))
        (line,) = (line for line in printed.getvalue().splitlines() if line.startswith(f"│ {name} "))
        return [cell.strip() for cell in line.strip("│").split("│")]

    assert row("tinyshakespeare") == ["tinyshakespeare", "missing", "missing"]
    (file,) = DATASETS["tinyshakespeare"].train
    (tmp_path / file.path).parent.mkdir()
    (tmp_path / file.path).write_bytes(bytes(file.size or 0))
    assert row("tinyshakespeare") == ["tinyshakespeare", "tinyshakespeare", "tinyshakespeare"]
    assert row("digits") == ["digits", "in scikit-learn", "in scikit-learn"]


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


def said_by_doctor(monkeypatch: pytest.MonkeyPatch, packages: list[str]) -> str:
    monkeypatch.setattr(doctor, "OPTIONAL", dict.fromkeys(packages, "a purpose"))
    monkeypatch.setattr(doctor, "has", lambda package: package != "absent_toy")
    printed = io.StringIO()
    print_doctor(None, Console(file=printed, width=200))
    return printed.getvalue()


def test_doctor_imports_what_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package that was built for another torch is installed and cannot be used."""
    (tmp_path / "sound_toy.py").write_text("print('a package may print')")
    (tmp_path / "later_toy.py").write_text("")
    (tmp_path / "broken_toy.py").write_text("raise RuntimeError('first line\\noperator [toy]::nms does not exist')")
    (tmp_path / "dying_toy.py").write_text("import os; os._exit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = said_by_doctor(monkeypatch, ["sound_toy", "absent_toy", "broken_toy", "dying_toy", "later_toy"])
    lines = [line.replace("│", " ").strip() for line in said.splitlines()]
    rows = {line.split()[0]: line for line in lines if line}
    assert rows["sound_toy"].split()[1:] == rows["later_toy"].split()[1:] == ["present"]
    assert "none" in rows["absent_toy"]
    assert "installed, but does not import: RuntimeError: operator [toy]::nms does not exist" in rows["broken_toy"]
    assert "installed, but does not import: the process ended with exit code 3" in rows["dying_toy"]
    assert "pip install --force-reinstall broken_toy" in said
    assert "pip install sound_toy" not in said


def test_doctor_says_how_to_get_a_torchvision_for_this_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in ("timm", "torchvision"):
        (tmp_path / f"{package}.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    said = said_by_doctor(monkeypatch, ["timm", "torchvision"])
    assert said.count("does not import: RuntimeError: operator torchvision::nms does not exist") == 2
    assert said.count("pip install --force-reinstall torch==") == 1  # one command mends both
    assert "torch and torchvision from one index: both CPU or both CUDA builds" in said


def test_a_package_that_does_not_return_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "waiting_toy.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert list(import_failures(["waiting_toy", "json"], limit=2)) == [("waiting_toy", "no answer after 2 s"),
                                                                      ("json", "")]
