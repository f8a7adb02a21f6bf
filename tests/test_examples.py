"""The examples run as their page says, and the page shows them as they are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from encouraging.engine.records import read_records
from task_laws import call

EXAMPLES = Path(__file__).parents[1] / "examples"
PAGE = (EXAMPLES.parent / "docs" / "own-tasks.md").read_text()
VERDICT = re.compile(r"^│ el beats ce: distance .*│ +(\S.*?) +│$", re.MULTILINE)
TABLE = re.compile(r"^│ (ce|el) +│ 3 │ *(\S+) ± \S+ │ *(\S+) ± ", re.MULTILINE)


@pytest.mark.parametrize(("name", "language", "lines"), [("own_task.py", "python", 60), ("own_task.toml", "toml", 15),
                                                         ("own_images/shapes.toml", "toml", 9)])
def test_the_page_shows_the_examples_which_are_short(name: str, language: str, lines: int) -> None:
    text = (EXAMPLES / name).read_text()
    assert f"```{language}\n{text}```" in PAGE
    assert len(text.splitlines()) <= lines


def test_an_own_task_prints_its_table(tmp_path: Path) -> None:
    printed = call("run", EXAMPLES / "own_task.toml", "--out", tmp_path, "--device", "cpu", "--jobs", "1")
    assert len(read_records(tmp_path)) == 6
    shown, written = (TABLE.findall(text) for text in (printed, PAGE))
    assert [arm for arm, *_ in shown] == ["ce", "el"]
    assert VERDICT.findall(printed) == VERDICT.findall(PAGE) != []
    for (_, *ours), (_, *theirs) in zip(shown, written, strict=True):
        # Matrix products round differently on other processors.
        assert [float(number) for number in ours] == pytest.approx([float(number) for number in theirs], rel=0.1)


def test_own_images_are_drawn_and_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["draw.py", "shapes"])
    runpy.run_path(str(EXAMPLES / "own_images" / "draw.py"), run_name="__main__")
    assert len(list(tmp_path.glob("shapes/*/*/*.png"))) == 300
    printed = call("run", EXAMPLES / "own_images" / "shapes.toml", "--device", "cpu", "--jobs", "1", "--seeds", "1",
                   "--set", "train.epochs=3")
    assert "ce seed 0: accuracy " in printed
    assert all(record.final["accuracy"] > 50 for record in read_records(tmp_path / "runs"))
