"""``benchmarks/detection_gpu.sh``: it stops in time, continues, and leaves records with pictures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from box_toys import tiny_retinanet, write_voc
from encouraging.engine.records import read_records

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def run(data: Path, out: Path, seconds: int) -> subprocess.CompletedProcess[str]:
    words = [f"model={tiny_retinanet.__code__.co_filename}:tiny_retinanet", "train.epochs=2", "train.evaluate_every=2",
             "options.sizes=[48]", "options.test_size=48"]
    options = [part for word in words for part in ("--set", word)]
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run(["bash", ROOT / "benchmarks" / "detection_gpu.sh", data, out, str(seconds), "1", "cpu", "1",
                           "halted", *options], env=env, capture_output=True, text=True, timeout=250, check=False)


def test_it_stops_in_time_continues_and_leaves_records_with_pictures(tmp_path: Path) -> None:
    write_voc(tmp_path / "data" / "BCCD", {"train": 9, "val": 2, "test": 3})
    stopped = run(tmp_path / "data", tmp_path / "runs", 1)
    assert stopped.returncode == 130, stopped.stdout + stopped.stderr
    assert "1 runs are unfinished" in stopped.stdout
    done = run(tmp_path / "data", tmp_path / "runs", 1000)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "halted seed 0: ap " in done.stdout
    (record,) = read_records(tmp_path / "runs-records")
    assert record.final["epochs"] == 2
    assert len(record.diagnosis["boxes"]["images"]) == 3
