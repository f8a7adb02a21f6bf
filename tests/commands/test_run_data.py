"""``encouraging run`` checks, fetches and plans for the data of all arms that it trains, and of no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from encouraging.commands import run
from encouraging.data import DATASETS
from task_laws import call

RECIPE = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
train = { epochs = 1, lr = 0.1 }
"""
PLAIN, FAR = "[arms.plain]\n", '[arms.far]\noptions = { ood = ["mnist"] }\n'


def words(tmp_path: Path, arms: str, *more: str) -> list[str]:
    (tmp_path / "own.toml").write_text(RECIPE + arms)
    return ["run", str(tmp_path / "own.toml"), "--out", str(tmp_path / "out"), "--data", str(tmp_path / "data"),
            "--device", "cpu", *more]


@pytest.mark.parametrize("arms", [PLAIN + FAR, FAR + PLAIN])
def test_what_a_later_arm_lacks_is_reported_before_the_first_is_trained(tmp_path: Path, arms: str):
    said = call(*words(tmp_path, arms), code=2)
    assert said.count("the test part of mnist is not in") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("without_figures")
def test_an_arm_that_is_not_trained_needs_nothing(tmp_path: Path):
    assert "1 run" in call(*words(tmp_path, FAR + PLAIN, "--arm", "plain"))


@pytest.mark.usefixtures("without_figures")
def test_the_data_of_all_arms_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fetched: list[str] = []
    monkeypatch.setattr(run, "download", lambda name, root: fetched.append(name))
    call(*words(tmp_path, PLAIN + FAR, "--download"), code=2)  # nothing was written
    assert fetched == ["mnist"]
    call(*words(tmp_path, PLAIN + FAR, "--download", "--arm", "plain"))
    assert fetched == ["mnist"]


def test_the_plan_names_the_data_of_the_chosen_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert "mnist is not in" in call(*words(tmp_path, PLAIN + FAR, "--dry-run"))
    assert "mnist" not in call(*words(tmp_path, FAR + PLAIN, "--dry-run", "--arm", "plain"))


def test_damaged_data_is_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fetched: list[str] = []
    monkeypatch.setattr(run, "download", lambda name, root: fetched.append(name))
    for file in DATASETS["mnist"].test:
        (tmp_path / "data" / file.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / file.path).write_bytes(b"half of it")
    call(*words(tmp_path, PLAIN + FAR, "--download", "--arm", "far"), code=1)  # nothing was written
    assert fetched == ["mnist"]
