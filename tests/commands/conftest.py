"""Small finished runs of the digits, trained once for all tests of the commands, and a small file of logits."""

from __future__ import annotations

import io
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors.torch import save_file

from diagnose_calls import content
from encouraging.commands.run import run_recipe
from encouraging.report import diagnosis_page as diagnosis_page_module

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
