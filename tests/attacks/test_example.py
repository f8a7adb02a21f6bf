"""The example runs, and the table of the documentation is the one that it prints."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

REPOSITORY = Path(__file__).parents[2]


def test_the_table_of_the_documentation_is_the_examples(capsys: pytest.CaptureFixture[str],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("attacks_example", REPOSITORY / "examples" / "attacks.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "Console", lambda: Console(width=200))
    with torch.random.fork_rng():
        example.main()
    printed = capsys.readouterr().out
    assert "makes the model look more robust than it is" in printed
    page = (REPOSITORY / "docs" / "attacks.md").read_text()
    number = r"-?\d+\.\d"
    for name in ("CE", "EL 0.75", "EL 1", "CE x 8", "CE x 32"):
        (shown,) = re.findall(rf"│ {re.escape(name)} +│(.*)│", printed)
        (written,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", page, re.MULTILINE)
        # Matrix products round differently on other processors, and 900 images are 0.1 points each.
        assert [float(x) for x in re.findall(number, shown)] == pytest.approx(
            [float(x) for x in re.findall(number, written)], abs=2.0)
    for heading in example.COLUMNS:
        assert f"| {heading} |" in page
