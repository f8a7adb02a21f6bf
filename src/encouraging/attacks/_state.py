"""What a measurement of accuracies has so far, in a file, so that a call that was stopped can be continued."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import torch
from torch import Tensor

from ._attack import Attack
from ._files import digest, read_json, write_json
from ._model import Model


@dataclass(frozen=True)
class Cell:
    """One attack at one epsilon, by the attack's name in the results."""

    name: str
    attack: Attack
    eps: float

    def key(self, batch_size: int) -> str:
        """AutoAttack draws per batch: its result depends on the batch size."""
        drawn = f" batch_size={batch_size}" if self.attack.method == "autoattack" else ""
        return f"{self.name} {self.attack!r} {self.eps!r}{drawn}"


class State:
    """The results of earlier calls, in a file; without a path nothing is stored."""

    def __init__(self, path: Path | None, model: Model, x: Tensor, y: Tensor, seed: int, batch_size: int) -> None:
        self.path = path
        self.batch_size = batch_size
        self.key = digest(model, x, y, seed) if path is not None else ""
        self.cells: dict[str, str] = {}
        if path is not None and path.exists():
            self.cells = read_json(path, self.key)["cells"]

    def get(self, cell: Cell, length: int) -> Tensor | None:
        bits = self.cells.get(cell.key(self.batch_size))
        if bits is None:
            return None
        return torch.tensor([bit == "1" for bit in f"{int(bits, 16):0{length}b}"])

    def put(self, cell: Cell, survived: Tensor) -> None:
        if self.path is None:
            return
        number = int("".join("1" if bit else "0" for bit in survived.tolist()), 2)
        self.cells[cell.key(self.batch_size)] = f"{number:x}"
        write_json(self.path, {"key": self.key, "cells": self.cells})
        _beside(self.path, cell, self.batch_size).unlink(missing_ok=True)

    def beside(self, cell: Cell) -> Path | None:
        """The path of AutoAttack's own state, beside this file."""
        return None if self.path is None else _beside(self.path, cell, self.batch_size)


def forget(path: Path, cells: Iterable[tuple[Cell, int]]) -> None:
    """Remove these cells, each with its batch size, from a state: their results are kept elsewhere. The file of a state
    without any other cell is removed."""
    cells = list(cells)
    for cell, batch_size in cells:
        _beside(path, cell, batch_size).unlink(missing_ok=True)
    if not path.exists():
        return
    state = read_json(path)
    for cell, batch_size in cells:
        state["cells"].pop(cell.key(batch_size), None)
    if state["cells"]:
        write_json(path, state)
    else:
        path.unlink()


def _beside(path: Path, cell: Cell, batch_size: int) -> Path:
    name = quote(cell.name, safe=" ")  # a name may hold a slash
    return path.with_name(f"{path.name}.{name}.{cell.eps:g}.{batch_size}")
