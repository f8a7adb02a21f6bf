"""``benchmarks/matrix_gpu.py`` without a GPU: what it plans, what it writes, and its processes."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

import matrix_fakes
from encouraging.commands import bench_matrix
from encouraging.commands.bench_cases import Case, matrix, random_cases

NARROW, WIDE = Case("plain", 64, 10, "float32"), Case("plain", 9, 85, "float32")
ODD = Case("smoothed", 9, 95, "float32")
ENDS, NO_MEMORY = Case("sum", 9, 20, "float32"), Case("none", 9, 30, "float32")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The program's names, with a GPU that is none."""
    matrix_fakes.patch(monkeypatch.setattr)
    for name in ("TORCHINDUCTOR_COMPILE_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    return runpy.run_path(str(matrix_fakes.SCRIPT))


def record_of(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text())


def run(script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["matrix_gpu.py", *map(str, words)])
    names = script["main"].__globals__
    monkeypatch.setitem(names, "matrix", lambda: [NARROW, ENDS, WIDE, NO_MEMORY])
    monkeypatch.setitem(names, "random_cases", lambda count, seed: [WIDE, ODD][:count])
    assert script["main"]() == 0


def test_all_records_are_written_as_bench_writes_them(script, tmp_path, monkeypatch, capsys) -> None:
    run(script, monkeypatch, tmp_path, "--seeds", "4,6", "--draws", 2, "--jobs", 2)
    whole, random = record_of(tmp_path, "matrix"), record_of(tmp_path, "random-6")
    assert (whole["drawn"], random["drawn"]) == ([], [{"count": 2, "seed": 6}])
    assert [case["case"] for case in whole["cases"]] == [str(case) for case in (WIDE, NARROW, ENDS, NO_MEMORY)]
    assert whole["worst_ratio"] == pytest.approx(85 / 90)
    assert [case["skipped"].split(":")[0] for case in whole["cases"][2:]] == ["BrokenProcessPool", "OutOfMemoryError"]
    assert [case["case"] for case in random["cases"]] == [str(ODD), str(WIDE)]
    assert list(random) == ["encouraging", "torch", "device", "triton", "date", "drawn", "cases", "worst_ratio",
                            "median_ratio"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "measuring 5 cases"
    assert [line.split(":")[0] for line in lines[2:7]] == [f"{i} of 5" for i in range(1, 6)]
    assert lines[7:11] == ["measured", "matrix.json: 2 cases, the worst 0.94, the median 0.53, 0 above 1.03, 2 skipped",
                           "random-4.json: 2 cases, the worst 1.06, the median 1.00, 1 above 1.03",
                           "random-6.json: 2 cases, the worst 1.06, the median 1.00, 1 above 1.03"]
    assert lines[11].startswith(" 1.06 9 x 95 float32 smoothed")
    run(script, monkeypatch, tmp_path, "--show")
    assert capsys.readouterr().out.splitlines() == lines[8:]


def test_cases_near_the_limit_and_skipped_ones_are_measured_again(script, tmp_path, monkeypatch) -> None:
    run(script, monkeypatch, tmp_path, "--seeds", "4", "--draws", 2, "--jobs", 2)
    run(script, monkeypatch, tmp_path / "b", "--above", 0.9, "--cases", tmp_path / "matrix.json",
        tmp_path / "random-4.json")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["again.json"]
    again = record_of(tmp_path / "b", "again")
    assert [case["case"] for case in again["cases"]] == [str(case) for case in (ODD, WIDE, ENDS, NO_MEMORY)]
    assert again["drawn"] == []


def test_a_cut_run_keeps_what_it_has_and_continues(script, tmp_path, monkeypatch, capsys) -> None:
    wrote = bench_matrix.write

    def cut(record: dict[str, Any], out: Path) -> None:
        wrote(record, out)
        if len(record["cases"]) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(bench_matrix, "write", cut)
        with pytest.raises(KeyboardInterrupt):
            run(script, patched, tmp_path, "--seeds", "", "--jobs", 2)
    assert len(record_of(tmp_path, "matrix")["cases"]) == 3
    assert "worst_ratio" not in record_of(tmp_path, "matrix")
    run(script, monkeypatch, tmp_path, "--show")
    assert "matrix.json: 2 cases, the worst 0.94, the median 0.53, 0 above 1.03, 1 skipped, not complete" \
        in capsys.readouterr().out
    run(script, monkeypatch, tmp_path, "--seeds", "", "--jobs", 2, "--continue")
    assert "measuring 2 cases" in capsys.readouterr().out
    assert len(record_of(tmp_path, "matrix")["cases"]) == 4
    assert "worst_ratio" in record_of(tmp_path, "matrix")


def test_without_flags_everything_is_planned(script, tmp_path, monkeypatch) -> None:
    plans = []
    monkeypatch.setattr(bench_matrix, "run_plans", lambda made, *_, **__: plans.extend(made))
    monkeypatch.setattr(sys, "argv", ["matrix_gpu.py", str(tmp_path)])
    script["main"]()
    assert [plan.out.name for plan in plans] == ["matrix.json", "random-1.json", "random-2.json", "random-3.json"]
    assert plans[0].cases == matrix()
    assert plans[2].cases == random_cases(40, 2)


def program(*words: object) -> subprocess.Popen[str]:
    paths = [str(matrix_fakes.SCRIPT.parents[1] / "src"), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen([sys.executable, matrix_fakes.__file__, *map(str, words)], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_as_a_program_with_processes_of_its_own(tmp_path) -> None:
    with program(tmp_path, "--no-matrix", "--seeds", 3, "--jobs", 2) as process:
        words, _ = process.communicate(timeout=200)
    assert process.returncode == 0, words
    lines = words.splitlines()
    assert lines.index("measuring 40 cases") < lines.index("measured")
    assert [line.split(" in ")[0] for line in lines if line.startswith("prepared")][-1] == "prepared 40 of 40"
    record = record_of(tmp_path, "random-3")
    expected = random_cases(40, 3)
    assert sorted(case["case"] for case in record["cases"]) == sorted(map(str, expected))
    assert sum("skipped" in case for case in record["cases"]) == sum(case.call in {"sum", "none"} for case in expected)


def children(process: int) -> set[int]:
    return {int(word) for path in Path(f"/proc/{process}/task").glob("*/children") for word in path.read_text().split()}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_workers_end_with_a_program_that_is_killed(tmp_path) -> None:
    with program(tmp_path, "--no-matrix", "--seeds", 3, "--jobs", 2) as process:
        while not process.stdout.readline().startswith("prepared"):
            assert process.poll() is None
        workers = children(process.pid)
        process.kill()
    assert workers
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
