"""Runs that diverged are shown and counted, and take verdicts away (issue 12, point 15)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from encouraging.commands.run import run_recipe
from encouraging.engine import RunDir
from encouraging.engine.records import collect, read_records
from encouraging.judge.claims import FAILED, arm_rows, claim_rows, finals_of, judge_claims
from encouraging.judge.metric_book import MetricBook
from encouraging.recipes import Claim, read_recipe
from encouraging.report.page import build_report
from encouraging.report.results import results_page
from synthetic_runs import write_mnist_runs

BOOK = MetricBook([])
BEATS = Claim(metric="accuracy", arm="el", beats="ce", expected=20.0)
SHIFTS = {"el": [1.0, 1.3, 0.9, 1.2, 1.1], "ce": [0.0] * 5}


def finals(*diverged: tuple[str, int], shift: float = 1.0) -> dict[str, dict[int, dict[str, object]]]:
    """A clear gain of el over five seeds; these runs diverged."""
    return {arm: {seed: {FAILED: "the loss became NaN"} if (arm, seed) in diverged
                  else {"accuracy": 90 + shift * value, "other": 80 + shift * value * value}
                  for seed, value in enumerate(values)} for arm, values in SHIFTS.items()}


@pytest.mark.parametrize(("diverged", "gain", "verdict"), [
    ([], 1.0, "holds"),
    ([("el", 3)], 1.0, "undecided"),               # the arm that is ahead has lost a seed
    ([("el", 3)], -1.0, "fails"),                  # the arm that is behind has lost one more
    ([("ce", 3)], 1.0, "holds"),
    ([("ce", 3)], -1.0, "undecided"),
    ([("el", 3), ("ce", 3)], 1.0, "holds"),        # both lost the same seed
    ([("el", 3), ("ce", 2)], 1.0, "undecided"),
    ([("el", 3)], 0.0, "undecided"),
])
def test_a_divergence_loses_its_seed(diverged, gain, verdict):
    row, = judge_claims([BEATS], finals(*diverged, shift=gain), BOOK)
    assert row.verdict == verdict
    assert row.comparison.n == 5 - len({seed for _, seed in diverged})
    assert set(row.diverged) == set(diverged)


def test_two_numbers_of_one_arm_lose_a_seed_together_and_a_constant_is_never_beaten_by_a_run_that_diverged():
    numbers = finals(("el", 3))
    metrics, over, under = judge_claims([Claim(metric="accuracy", arm="el", beats_metric="other"),
                                         Claim(metric="accuracy", arm="el", over=80),
                                         Claim(metric="accuracy", arm="el", under=80)], numbers, BOOK)
    assert [row.verdict for row in (metrics, over, under)] == ["holds", "undecided", "fails"]
    assert [len(row.diverged) for row in (metrics, over, under)] == [1, 1, 1]


def test_an_arm_that_always_diverges_is_not_just_not_measured():
    row, = judge_claims([BEATS], finals(*(("el", seed) for seed in range(5))), BOOK)
    assert (row.verdict, len(row.diverged)) == ("undecided", 5)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Ten runs of MNIST of which el diverged with seed 4."""
    folder = write_mnist_runs(tmp_path / "runs")
    run = RunDir(folder / "mnist/el/seed4")
    for name in ("final.json", "timing.json"):
        (run.path / name).unlink()
    run.note_divergence(ValueError("the loss became NaN at update 17"))
    return folder


def test_tables_and_pages_show_and_count_it(runs, tmp_path):
    collect(runs, tmp_path / "records")
    for folder in (runs, tmp_path / "records"):
        assert len(read_records(folder)) == 9
        records = read_records(folder, failed=True)
        assert [record.key for record in records if record.failed] == [("mnist", "el", 4)]
        numbers = finals_of("mnist", records)
        row = claim_rows(read_recipe("mnist"), numbers, BOOK)[0]
        assert (row.verdict, row.comparison.n, row.diverged) == ("undecided", 4, [("el", 4)])
        rows = {row.arm: row for row in arm_rows(read_recipe("mnist"), numbers, BOOK)}
        assert (rows["el"].diverged, rows["el"].numbers["best_accuracy"].n) == ([4], 4)
        page = build_report(records)
        assert page.count("el seed 4") > len(read_recipe("mnist").claims)  # the recipe's facts, and every claim's
        markdown = results_page(folder)
        assert "4, 1 diverged | **undecided**" in markdown
        assert "Diverged: el, seed 4: the loss became NaN at update 17" in markdown


def test_a_run_that_diverges_leaves_a_trace_and_the_command_says_so(tmp_path):
    (tmp_path / "mine.toml").write_text("""
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 3
threads = 1
train = { epochs = 1, batch_size = 64, lr = 0.1 }
[arms.ce]
curve = "cross_entropy"
[arms.el]
curve = "encouraging"
log_end = 1.0
train = { diverge_above = 0.001 }
[[claims]]
metric = "accuracy"
arm = "el"
beats = "ce"
""")
    said = io.StringIO()
    code = run_recipe(str(tmp_path / "mine.toml"), out=tmp_path / "runs", device="cpu", threads=1, jobs=1,
                      console=Console(file=said, width=200))
    assert code == 1
    kept = json.loads((tmp_path / "runs/mine/el/seed1/failed.json").read_text())
    assert kept["kind"] == "DivergenceError"
    assert "larger than 0.001" in kept["message"]
    run = RunDir(tmp_path / "runs/mine/el/seed1")
    assert run.diverged
    assert not run.done
    words = " ".join(said.getvalue().split())
    assert "el seed 1 failed: the loss became NaN" in words
    assert "3 diverged" in words
    page = (tmp_path / "runs/mine/report.html").read_text()
    assert page.count("el seeds 0, 1 and 2") == 2


def test_a_run_that_is_finished_later_did_not_diverge(runs):
    (runs / "mnist/ce/seed0/failed.json").write_text('{"message": "once"}')
    assert not RunDir(runs / "mnist/ce/seed0").diverged
    assert len([record for record in read_records(runs, failed=True) if record.failed]) == 1
