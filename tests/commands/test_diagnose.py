"""``encouraging diagnose``: one pass over a file, ten lines in the terminal, a page and the numbers."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import save_file
from torch import Tensor
from typer.testing import CliRunner

from encouraging.cli import app
from encouraging.commands.diagnose import read_through
from encouraging.commands.diagnosis_table import percent
from encouraging.data import arrays
from encouraging.data.logits import open_logits
from encouraging.metrics import Reader
from encouraging.report import diagnosis_page as diagnosis_page_module

WIDE = {"COLUMNS": "400", "TERM": "dumb"}


def run(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["diagnose", *map(str, words)], env=WIDE)


def content(n: int = 300, classes: int = 5) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    logits, labels = 2 * torch.randn(n, classes, generator=g), torch.randint(classes, (n,), generator=g)
    logits[torch.arange(n), labels] += 5
    return {"logits": logits.half(), "labels": labels, "ood_logits.far": torch.randn(50, classes, generator=g).half(),
            "class_counts": torch.tensor([500, 400, 50, 5, 5])[:classes]}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_file(content(), tmp_path / "mine.safetensors")
    return tmp_path / "mine.safetensors"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Mapping[str, Any], str, Sequence[str]]]:
    """Stands in for the page and keeps what it was given."""
    given: list[tuple[Mapping[str, Any], str, Sequence[str]]] = []

    def diagnosis_page(diagnosis: Mapping[str, Any], title: str, notes: Sequence[str] = (),
                       warnings: Sequence[str] = ()) -> str:
        given.append((diagnosis, title, [*warnings, *notes]))
        return f"<title>{title}</title>"

    monkeypatch.setattr(diagnosis_page_module, "diagnosis_page", diagnosis_page)
    return given


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


def test_class_names_and_a_profile(tmp_path: Path, mine: Path, page: list[Any]) -> None:
    names = tmp_path / "names.txt"
    names.write_bytes("\ufeffKätzchen\r\ndog\r\nhorse\r\nship\r\n[bold]odd[/]\r\n\r\n".encode())
    result = run(mine, "--names", names, "--profile", "2")
    assert result.exit_code == 0, result.output
    assert page[0][0]["class_names"][:2] == ["Kätzchen", "dog"]
    assert any(name in result.output for name in ("Kätzchen", "dog", "horse", "ship", "[bold]odd[/]"))
    names.write_text("cat\n")
    result = run(mine, "--names", names)
    assert result.exit_code == 2
    assert "expected 5 lines, one per class, got 1" in result.stderr


def test_more_than_32_classes_have_the_one_profile_that_is_asked_for(tmp_path: Path, page: list[Any],
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    held = content(200, 40) | {"class_counts": torch.ones(40)}
    save_file(held, "many.safetensors")
    assert run("many.safetensors", "--profile", "7").exit_code == 0
    assert list(page[0][0]["energy"]["profiles"]) == ["7"]


@pytest.mark.parametrize("classes", [5, 40])
def test_the_energies_drawn_are_those_of_the_weakest_class_or_of_the_one_that_was_chosen(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int) -> None:
    """Of more than 32 classes one profile is kept, and which class is the weakest is known only at the end."""
    monkeypatch.chdir(tmp_path)
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(400) % classes
    logits = torch.randn(400, classes, generator=g) + 4 * torch.nn.functional.one_hot(labels, classes)
    logits[labels == 3, 3] -= 6
    save_file({"logits": logits, "labels": labels}, "mine.safetensors")
    for words, label, called in (([], 3, "of class 3, the class with the lowest accuracy;"),
                                 (["--profile", "2"], 2, "Panel of class 2: the mean energy of every class over the "
                                                         "examples of class 2;")):
        assert run("mine.safetensors", "--json", "found.json", *words).exit_code == 0
        profile = json.loads(Path("found.json").read_text())["energy"]["profiles"][str(label)]
        assert profile["examples"] == int((labels == label).sum())
        assert profile["energies"] == pytest.approx((-logits[labels == label]).double().mean(0).tolist())
        page = " ".join(Path("diagnosis.html").read_text().split())
        assert called in page
        assert "Second panel: the energy on the data" in page


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


def test_probabilities_in_the_place_of_logits_are_noticed(tmp_path: Path, page: list[Any]) -> None:
    given = content()
    given["logits"] = given["logits"].float().softmax(1)
    save_file({name: tensor.contiguous() for name, tensor in given.items()}, tmp_path / "mine.safetensors")
    result = run(tmp_path / "mine.safetensors", "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert any("probabilities, not logits" in note for note in page[0][2])
    assert "probabilities, not logits" in " ".join(result.output.split())


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


@pytest.mark.hardening(13)
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


@pytest.mark.hardening(13)
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


NAMES = ["cat", "dog", "aeroplane", "ship", "frog"]


def test_names_are_on_the_axis_and_name_the_profile(mine: Path) -> None:
    Path("names.txt").write_text("\n".join(NAMES))
    result = run(mine, "--names", "names.txt", "--profile", "ship")
    assert result.exit_code == 0, result.output
    figures = re.findall(r"<svg.*?</svg>", Path("diagnosis.html").read_text(), re.DOTALL)
    profile = next(figure for figure in figures if ">aeroplane<" in figure)
    assert all(f">{name}<" in profile for name in NAMES)
    assert not any(f">{label}<" in profile for label in range(1, 5))


def test_a_profile_is_chosen_by_name_or_number(mine: Path, page: list[Any]) -> None:
    save_file({"logits": torch.randn(80, 40), "labels": torch.arange(80) % 40}, "many.safetensors")
    Path("names.txt").write_text("\n".join(f"class-{label}" for label in range(40)))
    for word in ("class-7", "7"):
        assert run("many.safetensors", "--names", "names.txt", "--profile", word).exit_code == 0
        assert list(page.pop()[0]["energy"]["profiles"]) == ["7"]


def test_numbers_of_few_examples_are_called_rough(mine: Path, page: list[Any]) -> None:
    assert "rough" not in run(mine).output
    few = content(n=29)
    save_file({**few, "ood_logits": few["ood_logits.far"][:1].clone()}, "few.safetensors")
    said = run("few.safetensors").output
    assert "With 29 examples these numbers are rough." in said
    assert "With 1 out-of-distribution example the detection rates are rough." in said
    assert "of far" not in said  # has 50
    assert page[-1][2][-2:] == [line for line in said.splitlines() if line.endswith("rough.")]


def test_a_single_panel_of_energies_is_not_called_the_second(mine: Path) -> None:
    save_file({"logits": torch.randn(78, 40), "labels": 1 + torch.arange(78) % 39}, "many.safetensors")
    save_file({"logits": torch.randn(78, 4100), "labels": torch.arange(78)}, "most.safetensors")  # without profiles
    for words, says in ((["most.safetensors"], "The energy on the data (filled)"),
                        (["many.safetensors", "--profile", "0"], "The energy on the data (filled)"),  # has no examples
                        (["many.safetensors", "--profile", "7"], "Second panel: the energy"),
                        (["many.safetensors"], "Second panel: the energy")):
        assert run(*words).exit_code == 0
        page = " ".join(Path("diagnosis.html").read_text().split())
        assert says in page
        assert ("Second panel" in page) == says.startswith("Second")


@pytest.mark.parametrize(("words", "message"), [
    (["--profile", "dog"], "--profile dog: expected a class of these logits, 0 to 4, or one of the names that --names"),
    (["--profile", "9"], "--profile 9: expected a class of these logits, 0 to 4"),
    (["--profile", "-1"], "--profile -1: expected a class"),
    (["--profile", "dgo", "--names", "names.txt"], "or one of its 5 names. Did you mean 'dog'?"),
])
def test_a_profile_of_no_class_is_refused(mine: Path, words: list[str], message: str) -> None:
    Path("names.txt").write_text("\n".join(NAMES))
    result = run(mine, *words)
    assert result.exit_code == 2
    assert message in result.output


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
