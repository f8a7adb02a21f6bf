"""Join predictions that several ranks computed in numbered pieces."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..engine import Predictions


def joined(predictions: Sequence[Predictions], key: str = "logits") -> dict[str, Tensor]:
    """The logits, or another tensor, of every set. Each piece has its ``set``, its ``number`` in it and its tensors."""
    sets: dict[str, dict[int, Tensor]] = {}
    for piece in predictions:
        sets.setdefault(piece["set"], {})[piece["number"]] = piece[key]
    return {name: torch.cat([pieces[number] for number in sorted(pieces)]) for name, pieces in sets.items()}
