"""``benchmarks/kernels_gpu.sh`` without a GPU: its order, its limits, what a cut leaves, and the merge."""

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

# Stands for Python on a GPU: writes what a measurement writes, in no time. Merging and comparing are the real ones.
FAKE = '''#!{python}
import json, os, sys, time
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(" ".join(words) + chr(10))
if "--merge" in words or "--compare" in words:
    os.execv({python!r}, [{python!r}, *words])
if words[0].endswith("check_gpu_all.py"):
    print("ok   every_curve (0.1 s): fine")
    sys.exit(0)
out = words[words.index("--out") + 1]
if "--matrix" in words or "--random" in words:
    record = json.load(open({record!r}))
    part, parts = map(int, words[words.index("--part") + 1].split("/")) if "--part" in words else (1, 1)
    whole, record["cases"] = record["cases"][:{cases}], []
    for case in whole[part - 1::parts]:
        record["cases"].append(case)
        record.pop("worst_ratio", None)
        open(out, "w").write(json.dumps(record))
        time.sleep({pause})
    record["worst_ratio"] = max(case["ratio"] for case in record["cases"])
    open(out, "w").write(json.dumps(record))
elif "--only" in words:
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


def test_everything_is_measured_once_and_merged(start, tmp_path: Path) -> None:
    first = start(100)
    words, _ = first.communicate()
    assert first.returncode == 0, words
    out = tmp_path / "out"
    merged = json.loads((out / "matrix.json").read_text())
    assert sorted(case["case"] for case in merged["cases"]) == sorted(case["case"] for case in CASES)
    assert merged["worst_ratio"] == max(case["ratio"] for case in CASES)
    parts = [line.split("--part ")[1].split()[0] for line in log_of(tmp_path) if "--matrix" in line]
    assert parts == ["1/3", "2/3", "3/3"]
    checked = {line.split("--part ")[1] for line in log_of(tmp_path) if "check_gpu" in line}
    assert checked == {"1/2", "2/2"}
    assert [line.split("--seed ")[1].split()[0] for line in log_of(tmp_path) if "--random" in line] == ["5", "6", "7"]
    slower = sum(case["ratio"] > 1.03 for case in CASES)
    for text in ("2 hold, 0 fail, 2 of 2 parts", "times in both records, 0 slower", f"{slower} above 1.03"):
        assert text in words
    before = len(log_of(tmp_path))
    second = start(100)
    second.communicate()
    assert all("--merge" in line for line in log_of(tmp_path)[before:])


def test_what_seems_slower_is_measured_again(start, tmp_path: Path) -> None:
    words, _ = start(100, slow=1.2).communicate()
    assert (tmp_path / "out" / "again.json").exists()
    assert "times in both records, 0 slower" in words
    assert [line for line in log_of(tmp_path) if "--again" in line]


def test_nothing_is_begun_that_cannot_end(start, tmp_path: Path) -> None:
    run = start(4)
    words, _ = run.communicate()
    assert "matrix-1: no time left" in words
    assert not list((tmp_path / "out").glob("matrix-*.json"))


@pytest.mark.parametrize("way", ["time", "signal"])
def test_what_was_measured_survives_a_cut(way: str, start, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("host.json", "ends.json", "compare.txt"):  # these are measured already
        (out / name).write_text("measured\n")
    run = start(9 if way == "time" else 100, pause=0.3)
    if way == "signal":
        deadline = time.monotonic() + 60
        while not (out / "matrix-2.json").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        run.send_signal(signal.SIGTERM)
    words, _ = run.communicate(timeout=90)
    merged = json.loads((out / "matrix.json").read_text())
    assert 0 < len(merged["cases"]) < len(CASES)
    assert "2 hold" in words
    assert "no time left" in words or way == "signal"


def test_a_dry_run_starts_nothing(tmp_path: Path) -> None:
    words = subprocess.run([SCRIPT, tmp_path / "out"], env={**os.environ, "DRY_RUN": "1", "PYTHON": "/nowhere"},
                           check=True, capture_output=True, text=True).stdout
    assert "check-15 (" in words
    assert "--part 3/3" in words
    assert not list((tmp_path / "out").iterdir())
