"""What ``encouraging diagnose`` answers to files that it cannot use, or that may not be what it takes them for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import save_file

from diagnose_calls import content, run
from encouraging.data import arrays
from encouraging.data.logits import open_logits


@pytest.mark.parametrize(("arguments", "says"), [
    (["none.safetensors"], "there is no such file"),
    (["mine.safetensors", "--profile", "5"], "--profile 5: expected a class of these logits, 0 to 4"),
    (["mine.safetensors", "-o", "no/such/page.html"], "there is no folder no/such; create it first"),
    (["mine.safetensors", "--json", "no/such/file.json"], "there is no folder no/such"),
    (["mine.safetensors", "--names", "none.txt"], "expected a text file"),
    (["broken.npz"], "broken.npz: logits: row 2 has NaN"),
    (["strange.npz"], "strange.npz: ood_logits: row 1 has NaN"),
    (["labels.npz"], "labels.npz: labels: row 1 has 9, expected 0 to 1"),
])
def test_what_is_wrong_gets_exit_code_2_and_one_line(tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch,
                                                     arguments: list[str], says: str) -> None:
    monkeypatch.setattr(arrays, "BLOCK", 2)  # a row a block: rows are counted through the file
    bad = np.zeros((4, 2))
    bad[2, 1] = np.nan
    np.savez("broken.npz", logits=bad, labels=np.zeros(4, int))
    np.savez("strange.npz", logits=np.zeros((4, 2)), labels=np.zeros(4, int), ood_logits=bad[1:])
    np.savez("labels.npz", logits=np.zeros((4, 2)), labels=np.array([0, 9, 0, 0]))
    before = set(tmp_path.iterdir())
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert set(tmp_path.iterdir()) == before


def test_probabilities_in_the_place_of_logits_are_noticed(tmp_path: Path, page: list[Any]) -> None:
    given = content()
    given["logits"] = given["logits"].float().softmax(1)
    save_file({name: tensor.contiguous() for name, tensor in given.items()}, tmp_path / "mine.safetensors")
    result = run(tmp_path / "mine.safetensors", "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert any("probabilities, not logits" in note for note in page[0][2])
    assert "probabilities, not logits" in " ".join(result.output.split())


@pytest.mark.parametrize("columns", [1, 5])
def test_the_hint_at_probabilities_comes_before_the_numbers(tmp_path: Path, columns: int) -> None:
    given = content()
    given["logits"] = given["logits"].float().softmax(1)
    if columns == 1:
        given = {"logits": given["logits"][:, :1], "labels": (given["labels"] == 0).long()}
    save_file({name: tensor.contiguous() for name, tensor in given.items()}, tmp_path / "mine.safetensors")
    result = run(tmp_path / "mine.safetensors", "-o", tmp_path / "page.html")
    for text in (" ".join(result.output.split()), (tmp_path / "page.html").read_text().split("<header>")[1]):
        assert 0 <= text.index("probabilities, not logits") < text.index("%")


def advised(said: str) -> None:
    """Run the line of Python that a message ends with."""
    line = said.strip()[said.index(re.search(r"import numpy|from safetensors", said)[0]) :]  # type: ignore[index]
    exec(line, {})


def test_a_table_of_text_is_answered_with_the_line_that_converts_it(mine: Path) -> None:
    for name, mark in (("mine.csv", ","), ("mine.tsv", "\t"), ("mine.txt", " ")):
        rows = [mark.join("abc"), *(mark.join(map(str, row)) for row in ((0.5, -1, 0), (2, 3.5, 1)))]
        Path(name).write_text("\n".join(rows))
        result = run(name)
        assert result.exit_code == 2
        assert result.output.count("\n") == 1
        advised(result.output)
        with np.load("mine.npz") as found:
            assert found["logits"].tolist() == [[0.5, -1], [2, 3.5]]
            assert found["labels"].tolist() == [0, 1]


@pytest.mark.parametrize("names", [("outputs", "targets"), ("logits", "y"), ("whatever", "labels"), ("scores", "mine"),
                                   ("arr_0", "arr_1")])
def test_arrays_of_other_names_are_answered_with_the_line_that_renames_them(mine: Path, names: tuple[str, str]) -> None:
    held = dict(zip(names, (torch.randn(6, 3), torch.arange(6) % 3), strict=True))
    np.savez("other.npz", **{name: tensor.numpy() for name, tensor in held.items()})
    save_file(held, "other.safetensors")
    for name, renamed in (("other.npz", "renamed.npz"), ("other.safetensors", "renamed.safetensors")):
        result = run(name)
        assert result.exit_code == 2
        assert "it holds " in result.output
        assert result.output.count("\n") == 1
        advised(result.output)
        assert run(renamed).exit_code == 0
    Path("folder").mkdir()
    for name, tensor in held.items():
        np.save(f"folder/{name}.npy", tensor.numpy())
    assert f"Rename {names[0]}.npy to logits.npy" in run("folder").output or names[0] == "logits"


def test_arrays_that_could_be_anything_get_no_advice(mine: Path) -> None:
    np.savez("other.npz", a=np.zeros(3), b=np.zeros(3), c=np.zeros(3))
    assert "Rename" not in run("other.npz").output


@pytest.mark.parametrize(("name", "text"), [
    ("mine.json", '{"logits": [[0.5, -1], [2, 3.5]], "labels": [0, 1]}'),
    ("mine.json", '[{"logits": [0.5, -1], "label": 0}, {"logits": [2, 3.5], "label": 1}]'),
    ("mine.jsonl", '{"logits": [0.5, -1], "label": 0}\n{"logits": [2, 3.5], "label": 1}\n'),
])
def test_json_is_answered_with_the_line_that_converts_it(mine: Path, name: str, text: str) -> None:
    Path(name).write_text(text)
    result = run(name)
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    advised(result.output)
    with np.load("mine.npz") as found:
        assert found["logits"].tolist() == [[0.5, -1], [2, 3.5]]
        assert found["labels"].tolist() == [0, 1]
    assert run("mine.npz").exit_code == 0


@pytest.mark.parametrize(("labels", "advice"), [
    (np.eye(3, dtype="float32"), "one-hot rows. Several labels per example are not supported."),
    (np.eye(3, dtype="int64"), "Take labels.argmax(1) of one-hot rows. Several labels per example are not supported."),
    (np.zeros((3, 1)), "Take labels[:, 0].astype(int)."),
])
def test_one_hot_labels_of_any_type_get_the_right_advice_at_once(mine: Path, labels: Any, advice: str) -> None:
    np.savez("hot.npz", logits=np.eye(3), labels=labels)
    result = run("hot.npz")
    assert result.exit_code == 2
    assert result.output.strip().endswith(advice)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_probabilities_come_with_the_line_that_makes_logits_of_them(mine: Path, columns: int, ending: str) -> None:
    logits = np.random.default_rng(0).normal(size=(50, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    arrays = {"logits": probabilities if columns == 3 else 1 / (1 + np.exp(-logits[:, :1])),
              "labels": np.arange(50) % 2, "ood_logits": probabilities[:, :columns].copy()}
    np.savez("p.npz", **arrays) if ending == "npz" else save_numpy(arrays, "p.safetensors")
    result = run(f"p.{ending}")
    assert result.exit_code == 0, result.output
    line = next(line for line in result.output.splitlines() if line.startswith("import numpy"))
    assert result.output.index(line) < result.output.index("calibration")
    exec(line, {})
    again = run(f"logs.{ending}", "--json", "logs.json")
    assert "probabilities, not logits" not in again.output
    difference = logits[:, :1] if columns == 1 else logits
    found = open_logits(f"logs.{ending}").logits
    kept = next(found.blocks())[:, 1:] if columns == 1 else next(found.blocks())
    np.testing.assert_allclose(kept - kept.mean(1, keepdim=True) * (columns == 3),
                               difference - difference.mean(1, keepdims=True) * (columns == 3), atol=1e-9)


@pytest.mark.parametrize("columns", [1, 3])
def test_the_line_for_probabilities_also_takes_those_that_are_0_or_1(mine: Path, columns: int) -> None:
    """As of neighbours and trees, and of a softmax or sigmoid that float32 has rounded."""
    p = np.array([[0.0, 1, 0], [1, 0, 0], [0.25, 0.75, 0]], "float32") if columns == 3 else \
        np.array([[0.0], [1], [0.25]], "float32")
    np.savez("p.npz", logits=p, labels=np.array([0, 0, 1]))
    line = next(line for line in run("p.npz").output.splitlines() if line.startswith("import numpy"))
    exec(line, {})
    again = run("logs.npz", "--json", "logs.json")
    assert again.exit_code == 0, again.output
    accuracy = json.loads(Path("logs.json").read_text())["accuracy"]
    assert accuracy == pytest.approx(100 * (2 if columns == 3 else 1) / 3)


def test_a_label_whose_logit_is_minus_infinity_is_told_from_other_numbers(mine: Path) -> None:
    np.savez("zero.npz", logits=np.array([[0.0, -np.inf], [0, -np.inf]]), labels=np.array([0, 1]))
    result = run("zero.npz")
    assert result.exit_code == 2
    assert "row 1 has -inf for its label" in result.stderr
    assert "replace probabilities of 0 first" in result.stderr
