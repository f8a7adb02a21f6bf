"""``benchmarks/kernels_gpu.sh`` without a GPU: its order, its limits, and what a cut leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "benchmarks" / "kernels_gpu.sh"
RECORD = ROOT / "results" / "bench" / "h200-matrix.json"
CASES = json.loads(RECORD.read_text())["cases"][:45]

# Stands for Python on a GPU: writes what a measurement writes, in no time. Comparing and the summary are the real ones.
FAKE = '''#!{python}
import json, os, sys, time
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(" ".join(words) + chr(10))
if "--show" in words or "--compare" in words:
    os.execv({python!r}, [{python!r}, *words])
if words[0].endswith("check_gpu_all.py"):
    print("ok   every_curve (0.1 s): fine")
    sys.exit(0)
if words[0].endswith("matrix_gpu.py"):
    names = [] if "--no-matrix" in words else ["matrix"]
    names += ["random-" + seed for seed in words[words.index("--seeds") + 1].split(",")]
    print("measuring some cases", flush=True)
    for name in names:
        out = os.path.join(words[1], name + ".json")
        record = json.load(open({record!r}))
        whole, record["cases"] = record["cases"][:{cases}], []
        record.pop("worst_ratio")
        for case in whole:
            record["cases"].append(case)
            open(out + ".new", "w").write(json.dumps(record))
            os.replace(out + ".new", out)
            time.sleep({pause})
        record["worst_ratio"] = max(case["ratio"] for case in record["cases"])
        open(out, "w").write(json.dumps(record))
    print("measured")
    time.sleep(0.5)  # as the end of its processes takes
    sys.exit(0)
out = words[words.index("--out") + 1]
if "--only" in words:
    record = json.load(open({bench!r}))
    if out.endswith("bench.json"):  # one case is slower than in the record, for a moment
        record["cases"][0]["results"]["ours, EL"]["milliseconds"] *= {slow}
    open(out, "w").write(json.dumps(record))
else:
    open(out, "w").write("{{}}")
print("measured")
'''


@pytest.fixture
def start(tmp_path: Path):
    def run(seconds: int, pause: float = 0.0, slow: float = 1.0) -> subprocess.Popen[str]:
        fake = tmp_path / "python"
        fake.write_text(FAKE.format(python=sys.executable, log=str(tmp_path / "log"), record=str(RECORD), pause=pause,
                                    slow=slow, bench=str(RECORD.with_name("h200.json")), cases=len(CASES)))
        fake.chmod(0o755)
        environment = {**os.environ, "PYTHON": str(fake), "SEED": "5", "NEEDS": "5",
                       "TRITON_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.Popen([SCRIPT, tmp_path / "out", str(seconds), "2"], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return run


def log_of(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def calls_of_matrix(folder: Path) -> list[str]:
    return [line for line in log_of(folder) if "matrix_gpu.py" in line and "--show" not in line]


def test_everything_is_measured_once(start, tmp_path: Path) -> None:
    first = start(100)
    words, _ = first.communicate()
    assert first.returncode == 0, words
    (call,) = calls_of_matrix(tmp_path)
    assert call.endswith("--continue --seeds 5,6,7 --draws 40 --jobs 2")
    assert {path.name for path in (tmp_path / "out").glob("[mr]*.json")} == {
        "matrix.json", "random-5.json", "random-6.json", "random-7.json"}
    checked = {line.split("--part ")[1] for line in log_of(tmp_path) if "check_gpu" in line}
    assert checked == {"1/2", "2/2"}
    shares = [line.rpartition(" ")[2] for line in log_of(tmp_path) if "ways_gpu.py" in line]
    assert sorted(shares[:-1]) == [f"{i}/8" for i in range(1, 9)]
    assert shares[-1].endswith("ways.json")
    slower, worst = sum(case["ratio"] > 1.03 for case in CASES), max(case["ratio"] for case in CASES)
    for text in ("2 hold, 0 fail, 2 of 2 parts", "times in both records, 0 slower",
                 f"matrix.json: {len(CASES)} cases, the worst {worst:.2f}", f"{slower} above 1.03"):
        assert text in words
    before = len(log_of(tmp_path))
    start(100).communicate()
    assert all("--show" in line for line in log_of(tmp_path)[before:])


def test_lines_for_quiet_gpu_stand_around_what_is_timed(start) -> None:
    words, _ = start(100, slow=1.2).communicate()
    printed = [line.split(":")[0] for line in words.splitlines()]
    lines = [line for line in printed[:printed.index("checks")] if line.startswith(("measur", "host", "bench", "ways"))]
    assert lines == ["measuring host, ends and bench", "host", "bench", "measured host, ends and bench",
                     "measuring some cases", "measured", "measured against torch", "measuring bench again",
                     "bench-again", "measured bench again", "measuring ways", "ways", "measured ways"]


def test_only_what_is_missing_is_measured(start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("matrix", "random-2"):
        (out / f"{name}.json").write_text(json.dumps({"device": "a GPU", "worst_ratio": 0.5, "cases": []}))
    (out / "random-9.json").write_text(json.dumps({"device": "a GPU", "cases": []}))  # of a run that was cut
    start(100).communicate()
    (call,) = calls_of_matrix(tmp_path)
    assert call.endswith("--continue --seeds 9,5 --draws 40 --jobs 2 --no-matrix")


def test_what_seems_slower_is_measured_again(start, tmp_path: Path) -> None:
    words, _ = start(100, slow=1.2).communicate()
    assert (tmp_path / "out" / "bench-again.json").exists()
    assert "times in both records, 0 slower" in words
    assert [line for line in log_of(tmp_path) if "--again" in line]


def test_nothing_is_begun_that_cannot_end(start, tmp_path: Path) -> None:
    run = start(4)
    words, _ = run.communicate()
    assert "matrix: no time left" in words
    assert not list((tmp_path / "out").glob("matrix*.json"))


@pytest.mark.parametrize("way", ["time", "signal"])
def test_what_was_measured_survives_a_cut(way: str, start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("host.json", "ends.json", "compare.txt"):  # these are measured already
        (out / name).write_text("measured\n")
    run = start(9 if way == "time" else 100, pause=0.3)
    if way == "signal":
        deadline = time.monotonic() + 60
        while not (out / "matrix.json").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        run.send_signal(signal.SIGTERM)
    words, _ = run.communicate(timeout=90)
    record = json.loads((out / "matrix.json").read_text())
    assert 0 < len(record["cases"]) < len(CASES)
    assert "2 hold" in words
    assert f"matrix.json: {len(record['cases'])} cases" in words
    assert "matrix: status 124" in words or way == "signal"


def test_a_dry_run_starts_nothing(tmp_path: Path) -> None:
    words = subprocess.run([SCRIPT, tmp_path / "out"], env={**os.environ, "DRY_RUN": "1", "PYTHON": "/nowhere"},
                           check=True, capture_output=True, text=True).stdout
    assert "check-15 (" in words
    assert "matrix_gpu.py" in words
    assert not list((tmp_path / "out").iterdir())
