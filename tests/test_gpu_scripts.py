"""``benchmarks/*_gpu.sh`` without a GPU: what they would train, and what they do where NVIDIA's service fails."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from encouraging.engine import sweep
from encouraging.engine.records import read_records
from encouraging.recipes import read_recipe
from encouraging.recipes.grid import jobs_of

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RECORDS = BENCHMARKS.with_name("results")
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

# It says what grid_gpu.py is called with. The GPU works unless the service was started and not stopped again.
PYTHON = """#!/usr/bin/env bash
for word in "$@"; do
    case $word in
    */grid_gpu.py) echo "grid: ${*:2}" ;;
    *'torch.zeros(1, device="cuda")'*) [ ! -f "$SERVICE" ] || exit 1 ;;
    esac
done
"""
SERVICE = """#!/usr/bin/env bash
if [ "${1:-}" = -d ]; then touch "$SERVICE"; else read -r word && [ "$word" = quit ] && rm "$SERVICE"; fi
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The variables under which a script finds the programs above."""
    for name, text in (("python", PYTHON), ("nvidia-cuda-mps-control", SERVICE)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    programs = tmp_path / "bin"
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": str(programs / "python"),
            "SERVICE": str(tmp_path / "service")}


def run(script: str, machine: dict[str, str], *words: str) -> tuple[list[str], str]:
    """What the grid was called with, and what was said about it."""
    done = subprocess.run(["bash", BENCHMARKS / script, *words], env=machine, capture_output=True, text=True,
                          timeout=60, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("grid: ")]
    return line.split()[1:], done.stderr


def planned(words: list[str]) -> dict[str, dict[str, int]]:
    """How many seeds of which arms of which recipes."""
    plan: dict[str, dict[str, int]] = {}
    for word in words:
        if word.count(":") == 2:
            recipe, seeds, arms = word.split(":")
            for arm in arms.split(","):
                assert arm in read_recipe(recipe).arms
                plan.setdefault(recipe, {})[arm] = int(seeds)
    return plan


def test_translation_trains_what_its_claims_need(machine, tmp_path):
    words, said = run("translation_gpu.sh", machine, str(tmp_path), str(tmp_path / "out"), "540", "9", "cuda",
                      "--set", "x")
    assert planned(words) == {
        "multi30k-de-en": {"ce_ls": 4, "el_05_ls": 4, "el_1_ls": 4, "el_1_ls_matched": 4, "ce": 2, "el_05": 2,
                           "el_075_ls": 3},
        "multi30k-fr-en": {"ce_ls": 2, "el_05_ls": 2}}
    assert words[-2:] == ["--set", "x"]
    assert 500 < int(words[words.index("--seconds") + 1]) <= 540
    assert "the runs take turns" in said


def test_detection_trains_focal_and_both_halted_forms_with_three_seeds(machine, tmp_path):
    words, _ = run("detection_gpu.sh", machine, str(tmp_path), str(tmp_path / "out"), "540")
    assert planned(words) == {"bccd-retinanet": {"focal": 3, "halted_logit": 3, "halted": 3}}
    assert 500 < int(words[words.index("--seconds") + 1]) <= 540


@pytest.mark.parametrize("script", ["translation_gpu.sh", "detection_gpu.sh", "cifar_gpu.sh", "longtail_gpu.sh",
                                    "graphs_gpu.sh", "robust_gpu.sh"])
def test_a_service_that_does_not_serve_is_stopped_again(machine, tmp_path, script):
    """Else no run could use the GPU."""
    words = {"cifar_gpu.sh": ["cifar100", tmp_path, tmp_path / "out"],
             "robust_gpu.sh": ["--data", tmp_path, "--out", tmp_path / "out", "--only", "ood", "--python",
                               machine["PYTHON"]]}.get(script, [tmp_path, tmp_path / "out"])
    done = subprocess.run(["bash", BENCHMARKS / script, *words], env=machine, capture_output=True, text=True,
                          timeout=60, check=True)
    assert "grid: " in done.stdout
    assert "the runs take turns" in done.stderr
    assert not Path(machine["SERVICE"]).exists()


def test_runs_with_a_record_are_left_out_unless_another_run_needs_their_weights(tmp_path, monkeypatch):
    """The second stage of cifar100-lt starts from the first one's weights, which no record has."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    unrecorded = importlib.import_module("grid_gpu").unrecorded
    ood = jobs_of(read_recipe("mnist-ood", ["seeds=6"]), str(tmp_path))
    kept = [(record.arm, record.seed) for record in read_records(RECORDS / "mnist-ood")]
    left = unrecorded(ood, RECORDS)
    assert 0 < len(kept) == len(ood) - len(left)
    assert not {(job.arm, job.seed) for job in left} & set(kept)
    tail = jobs_of(read_recipe("cifar100-lt", ["seeds=7"]), str(tmp_path), arms=["ce", "crt"])
    assert {(job.arm, job.seed) for job in unrecorded(tail, RECORDS)} >= {("ce", 6), ("crt", 6)}
    one = tmp_path / "records"
    one.mkdir()
    shutil.copy(RECORDS / "cifar100-lt" / "ce-seed0.json", one)
    assert [(job.arm, job.seed) for job in unrecorded(tail, one)][:2] == [("ce", 0), ("crt", 0)]
    assert ("ce", 0) not in {(job.arm, job.seed) for job in unrecorded([job for job in tail if job.arm == "ce"], one)}


@pytest.mark.parametrize(("word", "words"), [
    ("cifar10-resnet50:1:el_75", "Did you mean 'el_075'?"),
    ("cifar10-resnet51:1:ce", "Did you mean 'cifar10-resnet50'?"),
    ("cifar10-resnet50:0:ce", "expected a number of seeds"),
    ("cifar10-resnet50", "expected RECIPE:SEEDS[:ARM,...]")])
def test_runs_that_cannot_be_are_refused_in_a_line(tmp_path, monkeypatch, capsys, word, words):
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr("sys.argv", ["grid_gpu.py", str(tmp_path / "out"), word, "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module("grid_gpu").main()
    assert words in capsys.readouterr().err


def test_lean_disks_keep_the_checkpoints_from_which_an_arm_of_any_recipe_starts(tmp_path, monkeypatch):
    """imagenet-ood starts from runs of imagenet-resnet50, the second stages of cifar100-lt from its first ones."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    grid = importlib.import_module("grid_gpu")
    kept = grid.starting_points(map(read_recipe, ("imagenet-ood", "cifar100-lt")))
    display = grid.Printed(3, True, kept)
    left = {}
    for name in ("imagenet-resnet50", "cifar100-lt", "mnist-ood"):
        recipe = read_recipe(name)
        arm = next(iter(recipe.arms))
        (job,) = jobs_of(recipe, str(tmp_path), arms=[arm])[:1]
        checkpoint = job.folder / "checkpoint-000000001.json"
        checkpoint.parent.mkdir(parents=True)
        checkpoint.touch()
        display(sweep.Event(job, "done", {}))
        left[name] = checkpoint.exists()
    assert left == {"imagenet-resnet50": True, "cifar100-lt": True, "mnist-ood": False}
