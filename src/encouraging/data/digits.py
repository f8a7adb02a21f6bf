"""The embedded dataset: the 1797 handwritten digits of 8 x 8 pixels that ship with scikit-learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import DataError

TRAIN = 1200


def read_digits(split: str) -> tuple[Tensor, Tensor]:
    """Images (N, 1, 8, 8) as uint8 from 0 to 16 and labels: 1200 to train on, 597 to test.

    The file is ordered by writer, so the split is a fixed permutation of it: the same for every seed and machine.
    """
    table = torch.from_numpy(np.loadtxt(_file(), np.uint8, delimiter=","))  # 64 pixels and the label
    images, labels = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    chosen = order[:TRAIN] if split == "train" else order[TRAIN:]
    return images[chosen], labels[chosen]


def _file() -> Path:
    """The file inside scikit-learn, found without importing scikit-learn, which takes a second."""
    spec = importlib.util.find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder, "datasets", "data", "digits.csv.gz")).is_file():
            return path
    raise DataError("digits: expected datasets/data/digits.csv.gz in scikit-learn: pip install scikit-learn.")
