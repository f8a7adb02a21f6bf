"""Random states: set from a seed, saved in a checkpoint, restored."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """torch's states as tensors."""
    states = {"rng.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["rng.cuda"] = torch.cuda.get_rng_state(device)
    return states


def random_json() -> dict[str, Any]:
    """Python's and numpy's states as numbers."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {"python": [version, list(words), gauss],
            "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)]}


def restore_torch(tensors: dict[str, Tensor], device: torch.device) -> None:
    """Restore torch's states from copies: a rank's state is a row of a larger tensor, on which torch crashes."""
    torch.set_rng_state(tensors["rng.cpu"].clone())
    if device.type == "cuda" and "rng.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["rng.cuda"].clone(), device)


def restore(tensors: dict[str, Tensor], numbers: dict[str, Any], device: torch.device) -> None:
    restore_torch(tensors, device)
    version, words, gauss = numbers["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = numbers["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, cached))
