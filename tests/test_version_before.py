"""Records, run directories and checkpoints of version 0.1.0 are read, or refused in words and left as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from encouraging.cli import app
from encouraging.engine.records import read_records

BEFORE = Path(__file__).parent / "version_0_1_0"
AS_THEN = ["--set", "train.epochs=2", "--set", "train.milestones=[]", "--set", "train.schedule=constant",
           "--seeds", "1", "--jobs", "1", "--device", "cpu"]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    shutil.copytree(BEFORE, tmp_path / "old")
    return tmp_path / "old"


def call(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert "Traceback" not in done.output
    return done.exit_code, " ".join(done.output.split())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the lock, which any process may leave behind."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != "lock"}


def test_old_runs_and_records_are_read(old: Path) -> None:
    finished, record = read_records(old / "finished", old / "records")
    assert finished.key == ("digits", "ce", 0)
    assert finished.final == json.loads((old / "finished/digits/ce/seed0/final.json").read_text())
    assert [line["epoch"] for line in finished.epochs] == [1, 2]
    assert record.key == ("digits", "el_1", 0)
    assert finished.diagnosis is not None
    assert record.diagnosis is not None


def test_old_runs_and_records_are_reported_collected_and_diagnosed(old: Path) -> None:
    code, said = call("report", old / "finished", old / "records", "-o", old / "page.html")
    assert code == 0, said
    page = (old / "page.html").read_text()
    for record in read_records(old / "finished", old / "records"):
        assert f"{record.final['accuracy']:.2f}" in page
    code, said = call("collect", old / "finished", "-o", old / "collected")
    assert code == 0, said
    assert read_records(old / "collected") == read_records(old / "finished")
    code, said = call("diagnose", old / "finished/digits/ce/seed0", "-o", old / "diagnosis.html")
    assert code == 0, said
    accuracy = json.loads((old / "finished/digits/ce/seed0/final.json").read_text())["accuracy"]
    assert f"{accuracy:.2f}%" in said


@pytest.mark.parametrize(("folder", "arm"), [("finished", "ce"), ("unfinished", "el_1")])
def test_an_old_run_is_continued_or_refused_in_words_and_left_alone(old: Path, folder: str, arm: str) -> None:
    run = old / folder / "digits" / arm / "seed0"
    before = contents(run)
    code, said = call("run", "digits", "--arm", arm, "--out", old / folder, *AS_THEN)
    if code == 0:
        (record,) = read_records(old / folder)
        assert [line["epoch"] for line in record.epochs] == [1, 2]
        assert record.final["accuracy"] > 80
        old_lines = before["metrics.jsonl"].decode().splitlines()
        assert record.epochs[: len(old_lines)] == [json.loads(line) for line in old_lines]
    else:
        assert code in (1, 2)
        assert "seed0" in said
        assert any(words in said for words in ("another version", "holds another run", "schema"))
        assert contents(run) == before
