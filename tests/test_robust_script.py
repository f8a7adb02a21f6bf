"""``benchmarks/robust_gpu.sh``: the commands that it runs, recorded by a program in Python's place."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "robust_gpu.sh"
GRID = SCRIPT.with_name("grid_gpu.py")
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def start(tmp_path: Path, *words: str, does: str = "true") -> subprocess.Popen[str]:
    """The script with a program that writes its words down, and then does something."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/bash\necho "$@" >> {tmp_path}/commands\n'
                       f'[[ "$*" != *grid_gpu* ]] || {{ mkdir -p {tmp_path}/runs/${{3%%:*}}; '
                       f'touch {tmp_path}/runs/${{3%%:*}}/final.json; }}\n{does}\n')
    program.chmod(0o755)
    where = ["--python", program, "--out", tmp_path / "runs", "--data", "/data"]
    return subprocess.Popen(["bash", SCRIPT, *where, *words], text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def run(tmp_path: Path, *words: str, does: str = "true") -> tuple[int, str, list[str]]:
    """Exit code, output, and the commands."""
    process = start(tmp_path, *words, does=does)
    said, _ = process.communicate(timeout=60)
    log = tmp_path / "commands"
    text = re.sub(r"--seconds \d+", "--seconds LEFT", log.read_text()) if log.exists() else ""
    return process.returncode, said, text.replace(str(GRID), "grid").replace(str(tmp_path), "").splitlines()


def test_everything_is_trained_attacked_and_collected(tmp_path: Path) -> None:
    code, said, commands = run(tmp_path, "--results", "results")
    assert code == 0, said
    how = "--jobs 8 --threads 1 --device auto --data /data"
    trained = "--data /data --device auto --jobs 8 --seconds LEFT --lean"
    folder = "/runs/mnist-adversarial-training"
    assert commands == [
        f"grid /runs mnist-attack:8 {trained}",
        f"-m encouraging attack /runs/mnist-attack {how}",
        "-m encouraging collect /runs/mnist-attack -o results",
        f"grid /runs mnist-adversarial-training:5 {trained}",
        f"-m encouraging attack {folder}/fgsm_ce {folder}/fgsm_el {how} --eps-l2 0 --attack fgsm --attack fgsm_margin "
        "--attack fgsm_dlr",
        f"-m encouraging attack {folder}/pgd_ce {folder}/pgd_el {how} --eps-l2 0 --attack pgd",
        f"-m encouraging attack {folder}/pgd_ce {folder}/pgd_el {how} --eps-l2 0 --eps 0,0.1,0.2,0.3 "
        "--attack pgd_margin --attack pgd_dlr",
        f"-m encouraging attack {folder}/pgd_l2_ce {folder}/pgd_l2_el {how} --eps 0 --attack pgd_l2_damped",
        f"-m encouraging attack {folder}/pgd_l2_ce {folder}/pgd_l2_el {how} --eps-l2 0,0.3,1,3 --eps 0 --attack pgd_l2 "
        "--attack pgd_l2_margin --attack pgd_l2_dlr",
        f"-m encouraging collect {folder} -o results",
        f"grid /runs mnist-autoattack:3 {trained}",
        f"-m encouraging attack /runs/mnist-autoattack {how} --examples 1000 --autoattack",
        "-m encouraging collect /runs/mnist-autoattack -o results",
    ]
    assert "train mnist-attack, 8 seeds" in (tmp_path / "runs/timings.txt").read_text()


def test_sizes_can_be_chosen_and_steps_left_out(tmp_path: Path) -> None:
    code, said, commands = run(tmp_path, "--only", "autoattack", "--judged", "5", "--seeds", "1", "--jobs", "2",
                               "--device", "cpu", "--steps", "3", "--eps", "0,0.3", "--set", "data=digits")
    assert code == 0, said
    assert len(commands) == 3
    assert commands[0].startswith("grid /runs mnist-autoattack:1 --data /data --device cpu --jobs 2")
    assert commands[0].endswith("--lean --set train.max_steps=3 --set data=digits")
    assert commands[1].endswith("--data /data --eps 0,0.3 --examples 5 --autoattack")


@pytest.mark.parametrize(("step", "recipe", "ends"), [
    ("ood", "mnist-ood", []),
    ("large-margin", "mnist-large-margin-attack", ["--attack fgsm_dlr", "--attack pgd_dlr"]),
    ("cifar", "cifar10-attack", ["--attack pgd_dlr", "--eps 8/255 --examples 500 --attack autoattack"]),
])
def test_the_other_steps(tmp_path: Path, step: str, recipe: str, ends: list[str]) -> None:
    code, said, commands = run(tmp_path, "--only", step)
    assert code == 0, said
    assert f" {recipe}:" in commands[0]
    assert len(commands) == 2 + len(ends)
    for command, end in zip(commands[1:-1], ends, strict=True):
        assert command.endswith(end)


def test_a_failure_is_told_at_the_end_and_an_unknown_word_at_once(tmp_path: Path) -> None:
    code, said, commands = run(tmp_path, "--only", "training", does='[[ "$*" != *attack*pgd_l2* ]]')
    assert code == 1
    assert "something failed" in said
    assert len(commands) == 7  # all that there is to do, and what there is is collected
    assert "collect" in commands[-1]
    for words, message in ((["--seed", "3"], "unknown option --seed"), (["--only", "odd"], "--only odd: expected"),
                           (["--jobs"], "--jobs needs a value")):
        code, said, _ = run(tmp_path, *words)
        assert code == 2
        assert message in said


def test_an_arm_without_a_finished_run_keeps_no_other_from_being_attacked(tmp_path: Path) -> None:
    folder = "/runs/mnist-adversarial-training"
    code, said, commands = run(tmp_path, "--only", "training",
                               does=f"mkdir -p {tmp_path}{folder}/pgd_ce && touch {tmp_path}{folder}/pgd_ce/final.json")
    assert code == 0, said
    attacked = [command.split(" --")[0].split()[3:] for command in commands if " attack " in command]
    both = [f"{folder}/{{}}_ce", f"{folder}/{{}}_el"]
    assert attacked == [[name.format("fgsm") for name in both], [f"{folder}/pgd_ce"], [f"{folder}/pgd_ce"],
                        *[[name.format("pgd_l2") for name in both]] * 2]


def test_when_the_time_is_over_it_stops_and_collects(tmp_path: Path) -> None:
    before = time.monotonic()
    code, said, commands = run(tmp_path, "--seconds", "1", does='[[ "$*" != *grid* ]] || exec sleep 30')
    assert code == 130, said
    assert "the same command continues" in said
    assert time.monotonic() - before < 25  # it was asked to sleep for 30
    assert [command.split()[0] for command in commands] == ["grid", "-m"]
    assert "collect /runs/mnist-attack" in commands[-1]


def test_a_signal_reaches_the_command_and_what_there_is_is_collected(tmp_path: Path) -> None:
    """The command writes a checkpoint before it ends, and the script waits for it."""
    process = start(tmp_path, "--only", "attack",
                    does=f'[[ "$*" != *grid* ]] || {{ trap "sleep 1; touch {tmp_path}/saved; exit 130" TERM; '
                         f'touch {tmp_path}/ready; while true; do sleep 0.1; done; }}')
    while not (tmp_path / "ready").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert (tmp_path / "saved").exists()
    assert "collect" in (tmp_path / "commands").read_text().splitlines()[-1]


def test_what_has_a_record_is_not_trained_again(tmp_path: Path) -> None:
    _, _, commands = run(tmp_path, "--only", "ood", "--recorded", "results")
    assert commands[0] == ("grid /runs mnist-ood:5 --data /data --device auto --jobs 8 --seconds LEFT --lean "
                           "--recorded results")
