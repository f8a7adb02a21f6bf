"""The commands around runs, as a user types them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from encouraging.cli import app
from encouraging.commands import doctor
from encouraging.errors import RunError
from encouraging.recipes import read_recipe
from encouraging.recipes.grid import jobs_of

QUICK = ["--set", "train.epochs=1", "--set", "train.milestones=[]", "--set", "train.schedule=constant", "--jobs", "1"]


def call(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


def test_run_collect_and_results(tmp_path: Path):
    out = str(tmp_path / "runs")
    words = ["run", "digits", "--out", out, "--arm", "ce", "--arm", "el_1", "--seeds", "0,3", *QUICK]
    printed = call(*words)
    assert "4 runs" in printed
    assert "el_1 beats ce" in printed
    assert "Both claims are undecided. Undecided: these seeds cannot tell. 3 claims are not measured" in " ".join(
        printed.split())
    again = call(*words)
    assert "4 of 4 runs were finished before" in again
    assert "el_1 beats ce" in again
    assert "wrote 4 records" in call("collect", out, "-o", str(tmp_path / "results"))
    call("results", str(tmp_path / "results"), "-o", str(tmp_path / "results.md"))
    assert "## digits" in (tmp_path / "results.md").read_text()


def test_another_recipe_in_the_same_place_fails_in_words(tmp_path: Path):
    words = ["run", "digits", "--out", str(tmp_path), "--arm", "ce", "--seeds", "1", *QUICK]
    call(*words)
    assert "holds another run" in call(*words, "--set", "train.lr=0.01", code=2)


def test_an_arm_that_is_named_twice_is_trained_once():
    jobs = jobs_of(read_recipe("digits", ["seeds=2"]), "runs", arms=["ce", "el_1", "ce"])
    assert [(job.arm, job.seed) for job in jobs] == [("ce", 0), ("el_1", 0), ("ce", 1), ("el_1", 1)]


@pytest.mark.parametrize("key", ["data", "options.ood"])
def test_a_folder_that_is_not_there_is_named_once_before_any_run_starts(tmp_path, key):
    value = "folder:nowhere" if key == "data" else '["folder:nowhere"]'
    printed = call("run", "digits", "--out", str(tmp_path / "runs"), "--set", f"{key}={value}", *QUICK, code=2)
    assert printed.count("folder:nowhere: no such folder; looked for") == 1
    assert "started" not in printed
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("finishes", [True, False])
def test_a_run_that_another_process_finishes_is_no_failure(monkeypatch, tmp_path, finishes):
    from encouraging.commands import run as command

    def one_is_in_use(job, tell, train=command.train_job):
        if job.arm == "ce":
            if finishes:
                train(job, tell)
            raise RunError(f"{job.folder} is in use by another process (number 7).")
        return train(job, tell)

    monkeypatch.setattr(command, "train_job", one_is_in_use)
    words = ["run", "digits", "--out", str(tmp_path), "--arm", "ce", "--arm", "el_1", "--seeds", "1", *QUICK]
    printed = call(*words, code=0 if finishes else 1)
    assert ("1 run was finished by another process meanwhile" in printed) == finishes
    assert ("ce seed 0 failed" in printed) != finishes
    assert printed.count("\u2502 ce ") == finishes


def test_an_interrupt_before_the_training_is_answered(monkeypatch, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("encouraging.commands.run.read_recipe", interrupt)
    printed = call("run", "digits", "--out", str(tmp_path), code=130)
    assert "interrupted. The same command starts again" in printed


def test_a_stream_that_has_no_sign_for_plus_or_minus_shows_the_table_all_the_same(tmp_path: Path):
    (tmp_path / "a.csv").write_text("arm,seed,acc\n" + "".join(f"{arm},{seed},{seed}\n" for arm in ("ce", "el")
                                                              for seed in range(3)))
    done = subprocess.run([sys.executable, "-m", "encouraging", "compare", "a.csv", "--metric", "acc"], cwd=tmp_path,
                          env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1.00 ? 1.00" in done.stdout
    assert (tmp_path / "comparison.html").is_file()


@pytest.mark.parametrize(("words", "message"), [
    (["run", "digit"], "Did you mean 'digits'?"),
    (["run", "digits", "--set", "train.epoch=2"], "train.epoch: unknown key. Did you mean 'epochs'?"),
    (["run", "digits", "--set", "epoch=2"], "epoch: unknown key. Did you mean 'train.epochs'?"),
    (["run", "digits", "--arm", "xe"], "has the arms ce"),
    (["run", "digits", "--arm", "el1"], "Did you mean 'el_1'?"),
    (["run", "digits", "--device", "abacus"], "expected cpu, cuda or auto"),
    (["run", "digits", "--device", "mps"], "expected cpu, cuda or auto"),
    (["run", "digits", "--threads", "99999"], "Input should be less than or equal to 1024"),
    (["run", "digits", "--set", "threads=99999"], "threads = 99999: input should be less than or equal to 1024"),
    (["results", "nowhere"], "expected a directory"),
])
def test_a_wrong_word_is_answered_and_ends_with_2(words: list[str], message: str):
    assert message in " ".join(call(*words, code=2).split())


def test_missing_data_is_named_file_by_file(tmp_path: Path):
    printed = call("run", "mnist", "--data", str(tmp_path), "--out", str(tmp_path / "runs"), "--seeds", "1",
                   "--jobs", "1", "--device", "cpu", code=2)
    for name in ("MNIST/raw/train-images-idx3-ubyte.gz", "MNIST/raw/t10k-labels-idx1-ubyte.gz",
                 "FashionMNIST/raw/t10k-images-idx3-ubyte.gz"):
        assert name in printed
    assert "--download" in printed


def test_list_and_doctor_say_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "OPTIONAL", {"json": "importing the real ones takes long", "tensorboardless": "tests"})
    listed = call("list", "--data", str(tmp_path))
    for word in ("mnist-mse", "Table 5", "halted_focal", "cifar100", "missing", "lsoftmax_cnn"):
        assert word in listed, word
    advice = call("doctor", "--data", str(tmp_path))
    for word in ("torch", "threads", "C++ compiler", "tensorboardless", "datasets in", "Triton", "--download"):
        assert word in advice, word


def test_the_claims_of_my_own_recipe_outlive_its_file(tmp_path: Path):
    """The run keeps arms, claims and words, and so does its record: report and results judge what `run` judged."""
    recipe = tmp_path / "my-claim.toml"
    recipe.write_text("""
about = "Is steeper better here?"
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 2
train = { epochs = 1, batch_size = 256, lr = 0.1 }
[arms.plain]
curve = "cross_entropy"
[arms.steep]
curve = "encouraging"
log_end = 1.0
[[claims]]
metric = "accuracy"
arm = "steep"
beats = "plain"
""")
    call("run", str(recipe), "--out", str(tmp_path / "runs"), "--device", "cpu", "--jobs", "1")
    recipe.unlink()
    for words in (["report", str(tmp_path / "runs"), "-o", str(tmp_path / "page.html")],
                  ["collect", str(tmp_path / "runs"), "-o", str(tmp_path / "records")],
                  ["report", str(tmp_path / "records"), "-o", str(tmp_path / "of-records.html")],
                  ["results", str(tmp_path / "records"), "-o", str(tmp_path / "results.md")]):
        call(*words)
    for page in ("page.html", "of-records.html"):
        text = " ".join(re.sub(r"<[^>]*>", " ", (tmp_path / page).read_text()).split())
        assert "Is steeper better here?" in text
        assert re.search(r"steep beats plain.{0,400}?(undecided|holds|fails)", text), page
    assert re.search(r"steep beats plain.*\*\*(undecided|holds|fails)\*\*", (tmp_path / "results.md").read_text())
