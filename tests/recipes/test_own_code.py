"""A user's own file that changes between the runs of one comparison is noticed; nothing else is."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from encouraging.commands.run import run_recipe
from encouraging.engine import RunDir
from encouraging.recipes import read_recipe
from encouraging.recipes.own_code import code_digests

RECIPE = """
task = "image"
data = "digits"
model = "own_network.py:network"
seeds = 1
train = { epochs = 1, lr = 0.1, batch_size = 64, max_steps = 2 }
arms.ce = {}
arms.mine = { curve = "own_curve:curve" }
"""

NETWORK = """
from torch import nn

def network(classes, channels):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, classes))
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Train the recipe; returns what was printed, on one line."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "own.toml").write_text(RECIPE)
    (folder / "own_network.py").write_text(NETWORK)
    (folder / "own_curve.py").write_text("from encouraging.curves import normal\ncurve = normal()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def train(*overrides: str, code: int = 0) -> str:
        printed = io.StringIO()
        assert run_recipe("recipes/own.toml", overrides=overrides, jobs=1, console=Console(file=printed)) == code
        return " ".join(printed.getvalue().split())
    yield train
    for name in ("own_network", "own_curve"):
        sys.modules.pop(name, None)


def test_a_file_that_changed_after_some_runs_is_named_with_them(run: Callable[..., str], tmp_path: Path) -> None:
    assert "was changed" not in run()
    assert "was changed" not in run("seeds=2")
    network = tmp_path / "recipes" / "own_network.py"
    network.write_text(NETWORK + "\n")
    said = run("seeds=3")
    assert "own_network.py was changed after ce seed 0 and 3 more of these runs were started." in said
    assert "or move runs/own away" in said.replace(str(tmp_path) + "/", "")
    assert "own_curve" not in said
    assert "after ce seed 0 and 3 more" in run("seeds=3")  # those of the third seed have the new file
    network.write_text(NETWORK)
    assert "after ce seed 2 and 1 more" in run("seeds=3")
    shutil.rmtree(tmp_path / "runs")
    assert "was changed" not in run()


def test_a_curve_concerns_its_arm_alone(run: Callable[..., str], tmp_path: Path) -> None:
    run()
    (tmp_path / "recipes" / "own_curve.py").write_text("from encouraging.curves import focal\ncurve = focal()\n")
    assert "own_curve.py was changed after mine seed 0 was started." in run()


def test_a_run_that_trained_nothing_takes_the_file_that_works(run: Callable[..., str], tmp_path: Path) -> None:
    network = tmp_path / "recipes" / "own_network.py"
    network.write_text(NETWORK.replace("nn.Linear", "nn.Linea"))
    run(code=1)
    sys.modules.pop("own_network")
    network.write_text(NETWORK)
    assert "was changed" not in run()
    assert "was changed" not in run("seeds=2")


def test_runs_of_a_version_that_did_not_record_it_are_as_they_were(run: Callable[..., str], tmp_path: Path) -> None:
    run()
    folder = tmp_path / "runs" / "own"
    for path in folder.glob("*/seed0/config.json"):
        path.write_text(path.read_text().replace('"code"', '"code_of_another_name"'))
    (tmp_path / "recipes" / "own_network.py").write_text(NETWORK + "\n")
    assert "was changed" not in run("seeds=2")


def test_installed_modules_and_names_of_the_package_are_no_files_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(RECIPE.replace("own_network.py:network", "digits_mlp")
                    .replace("own_curve:curve", "encouraging.curves:normal"))
    assert code_digests(read_recipe(str(path)), "mine") == {}
    assert code_digests(read_recipe("digits"), "ce") == {}


def test_the_digest_is_no_setting(run: Callable[..., str], tmp_path: Path) -> None:
    run()
    config = RunDir(tmp_path / "runs" / "own" / "mine" / "seed0").read_config()
    assert set(config["code"]) == {"own_network.py", "own_curve.py"}
    assert "code" not in config["asked"]
