"""Records by arm: one file with all seeds of an arm, which reads as its runs do but for rounding."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encouraging.engine.arm_records import DIGITS, columns, lines, rounded
from encouraging.engine.outputs import check_output
from encouraging.engine.records import collect, collect_by_arm, read_records
from encouraging.errors import ArgumentError, RunError
from synthetic_runs import write_mnist_runs

NUMBERS = st.one_of(st.integers(-5, 5), st.floats(-1e6, 1e6), st.none())


@pytest.fixture
def runs(tmp_path):
    return write_mnist_runs(tmp_path / "runs")


def test_an_arm_is_one_file_that_reads_as_its_runs_do(runs, tmp_path):
    written = collect_by_arm(runs, tmp_path / "results")
    assert {path.relative_to(tmp_path / "results").as_posix() for path in written} == {"mnist/ce-seeds.json",
                                                                                      "mnist/el-seeds.json"}
    ours, theirs = read_records(tmp_path / "results"), read_records(runs)
    assert len(ours) == 10
    for mine, run in zip(ours, theirs, strict=True):
        assert replace(mine, epochs=[], diagnosis=None) == replace(run, epochs=[], diagnosis=None)
        assert len(mine.epochs) == len(run.epochs)
        for line, expected in zip(mine.epochs, run.epochs, strict=True):
            assert line == {name: rounded(value) for name, value in expected.items() if name in line}
            assert {"epoch", "loss", "accuracy"} <= line.keys()
        assert mine.diagnosis == rounded(run.diagnosis)


def test_seeds_that_are_not_collected_again_stay(runs, tmp_path):
    collect_by_arm(runs, tmp_path / "results")
    before = read_records(tmp_path / "results")
    for seed in (0, 1):
        shutil.rmtree(runs / f"mnist/ce/seed{seed}")
    collect_by_arm(runs, tmp_path / "results")
    assert read_records(tmp_path / "results") == before


def test_seeds_of_other_settings_stay_too(runs, tmp_path):
    """The file with a fingerprint in its name is added to as the first one is."""
    collect_by_arm(runs, tmp_path / "results")
    for config in runs.glob("mnist/ce/*/config.json"):
        content = json.loads(config.read_text())
        content["asked"]["train"] = [{"epochs": 7}]
        config.write_text(json.dumps(content))
    collect_by_arm(runs, tmp_path / "results")
    before = read_records(tmp_path / "results")
    for seed in (0, 1, 2, 3):
        shutil.rmtree(runs / f"mnist/ce/seed{seed}")
    collect_by_arm(runs, tmp_path / "results")
    assert read_records(tmp_path / "results") == before


def test_what_is_no_file_of_records_is_left_alone(runs, tmp_path):
    path = tmp_path / "results/mnist/ce-seeds.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"notes": "mine"}')
    with pytest.raises(RunError, match=r"ce-seeds.json: is not a file of records, and was not replaced"):
        collect_by_arm(runs, tmp_path / "results")
    assert path.read_text() == '{"notes": "mine"}'


@pytest.mark.parametrize("collected", [collect, collect_by_arm])
def test_a_run_that_diverged_does_not_replace_the_record_of_a_finished_one(runs, tmp_path, collected):
    collected(runs, tmp_path / "results")
    before = read_records(tmp_path / "results", failed=True)
    (runs / "mnist/ce/seed0/final.json").unlink()
    (runs / "mnist/ce/seed0/failed.json").write_text('{"message": "the loss became NaN"}')
    collected(runs, tmp_path / "results")
    assert read_records(tmp_path / "results", failed=True) == before


def test_other_settings_are_another_file(runs, tmp_path):
    collect_by_arm(runs, tmp_path / "results")
    for config in runs.glob("mnist/ce/*/config.json"):
        content = json.loads(config.read_text())
        content["asked"]["train"] = [{"epochs": 7}]
        config.write_text(json.dumps(content))
    written = collect_by_arm(runs, tmp_path / "results")
    assert sum(path.name.startswith("ce-seeds-") for path in written) == 1
    assert len(read_records(tmp_path / "results")) == 15


def test_a_damaged_file_is_named(runs, tmp_path):
    path = collect_by_arm(runs, tmp_path / "results")[0]
    content = json.loads(path.read_text())
    for change, words in (({"runs": [{"seed": 0}]}, "expected a file of an arm's runs"),
                          ({"runs": 3}, "expected a file of an arm's runs"), ({"schema": 9}, "schema 9")):
        path.write_text(json.dumps(content | change))
        with pytest.raises(RunError, match=re.escape(words)):
            read_records(tmp_path / "results")


def test_its_name_is_kept_from_other_outputs(tmp_path):
    with pytest.raises(ArgumentError, match="the name of a record"):
        check_output(tmp_path / "ce-seeds.json")


@given(st.lists(st.fixed_dictionaries({"epoch": NUMBERS, "lr": NUMBERS, "loss": NUMBERS}), max_size=6))
def test_columns_give_the_lines_back(table):
    kept = ("epoch", "lr", "loss")
    expected = [{name: rounded(value) for name, value in line.items() if value is not None} for line in table]
    assert lines(json.loads(json.dumps(columns(table, kept)))) == expected


@given(st.floats(-1e300, 1e300))
def test_rounding_changes_the_last_digits_alone(value):
    assert rounded(value) == pytest.approx(value, rel=0.6 * 10 ** (1 - DIGITS), abs=1e-320)
    assert rounded(rounded(value)) == rounded(value)
