"""``encouraging attack`` exits with an error that says what is wrong with its arguments, the run or the data."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
import safetensors.torch
import torch

from attack_calls import FEW, call


@pytest.mark.parametrize(("words", "message"), [
    (["--attack", "pdg"], "Did you mean 'pgd'?"),
    (["--eps", "0.1,much"], "expected numbers from 0 on"),
    (["--eps-l2", "-1"], "--eps-l2 -1: expected numbers"),
    (["--examples", "0"], "expected a positive number of test images"),
    (["--device", "abacus"], "expected cpu, cuda or auto"),
    (["--eps", "0,8"], "Divide sizes in grey levels by 255: 8/255"),
    (["--eps", "0,8", "--attack", "fgsm_normalised", "--attack", "pgd"], "--eps 8: pixels are in [0, 1]"),
])
def test_a_wrong_word_is_answered_and_ends_with_2(runs: Path, words: list[str], message: str) -> None:
    assert message in call(runs, *words, code=2)


def test_what_is_no_finished_run_is_refused(runs: Path, tmp_path: Path) -> None:
    assert "expected a run directory" in call(tmp_path / "nowhere", code=2)
    (tmp_path / "empty").mkdir()
    assert "no finished run is below it" in call(tmp_path / "empty", code=2)
    (runs / "ce/seed0/weights.safetensors").unlink()
    assert "has no weights.safetensors" in call(runs / "ce/seed0", *FEW, code=1)
    config = json.loads((runs / "el/seed0/config.json").read_text())
    del config["recipe"]
    (runs / "el/seed0/config.json").write_text(json.dumps(config))
    assert "no recipe from which the model could be rebuilt" in call(runs / "el/seed0", *FEW, code=1)


def test_weights_of_another_model_are_refused(runs: Path) -> None:
    path = runs / "ce/seed0/weights.safetensors"
    weights = safetensors.torch.load_file(path)
    weights["head.bias"] = torch.zeros(3)
    safetensors.torch.save_file(weights, path)
    assert "head.bias differs" in call(runs / "ce/seed0", *FEW, code=1)
    path.write_bytes(b"nothing")
    assert "the weights cannot be read" in call(runs / "ce/seed0", *FEW, code=1)


def test_a_full_disk_is_told_in_words(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("encouraging.attacks._files.replace_file", full)
    said = call(runs / "ce/seed0", *FEW, code=1)
    assert "the results so far could not be written ([Errno 28] No space left on device)" in said
    assert "Traceback" not in said


def test_a_run_that_cannot_be_written_to_is_told_in_words(runs: Path) -> None:
    lock = runs / "ce/seed0/lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()  # stands in for a read-only disk, which a test that runs as root cannot have
    said = call(runs / "ce/seed0", *FEW, code=1)
    assert "cannot be written to" in said
    assert "Make it writable" in said
    assert "--out" not in said


@pytest.mark.parametrize(("key", "name"), [("data", "folder:pictures"), ("data", "mine.py:images"),
                                           ("model", "mine.py:network"), ("task", "mine.py:Counting")])
def test_what_lay_beside_the_recipe_is_named_where_it_is_not_found(runs: Path, key: str, name: str) -> None:
    run = runs / "ce/seed0"
    config = json.loads((run / "config.json").read_text())
    config["recipe"][key] = name
    (run / "config.json").write_text(json.dumps(config))
    said = call(run, *FEW, code=1)
    assert f"Start this command in a folder from which {name} can be found." in said
    assert "Train it again" not in said
    assert "0 of 1 run measured" in said
    assert "attacks.json" not in said


def test_missing_data_is_said_alone_in_the_words_of_this_command(runs: Path, tmp_path: Path) -> None:
    for run in (runs / "ce/seed0", runs / "el/seed0"):
        config = json.loads((run / "config.json").read_text())
        config["recipe"]["data"] = "mnist"
        (run / "config.json").write_text(json.dumps(config))
    said = call(runs, *FEW, "--data", tmp_path / "nothing", code=2)
    assert said.startswith("encouraging: the train and the test part of mnist are not in")
    assert said.count("These files are missing") == 1
    assert "or point --data or ENCOURAGING_DATA at a directory" in said
    assert "Fetch them with `encouraging run RECIPE --download`" in said
    for word in ("measured", "claim", "┃"):
        assert word not in said, word
