"""Calls of ``encouraging attack`` in tests, and the numbers that it has written beside a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from encouraging.cli import app

FEW = ["--examples", "40", "--eps", "0,0.1", "--eps-l2", "0,1", "--device", "cpu"]


def call(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["attack", *map(str, words), "--threads", "1"], env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    return " ".join(result.output.split())


def content(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "attacks.json").read_text()))


def accuracy_of(run: Path, attack: str, eps: float) -> float:
    return float(content(run)["attacks"][attack]["accuracy"][f"{eps:g}"])
