"""What breaking runs on purpose has shown: damaged files, odd names, and death inside a checkpoint's write."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from encouraging.engine import RunDir, Train, execute
from encouraging.engine import files as engine_files
from encouraging.engine.files import write_whole
from encouraging.engine.records import read_records
from encouraging.errors import RecipeError, RunError
from encouraging.recipes import read_recipe
from encouraging.whole_file import replace_file
from forked import forkserver
from toy_tasks import Blobs, assert_same_run, run_spec

ONE = (Train(epochs=2, lr=0.1),)


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", "..", ".hidden", "", "a" * 200, "a\\nb"])
def test_an_arm_whose_name_is_no_folders_is_refused(tmp_path, name):
    text = f'task="image"\ndata="digits"\nmodel="digits_mlp"\nseeds=1\ntrain={{epochs=1, lr=0.1}}\n[arms."{name}"]\n'
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(RecipeError, match="because a folder gets this name"):
        read_recipe(tmp_path / "mine.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_a_final_of_another_schema_is_refused_in_words(tmp_path):
    execute(run_spec(tmp_path, stages=ONE))
    final = json.loads((tmp_path / "final.json").read_text())
    (tmp_path / "final.json").write_text(json.dumps({**final, "schema": 99}))
    with pytest.raises(RunError, match=r"final.json: schema 99, expected 1: it was written by another version"):
        execute(run_spec(tmp_path, stages=ONE))


def test_a_torn_last_line_is_skipped_and_another_is_refused(tmp_path):
    execute(run_spec(tmp_path, stages=ONE))
    path = tmp_path / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"epoch": 3, "lo')
    assert len(RunDir(tmp_path).metrics()) == 2
    assert len(read_records(tmp_path)) == 1
    path.write_text('{"epoch": 1, "lo\n' + whole)
    with pytest.raises(RunError, match="line 1 is not a JSON object"):
        RunDir(tmp_path).metrics()


def test_the_lines_reach_the_disk_before_the_run_is_called_done(tmp_path, monkeypatch):
    synced: list[str] = []
    real = os.fsync

    def note(handle: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        real(handle)

    monkeypatch.setattr(os, "fsync", note)
    execute(run_spec(tmp_path, stages=ONE))
    final = next(number for number, name in enumerate(synced) if name.startswith("final.json."))
    assert synced.index("metrics.jsonl") < final


def test_a_config_without_its_machine_is_refused_in_words(tmp_path):
    execute(run_spec(tmp_path, stages=ONE))
    config = json.loads((tmp_path / "config.json").read_text())
    del config["environment"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "final.json").unlink()
    with pytest.raises(RunError, match="expected an environment with threads and instructions"):
        execute(run_spec(tmp_path, stages=ONE))


def test_a_mount_that_cannot_be_written_to_is_named_although_the_clean_up_fails_too(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(RunError, match=r"x.json \(2 bytes\) could not be written: .*Read-only file system"):
        write_whole(tmp_path / "x.json", b"{}")


def write_many_times(path: str, letter: str) -> None:
    for _ in range(150):
        write_whole(Path(path), letter.encode() * 50_000)


def test_processes_that_write_one_file_do_not_disturb_each_other(tmp_path):
    """A reader sees what one of them wrote, whole, at any time."""
    path = tmp_path / "x.json"
    context = forkserver()
    writers = [context.Process(target=write_many_times, args=(str(path), letter)) for letter in "ab"]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            seen.add(path.read_bytes())
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen <= {b"a" * 50_000, b"b" * 50_000}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [write_whole, replace_file])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_file_before_it_and_nothing_else(tmp_path, monkeypatch, write, error):
    path = tmp_path / "x.json"
    write(path, b"before")

    def fail(handle: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((RunError, OSError, KeyboardInterrupt)):
        write(path, b"after")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"before"


def test_what_a_killed_writer_has_left_is_gone_when_the_run_continues(tmp_path):
    execute(run_spec(tmp_path, stages=ONE))
    (tmp_path / "final.json").unlink()
    left = tmp_path / "checkpoint-000000014.json.0123abcd.part"
    own = tmp_path / "notes.part"
    left.touch()
    own.touch()
    execute(run_spec(tmp_path, stages=ONE))
    assert not left.exists()
    assert own.exists()  # not one of ours


@pytest.mark.parametrize("betas", ["[2.0, 0.999]", "[0.9, nan]", "[-0.1, 0.9]", "[0.9, 1.0]", "[0.9]"])
def test_impossible_betas_are_refused_when_the_recipe_is_read(betas):
    with pytest.raises(RecipeError, match=r"train\.betas"):
        read_recipe("digits", ["train.optimizer=adam", "train.momentum=0", f"train.betas={betas}"])


@pytest.mark.parametrize("setting", ["train.weight_decay=inf", "train.eps=inf", "train.warmup_epochs=inf",
                                     "train.warmup_from=inf", "seeds=99999999999999999999", "seeds=1000000000"])
def test_settings_that_no_run_can_have_are_refused_when_the_recipe_is_read(setting):
    with pytest.raises(RecipeError, match=setting.partition("=")[0]):
        read_recipe("digits", [setting])


def run_with_slow_writes(folder: str) -> None:
    """A run whose every checkpoint takes a while to be written: a kill is then likely to fall into one."""
    torch.set_num_threads(1)
    real = os.replace

    def slow(source: str, target: str) -> None:
        if "checkpoint" in str(target):
            Path(folder, "writing").touch()
            time.sleep(0.03)
        real(source, target)
        if "checkpoint" in str(target):
            Path(folder, "writing").unlink(missing_ok=True)

    engine_files.os.replace = slow  # type: ignore[assignment]
    execute(run_spec(folder, Blobs()))


def test_killed_ten_times_while_a_checkpoint_is_written_it_ends_with_the_same_bits(tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder, unbroken = tmp_path / "killed", tmp_path / "unbroken"
    folder.mkdir()
    execute(run_spec(unbroken))
    context = forkserver()
    rng, inside = random.Random(0), 0
    for _ in range(10):
        (folder / "writing").unlink(missing_ok=True)
        process = context.Process(target=run_with_slow_writes, args=(str(folder),))
        process.start()
        wanted, seen = rng.randrange(1, 6), 0
        while seen < wanted and process.is_alive():  # the wanted-th write of this process
            while not (folder / "writing").exists() and process.is_alive():
                time.sleep(0.001)
            seen += 1
            if seen < wanted:
                while (folder / "writing").exists() and process.is_alive():
                    time.sleep(0.001)
        assert process.is_alive(), "the run ended before it had been killed ten times: make it longer"
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        inside += (folder / "writing").exists()
    assert inside >= 8, "the kills missed the writes"
    (folder / "writing").unlink(missing_ok=True)
    execute(run_spec(folder))
    assert_same_run(folder, unbroken)
    shutil.rmtree(folder)
    torch.set_num_threads(before)
