"""Who calls whom: one batch of ``encouraging run digits`` and one call of a loss, followed through the package.

Every call from one layer to another goes to the left of the order of layers (tests/test_layers.py), but for the methods
of the task protocol, through which the engine calls a task. The architecture page lists the files of both walks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from encouraging import EncouragingLoss
from encouraging.curves import _together
from encouraging.engine import Task, train
from encouraging.recipes import read_recipe
from encouraging.recipes.grid import jobs_of, train_job
from test_layers import PLACE, ROOT, layer_of

PROTOCOL = {name for name in vars(Task) if not name.startswith("_")}
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


class Walk:
    """The calls between files of the package while :meth:`follow` runs."""

    def __init__(self) -> None:
        self.calls: set[tuple[str, str, str]] = set()
        self.files: dict[str, None] = {}

    def follow(self, work: Callable[..., Any], *arguments: Any) -> Any:
        sys.setprofile(self._note)
        try:
            return work(*arguments)
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        callee = file_of(frame)
        if event != "call" or callee is None or frame.f_code.co_name == "<module>":
            return
        self.files[callee] = None
        caller = frame.f_back
        while caller is not None and file_of(caller) is None:  # frames of torch and Python in between
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>":
            self.calls.add((str(file_of(caller)), callee, frame.f_code.co_name))

    def wrong(self) -> list[str]:
        return [f"{caller} calls {name} of {callee}" for caller, callee, name in sorted(self.calls)
                if PLACE[layer(caller)] < PLACE[layer(callee)] and not (layer(callee) == "tasks" and name in PROTOCOL)]


def file_of(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    return str(Path(name).relative_to(ROOT)) if name.startswith(f"{ROOT}/") else None


def layer(file: str) -> str:
    parts = Path(file).with_suffix("").parts
    return layer_of(parts if parts[-1] != "__init__" else parts[:-1])


def documented(heading: str) -> list[str]:
    """The files that a list of the page names."""
    part = PAGE.read_text().split(heading)[1].split("\n\n")[1]
    return re.findall(r"`([\w/]+\.py)`", part)


def forget_numbers() -> None:
    """As in a new process: other tests may have asked for the numbers of a curve as tensors."""
    for known in (_together.constant, _together._normal_constants, _together._conservative_constants):
        known.cache_clear()


def one_batch(tmp_path: Path, monkeypatch: Any) -> Walk:
    recipe = read_recipe("digits", ["seeds=1", "train.epochs=1", "train.milestones=[2]", "train.max_steps=3"])
    walk, epoch, quiet = Walk(), train.Trainer.train_epoch, []

    def followed(self: Any) -> None:
        walk.follow(epoch, self)
        quiet.append(True)

    forget_numbers()
    monkeypatch.setattr(train.Trainer, "train_epoch", followed)
    job = next(job for job in jobs_of(recipe, str(tmp_path), device="cpu") if job.arm == "el_1")
    train_job(job, lambda line: None)
    assert quiet
    return walk


def one_loss() -> Walk:
    walk, loss = Walk(), EncouragingLoss()
    logits, target = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 0])
    forget_numbers()
    walk.follow(lambda: loss(logits, target).backward())
    return walk


def test_one_batch_goes_from_right_to_left(tmp_path, monkeypatch):
    walk = one_batch(tmp_path, monkeypatch)
    assert {layer(file) for file in walk.files} >= {"engine", "tasks", "data", "models", "losses", "ops", "curves"}
    assert walk.wrong() == []
    assert documented("### One batch") == list(walk.files)


def test_one_loss_goes_from_right_to_left():
    walk = one_loss()
    assert {layer(file) for file in walk.files} >= {"modules", "losses", "ops", "curves"}
    assert walk.wrong() == []
    assert documented("### One loss") == list(walk.files)


def test_a_call_to_the_right_is_seen():
    walk = Walk()
    softmax = "losses/_softmax.py"
    walk.calls = {("curves/_focal.py", softmax, "curve_loss"), ("engine/train.py", "tasks/image.py", "loss"),
                  ("engine/train.py", "tasks/image.py", "helper"), (softmax, "curves/_focal.py", "value")}
    assert walk.wrong() == ["curves/_focal.py calls curve_loss of losses/_softmax.py",
                            "engine/train.py calls helper of tasks/image.py"]
