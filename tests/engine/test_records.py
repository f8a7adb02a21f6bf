"""Records: small files of finished runs, wherever those came from."""

from __future__ import annotations

import json
import re

import pytest

from encouraging.engine.records import collect, read_records
from encouraging.errors import RunError
from synthetic_runs import write_mnist_runs


@pytest.fixture
def runs(tmp_path):
    return write_mnist_runs(tmp_path / "runs")


def test_a_record_holds_all_of_a_run_but_its_tensors(runs, tmp_path):
    written = collect(runs, tmp_path / "results")
    assert len(written) == 10
    assert (tmp_path / "results/mnist/el-seed3.json") in written
    assert read_records(tmp_path / "results") == read_records(runs)
    assert all(path.stat().st_size < 10_000 for path in written)


def test_what_is_not_a_directory_of_runs_is_refused(tmp_path):
    with pytest.raises(RunError, match="expected a directory"):
        read_records(tmp_path / "none")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(RunError, match=r"broken.json: expected a JSON object"):
        read_records(tmp_path)


@pytest.mark.parametrize(("change", "words"), [
    ({"asked": "x"}, "asked is a str"),
    ({"asked": {"recipe": ["a"], "arm": "b", "seed": 0}}, "asked.recipe is"),
    ({"asked": {"recipe": "a", "arm": "b", "seed": "0"}}, "asked.seed is '0'"),
    ({"final": [1]}, "final is a list"),
    ({"epochs": "x"}, "epochs is a str"),
])
def test_a_damaged_record_is_named(tmp_path, change, words):
    whole = {"schema": 1, "asked": {"recipe": "a", "arm": "b", "seed": 0}, "environment": {}, "final": {}, "timing": {}}
    (tmp_path / "a.json").write_text(json.dumps(whole | change))
    with pytest.raises(RunError, match=re.escape(words)):
        read_records(tmp_path)


def test_two_different_runs_of_one_seed_are_refused_and_equal_ones_are_one(tmp_path):
    whole = {"schema": 1, "asked": {"recipe": "a", "arm": "b", "seed": 0}, "environment": {}, "final": {}, "timing": {}}
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(whole))
    assert len(read_records(tmp_path)) == 1
    (tmp_path / "two.json").write_text(json.dumps(whole | {"final": {"accuracy": 1.0}}))
    with pytest.raises(RunError, match="another run of a, b, seed 0"):
        read_records(tmp_path)


def test_records_stay_inside_their_folder(tmp_path):
    (tmp_path / "in").mkdir()
    whole = {"schema": 1, "asked": {"recipe": "../../x", "arm": "b", "seed": 0}, "environment": {}, "final": {},
             "timing": {}}
    (tmp_path / "in" / "a.json").write_text(json.dumps(whole))
    with pytest.raises(RunError, match="outside of"):
        collect(tmp_path / "in", tmp_path / "out" / "deep")
    assert not (tmp_path / "x").exists()
