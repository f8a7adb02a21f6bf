"""Records: small files of finished runs, wherever those came from."""

from __future__ import annotations

import json
import re
from dataclasses import replace

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
    for content in ("{", "[]", "null", '{"seed": ' + "1" * 5000 + "}"):
        (tmp_path / "broken.json").write_text(content)
        with pytest.raises(RunError, match=r"broken.json: expected a JSON object \(.*\)\. Move the file away"):
            read_records(tmp_path)


def test_files_that_a_task_keeps_are_not_read_whatever_they_hold(runs):
    before = read_records(runs)
    record = json.dumps({"schema": 1, "asked": {"recipe": "a", "arm": "b", "seed": 0}, "environment": {}, "final": {},
                         "timing": {}})
    files = runs / "mnist/el/seed3/files"
    files.mkdir()
    for name, content in {"boxes.json": "[1, 2]", "notes.json": "no JSON", "final.json": record}.items():
        (files / name).write_text(content)
    assert read_records(runs) == before


def test_what_was_measured_under_attack_stands_beside_the_final_numbers(runs, tmp_path):
    run = runs / "mnist/el/seed3"
    table = {"fgsm": {"examples": 2, "accuracy": {"0.3": 50.0}, "survived": {"0.3": "6"}}}
    (run / "attacks.json").write_text(json.dumps({"schema": 1, "weights": "x", "seed": 0, "attacks": table,
                                                  "verdicts": []}))
    collect(runs, tmp_path / "results")
    for folder in (runs, tmp_path / "results"):
        attacked, *others = sorted(read_records(folder), key=lambda record: record.attacks is None)
        assert attacked.key == ("mnist", "el", 3)
        assert attacked.numbers["attacks"] == {"fgsm": {"0.3": 50.0}}
        assert attacked.numbers["accuracy"] == attacked.final["accuracy"]
        assert "attacks" not in attacked.final
        assert all(record.numbers == record.final for record in others)


@pytest.mark.parametrize(("change", "words"), [
    ({"attacks": {"attacks": {"fgsm": {"accuracy": [1]}}}}, "attacks.fgsm has no table"),
    ({"attacks": "x"}, "attacks is a str"),
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


def test_epochs_of_all_stages_count_also_where_the_timing_has_only_the_last_stage(runs):
    """As records had it until stages were counted."""
    record = read_records(runs)[0]
    lines = [{"stage": stage, "epoch": epoch} for stage, epochs in ((1, 3), (2, 2)) for epoch in range(1, epochs + 1)]
    staged = replace(record, epochs=lines, timing={**record.timing, "epochs": 2})
    assert staged.trained_epochs == 5
    assert replace(staged, epochs=[]).trained_epochs == 2
    assert replace(staged, epochs=lines[2:]).trained_epochs == 5  # a record may keep few lines
    assert replace(staged, timing={}).trained_epochs == 0
