"""What commands write never replaces what they read, a run's own files, a link or a device."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from encouraging.cli import app
from encouraging.engine.records import collect
from synthetic_runs import write_mnist_runs


def call(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, " ".join(done.output.split())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logits in every form, class names, a finished run, and records."""
    monkeypatch.chdir(tmp_path)
    arrays = {"logits": np.random.default_rng(0).normal(size=(30, 3)), "labels": np.arange(30) % 3}
    np.savez(tmp_path / "x.npz", **arrays)
    (tmp_path / "dir").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "dir" / f"{name}.npy", array)
    (tmp_path / "n.txt").write_text("cat\ndog\nship\n")
    write_mnist_runs(tmp_path / "runs")
    collect(tmp_path / "runs", tmp_path / "r")
    shutil.copy(tmp_path / "r/mnist/ce-seed0.json", tmp_path / "r/0.json")
    np.savez(tmp_path / "runs/mnist/ce/seed0/logits.npz", **arrays)
    return tmp_path


@pytest.mark.parametrize("words", [
    ["diagnose", "x.npz", "--out", "x.npz"],
    ["diagnose", "x.npz", "--json", "x.npz"],
    ["diagnose", "dir", "--out", "dir/logits.npy"],
    ["diagnose", "dir", "--json", "dir/labels.npy"],
    ["diagnose", "dir", "--out", "dir/ood_logits.npy"],
    ["diagnose", "x.npz", "--names", "n.txt", "--out", "n.txt"],
    ["diagnose", "x.npz", "--json", "runs/mnist/ce/seed0/diagnosis.json"],
    ["diagnose", "x.npz", "--out", "runs/mnist/ce/seed0/final.json"],
    ["diagnose", "x.npz", "--out", "runs/mnist/ce/seed0/checkpoint-000000001.safetensors"],
    ["diagnose", "x.npz", "--json", "r/mnist/el-seed3.json"],
    ["report", "r", "-o", "r/0.json"],
    ["report", "runs", "-o", "runs/mnist/ce/seed0/timing.json"],
    ["report", "r", "-o", "r/new.json"],
    ["results", "r", "-o", "r/0.json"],
    ["results", "runs", "-o", "runs/mnist/ce/seed0/metrics.jsonl"],
    ["bench", "--device", "cpu", "--seconds", "0", "--shape", "2x2", "--out", "r/mnist/ce-seed0.json"],
])
def test_inputs_and_files_of_runs_and_records_are_not_written_over(folder: Path, words: list[str]) -> None:
    before = contents(folder)
    code, said = call(*words)
    assert code == 2, said
    assert words[-1] in said
    assert contents(folder) == before


def test_an_input_is_recognised_through_a_link(folder: Path) -> None:
    (folder / "page.html").symlink_to(folder / "x.npz")
    (folder / "numbers.json").symlink_to(folder / "dir" / "labels.npy")
    before = contents(folder)
    assert call("diagnose", "x.npz", "--out", "page.html")[0] == 2
    assert call("diagnose", "dir", "--json", "numbers.json")[0] == 2
    assert contents(folder) == before


COMMANDS = {"diagnose": ["diagnose", "x.npz", "--out"], "numbers": ["diagnose", "x.npz", "--json"],
            "report": ["report", "r", "-o"], "results": ["results", "r", "-o"],
            "bench": ["bench", "--device", "cpu", "--seconds", "0", "--shape", "2x2", "--out"]}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_link_stays_a_link_and_its_target_is_written(folder: Path, words: list[str]) -> None:
    target, link = folder / "elsewhere" / "target", folder / "link"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    code, said = call(*words, link)
    assert code == 0, said
    assert link.is_symlink()
    assert not target.is_symlink()
    assert len(target.read_bytes()) > 100


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_device_or_a_pipe_is_written_to_and_stays_what_it_is(folder: Path, words: list[str]) -> None:
    """A pipe and a link to the null device; the device itself is not risked."""
    pipe, null = folder / "pipe", folder / "null"
    os.mkfifo(pipe)
    null.symlink_to("/dev/null")
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    code, said = call(*words, pipe)
    assert code == 0, said
    reader.join(30)
    assert pipe.is_fifo()
    assert len(received[0]) > 100
    assert call(*words, null)[0] == 0
    assert null.is_symlink()
    assert Path("/dev/null").is_char_device()


def test_collect_replaces_a_record_of_the_same_run_alone(folder: Path) -> None:
    assert call("collect", "runs", "-o", "r")[0] == 0
    other = folder / "r/mnist/ce-seed1.json"
    other.write_text('{"mine": 1}')
    code, said = call("collect", "runs", "-o", "r")
    assert code == 2
    assert "ce-seed1.json" in said
    assert other.read_text() == '{"mine": 1}'


@pytest.mark.parametrize("out", ["n.txt", "n.txt/deep"])
def test_collect_says_in_words_where_it_cannot_write(folder: Path, out: str) -> None:
    code, said = call("collect", "runs", "-o", out)
    assert code == 2
    assert f"encouraging: {out}" in said
    assert "cannot be written to" in said


def test_runs_that_could_not_be_written_are_refused_once_and_not_one_by_one(folder: Path,
                                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").touch()
    words = ["run", "digits", "--device", "cpu", "--jobs", "1"]
    code, said = call(*words, "--out", "file/runs")
    assert (code, said.count("cannot be written to")) == (2, 1), said
    assert said.endswith("Choose another folder.")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write everywhere
    code, said = call(*words, "--out", "locked")
    assert code == 2, said
    assert "cannot be written to ([Errno 13] Permission denied)" in said


@pytest.mark.usefixtures("without_figures")
def test_finished_runs_are_shown_where_nothing_can_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["run", "digits", "--device", "cpu", "--jobs", "1", "--arm", "ce", "--seeds", "1", "--set",
             "train.epochs=1", "--set", "train.milestones=[]", "--out", "mine"]
    assert call(*words)[0] == 0
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    code, said = call(*words)
    assert code == 0, said
    assert "1 of 1 runs were finished before" in said


def test_a_page_or_records_of_nothing_are_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "page.md").write_text("kept")
    for words in (["results", "empty", "-o", "page.md"], ["collect", "empty", "-o", "new"],
                  ["collect", "empty", "-o", "new", "--by-arm"]):
        code, said = call(*words)
        assert code == 2, said
        assert "encouraging: empty: no finished run" in said
    assert (folder / "page.md").read_text() == "kept"
    assert not (folder / "new").exists()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder in which no file can be made")
@pytest.mark.parametrize("words", [["curves", "--out", "/proc/x.svg"], ["report", "r", "-o", "/proc/x.html"],
                                   ["diagnose", "x.npz", "--out", "/proc/x.html"]], ids=lambda words: words[0])
def test_a_place_that_takes_no_files_is_named_with_what_to_do(folder: Path, words: list[str]) -> None:
    code, said = call(*words)
    assert code == 2, said
    assert words[-1] in said
    assert "hoose another" in said
    assert "free some space" not in said


def test_a_tracker_that_is_not_known_is_refused_once_and_nothing_is_trained(tmp_path: Path) -> None:
    code, said = call("run", "digits", "--track", "wandb", "--out", tmp_path / "runs", "--device", "cpu")
    assert code == 2
    assert said.count("--track wandb: expected 'tensorboard'") == 1
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def three_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The commands that write a page into the current folder where no name is given, and the name that they take."""
    monkeypatch.chdir(tmp_path)
    Path("n.csv").write_text("arm,seed,accuracy\n" + "".join(f"{arm},{seed},{seed}\n" for arm in ("ce", "el")
                                                             for seed in range(3)))
    np.savez("mine.npz", logits=np.eye(3, dtype="float32").repeat(20, 0), labels=np.arange(3).repeat(20))
    write_mnist_runs(tmp_path / "runs")
    return {"comparison.html": ["compare", "n.csv", "--metric", "accuracy"], "diagnosis.html": ["diagnose", "mine.npz"],
            "report.html": ["report", "runs"]}


def test_a_page_that_replaces_another_one_is_said_to(three_pages: dict[str, list[str]]) -> None:
    for name, command in three_pages.items():
        for there, out in itertools.product((False, True), (name, "mine.html")):
            done = CliRunner().invoke(app, [*command, *(["-o", out] if out != name else [])])
            assert done.exit_code == 0, done.output
            assert (f"wrote {out}, in place of the one that was there\n" if there else f"wrote {out}\n") in done.output
        Path("mine.html").unlink()
