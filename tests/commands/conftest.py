"""Small finished runs of the digits, trained once for all tests of the commands that use them."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from encouraging.commands.run import run_recipe

RECIPE = """
about = "Digits under attack, for tests."
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
options = { ood = ["digits"] }
train = { epochs = 3, lr = 0.1, batch_size = 64, momentum = 0.9 }
[arms.ce]
curve = "cross_entropy"
[arms.el]
curve = "encouraging"
log_end = 1.0
[[claims]]
metric = "attacks.fgsm.0.1"
arm = "el"
beats = "ce"
paper = { ce = 50.0, el = 60.0 }
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the runs; copy it before writing into it."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "hit.toml").write_text(RECIPE)
    said = io.StringIO()
    code = run_recipe(str(folder / "hit.toml"), device="cpu", threads=1, jobs=1, out=folder / "runs",
                      console=Console(file=said, width=200))
    assert code == 0, said.getvalue()
    assert "encouraging attack" in said.getvalue()  # the claims are about attacks, and it says so
    return folder / "runs" / "hit"


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "hit"))
