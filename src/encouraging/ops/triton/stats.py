"""By-products of a loss: what the kernels know of every row anyway."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...curves import Curve
from .problem import Problem


class ByProducts(NamedTuple):
    """Buffers of the kernels, flat, one number per row."""

    p: Tensor
    lse: Tensor
    argmax: Tensor


class Stats(NamedTuple):
    """By-products of a loss, detached: the label's probability (NaN where there is no label), logsumexp and argmax of
    the logits, of the target's shape; and ``past``, the share of labelled rows beyond a probability."""

    p: Tensor
    lse: Tensor
    argmax: Tensor
    past: Tensor


def empty_by_products(problem: Problem) -> ByProducts:
    """Room for the kernels' by-products."""
    p = torch.empty(problem.target.shape[0], dtype=torch.float32, device=problem.logits.device)
    return ByProducts(p, torch.empty_like(p), torch.empty_like(p, dtype=torch.int64))


def by_products_of(logits: Tensor, target: Tensor, ignore_index: int) -> ByProducts:
    """The same in plain operations, for graphs that a compiler sees."""
    logits = logits.detach().float()
    logits = logits if logits.ndim == 2 else logits.movedim(1, -1).flatten(0, 1)
    label = target.reshape(-1).long()
    known = (label != ignore_index) & (label >= 0) & (label < logits.shape[1])
    lse = logits.logsumexp(-1)
    own = logits.gather(-1, torch.where(known, label, 0).long()[:, None])[:, 0]
    return ByProducts(torch.where(known, (own - lse).exp(), torch.nan), lse, logits.argmax(-1))


def count_past(by_products: ByProducts, curve: Curve, past: bool | float, shape: torch.Size) -> Stats:
    """The by-products in the target's shape, and the share of labelled rows past a probability."""
    edge = _edge(curve) if past is True else float(past)
    p, lse, argmax = (flat.reshape(shape) for flat in by_products)
    return Stats(p, lse, argmax, (p > edge).sum() / (~p.isnan()).sum())


def _edge(curve: Curve) -> float:
    for name in ("log_end", "start", "halt"):
        if name in curve.params:
            return float(curve.params[name])
    return 0.5
