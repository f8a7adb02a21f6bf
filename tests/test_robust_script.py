"""``benchmarks/robust_gpu.sh``: the commands that it runs, recorded by a program in Python's place."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "robust_gpu.sh"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def run(tmp_path: Path, *words: str, fails: str = "nothing") -> tuple[int, str, list[str]]:
    """Exit code, output, and the commands."""
    program, log = tmp_path / "python", tmp_path / "commands"
    program.write_text(f'#!/bin/bash\\necho "$@" >> {log}\\n[[ "$*" != *{fails}* ]]\\n'.replace("\\n", "\n"))
    program.chmod(0o755)
    done = subprocess.run(["bash", SCRIPT, "--python", program, "--out", tmp_path / "runs", *words],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr, log.read_text().splitlines() if log.exists() else []


def test_everything_is_trained_attacked_and_collected(tmp_path: Path) -> None:
    code, said, commands = run(tmp_path, "--data", "/data", "--results", "results")
    assert code == 0, said
    out = tmp_path / "runs"
    assert commands == [
        f"-m encouraging run mnist-attack --seeds 8 --out {out} --jobs 8 --device auto --data /data",
        f"-m encouraging attack {out}/mnist-attack --jobs 8 --device auto --data /data",
        f"-m encouraging collect {out}/mnist-attack -o results",
        f"-m encouraging run mnist-adversarial-training --seeds 5 --out {out} --jobs 8 --device auto --data /data",
        f"-m encouraging attack {out}/mnist-adversarial-training --jobs 8 --device auto --data /data",
        f"-m encouraging collect {out}/mnist-adversarial-training -o results",
        f"-m encouraging run mnist-autoattack --seeds 3 --out {out} --jobs 8 --device auto --data /data",
        f"-m encouraging attack {out}/mnist-autoattack --jobs 8 --device auto --data /data "
        "--autoattack --examples 1000",
        f"-m encouraging collect {out}/mnist-autoattack -o results",
        f"-m encouraging report {out}/mnist-attack {out}/mnist-adversarial-training {out}/mnist-autoattack "
        f"-o {out}/report.html",
    ]
    assert "train mnist-attack, 8 seeds" in (out / "timings.txt").read_text()


def test_sizes_can_be_chosen_and_steps_left_out(tmp_path: Path) -> None:
    code, said, commands = run(tmp_path, "--only", "autoattack", "--judged", "5", "--judged-seeds", "1", "--jobs", "2",
                               "--device", "cpu", "--steps", "3", "--eps", "0,0.3", "--set", "data=digits")
    assert code == 0, said
    assert len(commands) == 4
    assert commands[0].endswith("--seeds 1 --out " + str(tmp_path / "runs") + " --jobs 2 --device cpu "
                                "--set train.max_steps=3 --set data=digits")
    assert commands[1].endswith("--eps 0,0.3 --autoattack --examples 5")


def test_a_failure_ends_it_and_an_unknown_word_too(tmp_path: Path) -> None:
    code, _, commands = run(tmp_path, fails="attack*--jobs")
    assert code != 0
    assert not any("collect" in command for command in commands)
    code, said, _ = run(tmp_path, "--seed", "3")
    assert code == 2
    assert "unknown option --seed" in said
