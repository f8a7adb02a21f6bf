"""The embedded dataset: the 1797 handwritten digits of 8 x 8 pixels that ship with scikit-learn."""

from __future__ import annotations

import torch
from torch import Tensor

TRAIN = 1200


def read_digits(split: str) -> tuple[Tensor, Tensor]:
    """Images (N, 1, 8, 8) as uint8 from 0 to 16 and labels: 1200 to train on, 597 to test.

    The file is ordered by writer, so the split is a fixed permutation of it: the same for every seed and machine.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.from_numpy(digits.images).to(torch.uint8).unsqueeze(1)
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    chosen = order[:TRAIN] if split == "train" else order[TRAIN:]
    return images[chosen], labels[chosen]
