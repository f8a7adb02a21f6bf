"""The energies of one class that ``encouraging diagnose`` draws, and the names of classes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from diagnose_calls import content, run


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
