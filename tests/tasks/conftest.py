"""What tests of tasks share."""

from __future__ import annotations

from pathlib import Path

import pytest

from task_laws import call


@pytest.fixture(scope="module")
def runs(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Every arm and seed of the recipe of a module, and what the command printed."""
    out = tmp_path_factory.mktemp("runs")
    return out, call("run", recipe, "--out", out, "--device", "cpu", "--jobs", "1")
