"""mypy proves that every task of the package is one, and refuses a class that is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from encouraging.tasks import TASKS

REPOSITORY = Path(__file__).parents[2]
WRONG = """
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from encouraging.engine import Predictions
from encouraging.tasks import BaseTask, Loss, Task

Batch = tuple[Tensor, ...]


class Fine(BaseTask[Batch]):
    def build(self) -> nn.Module:
        return nn.Linear(2, 2)

    def loss(self, model: nn.Module, batch: Batch, objective: Any) -> Loss:
        return Loss(model(batch[0]).sum(), 1)


class WordsForNumbers(Fine):
    def evaluate(self, predictions: Sequence[Predictions]) -> str:  # type: ignore[override]
        return "good"


class WithoutLoss:
    metrics = ()


fine: type[Task[Batch]] = Fine
words: type[Task[Batch]] = WordsForNumbers
nothing: type[Task[Batch]] = WithoutLoss
"""


def test_mypy_accepts_every_task_and_refuses_what_is_none(tmp_path: Path) -> None:
    """With the repository's settings and cache, which ``make lint`` has filled."""
    lines = ["from typing import Any"]
    for number, (module, name) in enumerate(TASKS.values()):
        lines += [f"from encouraging.tasks.{module} import {name}", f"known{number}: type[Task[Any]] = {name}"]
    path = tmp_path / "some_tasks.py"
    path.write_text("\n".join([WRONG, *lines]))
    ended = subprocess.run([sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", path], cwd=REPOSITORY,
                           capture_output=True, text=True, timeout=250)
    errors = [line for line in ended.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 2, ended.stdout + ended.stderr
    for error, name in zip(errors, ("WordsForNumbers", "WithoutLoss"), strict=True):
        assert f'expression has type "type[{name}]"' in error
