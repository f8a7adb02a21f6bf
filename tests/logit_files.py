"""Files of logits in every form that is read, and what is read of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from encouraging.data.logits import Logits

N, C = 23, 4


def drawn(dtype: torch.dtype = torch.float32, n: int = N) -> Tensor:
    return (5 * torch.randn(n, C, generator=torch.Generator().manual_seed(n))).to(dtype)


LABELS = torch.arange(N) % C
COUNTS = torch.tensor([100, 10, 5, 1])

Writer = Callable[[Path, dict[str, Any]], Path]


def as_safetensors(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "mine.safetensors"
    save_file({key: torch.as_tensor(value).contiguous() for key, value in content.items()}, path)
    return path


def as_npz(folder: Path, content: dict[str, Any]) -> Path:
    np.savez(folder / "mine.npz", **{key: np.asarray(value) for key, value in content.items()})
    return folder / "mine.npz"


def as_deflated(folder: Path, content: dict[str, Any]) -> Path:
    np.savez_compressed(folder / "mine.npz", **{key: np.asarray(value) for key, value in content.items()})
    return folder / "mine.npz"


def as_folder(folder: Path, content: dict[str, Any]) -> Path:
    (folder / "mine").mkdir()
    for key, value in content.items():
        np.save(folder / "mine" / f"{key}.npy", np.asarray(value))
    return folder / "mine"


WRITERS = [as_safetensors, as_npz, as_deflated, as_folder]


def joined(found: Logits, rows: int | None = None) -> Tensor:
    parts = []
    for first, block, labels in found.blocks(rows):
        assert first == sum(map(len, parts))
        assert torch.equal(labels, found.labels[first : first + len(block)])
        parts.append(block.clone())  # good until the next one only
    return torch.cat(parts)
