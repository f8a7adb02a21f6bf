"""``benchmarks/cifar_gpu.sh``: the runs that it asks for, recorded by a program in Python's place."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from encouraging.recipes import read_recipe

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "cifar_gpu.sh"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
PARTS = {"cifar100": 8 * 5 + 4 * 3, "cifar10": 5 * 3 + 2 * 3 + 6 * 3, "resnet50": 2 * 5, "full": 2}
PARTS["quick"] = PARTS["cifar100"] + PARTS["cifar10"] + PARTS["resnet50"]


def command(tmp_path: Path, *words: str) -> tuple[int, list[str]]:
    program = tmp_path / "python"
    program.write_text(f'#!/bin/bash\necho "$@" > {tmp_path}/command\n')
    program.chmod(0o755)
    code = subprocess.run(["bash", SCRIPT, *words], env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHON": str(program)},
                          capture_output=True, check=False).returncode
    return code, (tmp_path / "command").read_text().split() if code == 0 else []


def runs_of(words: list[str]) -> set[tuple[str, str, int]]:
    """Recipe, arm and seed of every run that the grid is asked for."""
    runs = set()
    for name, seeds, *arms in (word.split(":") for word in words if ":" in word):
        recipe = read_recipe(name, [f"seeds={seeds}"])
        chosen = arms[0].split(",") if arms else list(recipe.arms)
        assert set(chosen) <= set(recipe.arms)
        runs |= {(name, arm, seed) for arm in chosen for seed in recipe.seeds}
    return runs


@pytest.mark.parametrize("part", PARTS)
def test_every_run_that_is_asked_for_exists(tmp_path: Path, part: str) -> None:
    code, words = command(tmp_path, part, "data", "out", "560", "5")
    assert code == 0
    assert words[:2] == [str(SCRIPT.with_name("grid_gpu.py")), "out"]
    assert 500 < int(words[words.index("--seconds") + 1]) <= 560
    assert words[words.index("--jobs") + 1] == "5"
    assert len(runs_of(words)) == PARTS[part]


def test_what_has_a_record_is_not_trained_again(tmp_path: Path) -> None:
    _, words = command(tmp_path, "resnet50", "data", "out", "560", "", "results")
    assert words[words.index("--recorded") + 1] == "results"
    assert words[words.index("--jobs") + 1] == "3"


@pytest.mark.parametrize(("part", "runs"), [
    ("cifar10-resnet50:1:el_075", {("cifar10-resnet50", "el_075", 0)}),
    ("cifar10-resnet50:[1,4]:ce", {("cifar10-resnet50", "ce", 1), ("cifar10-resnet50", "ce", 4)}),
    ("cifar10-resnet50:1:ce cifar100-resnet50-quick:[2]:el_1", {("cifar10-resnet50", "ce", 0),
                                                                ("cifar100-resnet50-quick", "el_1", 2)})])
def test_recipes_arms_and_seeds_can_be_chosen(tmp_path: Path, part: str, runs: set[tuple[str, str, int]]) -> None:
    """A training of the full recipe takes a quarter of an hour: a machine may be had for one of them only."""
    code, words = command(tmp_path, part, "data", "out", "560", "", "results")
    assert code == 0
    assert words[words.index("--jobs") + 1] == "1"
    assert words[words.index("--recorded") + 1] == "results"
    assert runs_of(words) == runs


@pytest.mark.parametrize(("jobs", "shares"), [("1", False), ("2", True)])
def test_only_runs_side_by_side_need_the_service_that_shares_a_gpu(tmp_path: Path, jobs: str, shares: bool) -> None:
    """Where the service does not work, finding that out takes two minutes of every call."""
    service = tmp_path / "nvidia-cuda-mps-control"
    service.write_text(f"#!/bin/bash\ntouch {tmp_path}/started\n")
    service.chmod(0o755)
    code, _ = command(tmp_path, "full", "data", "out", "560", jobs)
    assert code == 0
    assert (tmp_path / "started").exists() == shares


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    assert command(tmp_path, "cifar1000", "data", "out") == (2, [])
