"""``encouraging diagnose``: one pass over a file, ten lines in the terminal, a page and the numbers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file
from typer.testing import CliRunner

from diagnose_calls import WIDE, content, run
from encouraging.cli import app
from encouraging.commands.diagnose import read_through
from encouraging.commands.diagnosis_table import percent
from encouraging.data import arrays
from encouraging.data.logits import open_logits
from encouraging.metrics import Reader


def test_it_says_what_the_model_knows(mine: Path, page: list[Any]) -> None:
    result = run(mine, "--json", "mine.json")
    assert result.exit_code == 0, result.output
    found = json.loads(Path("mine.json").read_text())
    assert "wrote mine.json" in result.output
    assert "wrote diagnosis.html" in result.output
    assert Path("diagnosis.html").read_text() == "<title>mine.safetensors</title>"
    diagnosis, title, notes = page[0]
    assert title == "mine.safetensors"
    assert diagnosis["accuracy"] == found["accuracy"]
    assert notes == []
    for words in ("300 examples, 5 classes", f"accuracy     {found['accuracy']:.2f}%", "weakest classes",
                  f"ECE {found['calibration']['ece']:.4f}", "temperature",
                  f"median {found['margin']['median']:.4g}", "on the label", "far", "50 out-of-distribution examples",
                  "MaxLogit (minus the lowest energy): AUROC "
                  f"{found['ood']['far']['scores']['min_energy']['auroc']:.2f}", "many",
                  "of its gradient from examples below p = 0.9", "encouraging, LE 0.75"):
        assert words in result.output, words
    assert len(result.output.splitlines()) <= 18


def test_the_folder_where_one_is_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: list[Any]) -> None:
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "logits.npy", 8 * np.eye(40, dtype="float32"))
    np.save(tmp_path / "arrays" / "labels.npy", np.arange(40))
    monkeypatch.chdir(tmp_path / "arrays")
    assert run(".").output.startswith("arrays: 40 examples")


def test_the_probability_in_float32_has_a_line_only_where_rounding_costs_something(mine: Path, page: list[Any]) -> None:
    assert "in float32" not in run(mine).output
    narrow = CliRunner().invoke(app, ["diagnose", str(mine)], env=WIDE | {"COLUMNS": "60"}).output.splitlines()
    first = next(number for number, line in enumerate(narrow) if "log-odds of the top class" in line)
    assert all(line.startswith(" " * 15) for line in narrow[first:first + 6])  # what does not fit stays below its score
    held = content()
    save_file(held | {name: 20 * held[name].float() for name in ("logits", "ood_logits.far")}, mine)
    assert "highest probability in float32" in run(mine).output


def test_the_numbers_are_a_reader_s(mine: Path) -> None:
    held = content()
    reader = Reader(5)
    reader.update(held["logits"], held["labels"])
    reader.update_outside(held["ood_logits.far"], "far")
    assert read_through(open_logits(mine)) == reader.diagnosis(counts=held["class_counts"])


@pytest.mark.parametrize("form", ["safetensors", "npz", "folder", "run"])
def test_every_form_gives_the_same(tmp_path: Path, mine: Path, page: list[Any], form: str) -> None:
    held = {key: value.numpy() for key, value in content().items()}
    match form:
        case "safetensors":
            path = mine
        case "npz":
            path = tmp_path / "mine.npz"
            np.savez_compressed(path, **held)
        case "folder":
            path = tmp_path / "arrays"
            path.mkdir()
            for key, value in held.items():
                np.save(path / f"{key}.npy", np.asfortranarray(value))
        case _:
            path = tmp_path / "seed0"
            path.mkdir()
            mine.rename(path / "logits.safetensors")
    result = run(path, "-o", "page.html", "--json", "found.json")
    assert result.exit_code == 0, result.output
    assert Path("page.html").exists()
    found = json.loads(Path("found.json").read_text())
    mirror = Reader(5)
    mirror.update(content()["logits"], content()["labels"])
    assert found["nll"] == pytest.approx(mirror.diagnosis()["nll"])
    assert found["ood"]["far"]["examples"] == 50


def test_blocks_do_not_change_the_numbers(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_through(open_logits(mine))
    monkeypatch.setattr(arrays, "BLOCK", 35)
    streamed = read_through(open_logits(mine))
    assert streamed["calibration"]["temperature"] == pytest.approx(whole["calibration"]["temperature"])
    assert streamed["ood"]["far"]["scores"]["free_energy"]["auroc"] == pytest.approx(
        whole["ood"]["far"]["scores"]["free_energy"]["auroc"])
    assert streamed["energy"]["profiles"]["1"] == {
        "examples": whole["energy"]["profiles"]["1"]["examples"],
        "energies": pytest.approx(whole["energy"]["profiles"]["1"]["energies"])}


def test_logits_and_labels_alone_are_enough(tmp_path: Path, page: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("two.npz", logits=np.array([[1.0, 0.0]]), labels=np.array([0]))
    result = run("two.npz", "--json", "two.json")
    assert result.exit_code == 0, result.output
    assert "two.npz: 1 example, 2 classes" in result.output
    assert "out-of-distribution" not in result.output
    assert "frequency" not in result.output
    np.savez("sure.npz", logits=np.array([[1e4, -np.inf], [-np.inf, 1e4]]), labels=np.array([0, 1]))
    result = run("sure.npz", "--json", "sure.json")
    assert result.exit_code == 0, result.output
    json.loads(Path("sure.json").read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_a_person_who_watches_sees_a_bar(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(force_terminal=True, width=100, record=True, file=io.StringIO())
    with console.file:
        read_through(open_logits(mine), None, console)
        assert "reading logits" in console.export_text()


def test_detection_rates_that_need_two_lines_are_indented_in_both(mine: Path, page: list[Any]) -> None:
    result = CliRunner().invoke(app, ["diagnose", str(mine)], env={"COLUMNS": "60", "TERM": "dumb"})
    lines = result.stdout.splitlines()
    first = next(number for number, line in enumerate(lines) if "MaxLogit" in line)
    assert "FPR95" not in lines[first]
    starts = [len(line) - len(line.lstrip()) for line in lines[first:first + 2]]
    assert starts == [len("calibration    ")] * 2


@pytest.mark.parametrize(("share", "words"), [(0.0, "0%"), (1.0, "100%"), (0.5, "50%"), (0.9999, "99.99%"),
                                              (0.0004, "0.04%"), (0.126, "13%")])
def test_a_percent_is_never_rounded_to_all_or_nothing(share: float, words: str) -> None:
    assert percent(share) == words


def test_the_real_page_and_the_real_command(mine: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "encouraging", "diagnose", "mine.safetensors", "-o", "page.html"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "wrote page.html" in done.stdout
    assert "mine.safetensors" in Path("page.html").read_text()


def test_a_temperature_at_its_bound_is_said_to_be_one(tmp_path: Path, page: list[Any]) -> None:
    labels = torch.arange(40) % 4
    save_file({"logits": 9.0 * torch.eye(4)[labels], "labels": labels}, tmp_path / "mine.safetensors")
    assert run(tmp_path / "mine.safetensors", "-o", tmp_path / "page.html").exit_code == 0
    assert any("right without exception" in note for note in page[0][2])


@pytest.mark.parametrize(("label", "words"), [(0, "right without exception"), (1, "no better than chance")])
def test_a_temperature_from_two_examples_is_fitted_on_one_and_evaluated_on_the_other(
        tmp_path: Path, page: list[Any], label: int, words: str) -> None:
    path = tmp_path / "two.npz"
    np.savez(path, logits=np.array([[2.0, 0.0], [3.0, 1.0]]), labels=np.array([label, label]))
    result = run(path, "-o", tmp_path / "page.html", "--json", tmp_path / "two.json")
    assert result.exit_code == 0, result.output
    scaled = json.loads((tmp_path / "two.json").read_text())["calibration"]["temperature"]
    assert (scaled["fitted_on"], scaled["judged_on"]) == (1, 1)
    assert scaled["value"] > 0
    assert "fitted on 1 of the examples" in result.output
    assert any(words in note for note in page[0][2])


def test_nothing_is_written_over_what_is_read(mine: Path, page: list[Any]) -> None:
    before = mine.read_bytes()
    assert "this file is read by the command itself" in " ".join(run(mine, "-o", mine).output.split())
    assert "cannot be one file" in " ".join(run(mine, "-o", "a.html", "--json", "a.html").output.split())
    assert "there is no such file" in " ".join(run("none.npz", "-o", mine).output.split())
    assert mine.read_bytes() == before
    assert page == []


def test_a_single_column_is_the_logit_of_class_1(tmp_path: Path, page: list[Any]) -> None:
    random = np.random.default_rng(0)
    z, labels = random.normal(size=30), random.integers(2, size=30)
    np.savez(tmp_path / "binary.npz", logits=z[:, None], labels=labels)
    result = run(tmp_path / "binary.npz", "-o", tmp_path / "page.html", "--json", tmp_path / "found.json")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["accuracy"] == pytest.approx(100 * ((z > 0) == labels).mean())
    assert found["nll"] == pytest.approx(np.log1p(np.exp(-np.where(labels == 1, z, -z))).mean())
    assert "the logit of class 1" in result.output
    assert any("the logit of class 1" in note for note in page[0][2])


def test_numbers_of_few_examples_are_called_rough(mine: Path, page: list[Any]) -> None:
    assert "rough" not in run(mine).output
    few = content(n=29)
    save_file({**few, "ood_logits": few["ood_logits.far"][:1].clone()}, "few.safetensors")
    said = run("few.safetensors").output
    assert "With 29 examples these numbers are rough." in said
    assert "With 1 out-of-distribution example the detection rates are rough." in said
    assert "of far" not in said  # has 50
    assert page[-1][2][-2:] == [line for line in said.splitlines() if line.endswith("rough.")]


def test_a_sure_model_without_skill_is_asked_about_its_labels(tmp_path: Path, page: list[Any],
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels in another order, or of another numbering, look like a bad model."""
    monkeypatch.chdir(tmp_path)
    held = content(300, 5)
    logits, labels = 4 * held["logits"].numpy(), held["labels"].numpy()
    doubts = "not clearly better than a constant answer"
    np.savez("right.npz", logits=logits, labels=labels)
    assert doubts not in run("right.npz").output
    np.savez("shuffled.npz", logits=logits, labels=np.random.default_rng(0).permutation(labels))
    output = run("shuffled.npz").output
    assert 0 <= output.index(doubts) < output.index("calibration")
    assert "Check that the labels are in the order of the rows" in output
    assert "count from 1" not in output
    assert doubts in page[1][2][0]
    np.savez("from1.npz", logits=logits[labels < 4], labels=labels[labels < 4] + 1)
    assert "The smallest label is 1: do they count from 1?" in run("from1.npz").output
    np.savez("unsure.npz", logits=[[0.1, 0]] * 40, labels=np.arange(40) % 2)
    output = run("unsure.npz").output
    assert doubts in output
    assert "Check that the labels" not in output
    np.savez("few.npz", logits=np.zeros((4, 2)), labels=np.arange(4) % 2)
    assert doubts not in run("few.npz").output


def test_a_frequent_class_and_classes_without_examples_are_named(tmp_path: Path, page: list[Any],
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    labels = np.array([0] * 80 + [2] * 20)
    logits = 5 * np.eye(4)[np.where(np.arange(100) < 90, labels, 0)]  # half of class 2 is taken for class 0
    np.savez("rare.npz", logits=logits, labels=labels)
    Path("names.txt").write_text("cat\ndog\nhorse\nship\n")
    output = run("rare.npz", "--names", "names.txt").output
    assert ("Class cat has 80.0% of the examples, so always answering cat would have an accuracy of 80.0%. The "
            "balanced accuracy, the mean over the classes, is 75.0%.") in output
    assert "2 of 4 classes have no examples here, so nothing is known about them: dog and ship." in output
    assert any("dog and ship" in note for note in page[0][2])
    np.savez("one.npz", logits=np.eye(9)[[1] * 40], labels=np.ones(40, int))
    output = run("one.npz").output
    assert "8 of 9 classes have no examples here, so nothing is known about them: 0, 2, 3, 4, 5 and 3 more." in output
    assert "constant answer" not in output
    assert "always answering" not in output


def test_two_or_three_classes_all_have_their_accuracy(mine: Path) -> None:
    """Of a rare class and a frequent one, the accuracy of all examples says little."""
    labels = np.array([0] * 50 + [1] * 10)
    np.savez("fraud.npz", logits=np.where(np.arange(60) < 53, -2.0, 2.0)[:, None], labels=labels)
    assert "; by class: 0 (100.0%), 1 (70.0%)" in run("fraud.npz", "-o", "page.html").output
    assert "By class: 0 (100.0%), 1 (70.0%)." in Path("page.html").read_text()
    assert "weakest classes" not in Path("page.html").read_text().lower()


def test_logits_are_read_through_the_loss_of_their_model(tmp_path):
    """Labels that are right 60% of the time, and a model at the optimum of its loss for them."""
    logits = np.log(np.tile([0.8485, 0.1515], (1000, 1)))
    labels = np.array([0] * 600 + [1] * 400)
    np.savez(tmp_path / "model.npz", logits=logits, labels=labels)
    result = CliRunner().invoke(app, ["diagnose", str(tmp_path / "model.npz"), "--curve", "encouraging:log_end=0.75",
                                      "--out", str(tmp_path / "page.html"), "--json", str(tmp_path / "numbers.json")])
    assert result.exit_code == 0, result.output
    read = json.loads((tmp_path / "numbers.json").read_text())
    assert read["calibration"]["ece"] == pytest.approx(0, abs=1e-3)
    assert "conservative(log_end=0.75) stands for" in " ".join(result.output.split())
    assert "stands for" in (tmp_path / "page.html").read_text()
    wrong = CliRunner().invoke(app, ["diagnose", str(tmp_path / "model.npz"), "--curve", "encouragin"])
    assert wrong.exit_code == 2
    assert "encouraging" in wrong.output
