"""``benchmarks/imagenet_throughput.py`` makes its files and measures them, on a CPU too."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from forked import run_python

ROOT = Path(__file__).parents[1]


def call(*words: object) -> str:
    ended = run_python(ROOT / "benchmarks" / "imagenet_throughput.py", *words)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_files_are_made_loaded_and_trained_on(tmp_path: Path) -> None:
    assert "30 JPEGs of 50 x 40 pixels" in call("make", tmp_path / "files", "--images", 30, "--pixels", "50x40")
    said = call("train", tmp_path / "files", "--device", "cpu", "--model", "resnet20", "--model", "resnet32", "--size",
                32, "--batch", 4, "--workers", 1, "--seconds", 0.3, "--out", tmp_path / "rates.json")
    assert "of the slower of loader and network" in said
    numbers = json.loads((tmp_path / "rates.json").read_text())
    assert numbers["loader"]["1"] > 0
    assert numbers["models"].keys() == {"resnet20", "resnet32"}
    for rates in numbers["models"].values():
        assert 0 < rates["engine_over_slower"] == rates["engine"] / min(numbers["loader"]["1"], rates["bare"])
        spent = rates["milliseconds_per_update"]
        assert 0 <= spent["waiting for images"] <= spent["whole"] * 1.5
    assert numbers["milliseconds_per_image"]["all"] > numbers["milliseconds_per_image"]["read the file"]


def test_the_script_for_a_gpu_calls_what_there_is() -> None:
    script = (ROOT / "benchmarks" / "imagenet_gpu.sh").read_text()
    help_text = call("--help")
    for flag in {word for word in script.replace("nproc --all", "").split() if word.startswith("--") and word != "--"}:
        assert flag in help_text, flag
    subprocess.run(["bash", "-n", ROOT / "benchmarks" / "imagenet_gpu.sh"], check=True)
