"""What the tests of ``encouraging diagnose`` share: the command, and a small file of logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from typer.testing import CliRunner

from encouraging.cli import app

WIDE = {"COLUMNS": "400", "TERM": "dumb"}


def run(*words: str | Path) -> Any:
    return CliRunner().invoke(app, ["diagnose", *map(str, words)], env=WIDE)


def content(n: int = 300, classes: int = 5) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    logits, labels = 2 * torch.randn(n, classes, generator=g), torch.randint(classes, (n,), generator=g)
    logits[torch.arange(n), labels] += 5
    return {"logits": logits.half(), "labels": labels, "ood_logits.far": torch.randn(50, classes, generator=g).half(),
            "class_counts": torch.tensor([500, 400, 50, 5, 5])[:classes]}
