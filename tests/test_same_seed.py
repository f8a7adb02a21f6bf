"""benchmarks/same_seed.py: how far two trainings with one seed lie apart."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from forked import run_python

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "benchmarks" / "same_seed.py"
RECORDS = REPOSITORY / "results" / "cifar100-lt"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return run_python(SCRIPT, *words)


def copies(folder: Path, shift: float) -> Path:
    """Two seeds of cross-entropy, whose best accuracies are 40 and 42, and each that much higher."""
    folder.mkdir()
    for seed, best in ((0, 40.0), (1, 42.0)):
        record = json.loads((RECORDS / f"ce-seed{seed}.json").read_text())
        record["final"]["best_accuracy"] = best + shift
        (folder / f"ce-seed{seed}.json").write_text(json.dumps(record))
    return folder


def test_both_deviations_are_those_of_one_run(tmp_path: Path) -> None:
    ran = run(copies(tmp_path / "first", 0), copies(tmp_path / "second", 1), "-o", tmp_path / "out.json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["same_seed"] == pytest.approx(0.5**0.5)
    assert found["other_seeds"] == pytest.approx(2**0.5)
    assert [(run["seed"], run["first"], run["second"]) for run in found["runs"]] == [(0, 40, 41), (1, 42, 43)]
    assert "0.71 with the same seed (2 pairs), 1.41 over the seeds" in ran.stdout


def test_runs_that_were_not_trained_twice_are_refused(tmp_path: Path) -> None:
    folder = copies(tmp_path / "first", 0)
    ran = run(folder, folder, "-o", tmp_path / "out.json")
    assert ran.returncode != 0
    assert "no run is in both folders" in ran.stderr
