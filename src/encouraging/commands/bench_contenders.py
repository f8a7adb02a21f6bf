"""What ``encouraging bench`` measures: our losses beside torch's, Liger's and the published formula."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import curve_loss, curves, linear_curve_loss

EL = curves.encouraging(log_end=0.75)
CE = curves.cross_entropy()

Contender = Callable[..., Tensor]


def step(loss: Contender, leaves: Sequence[Tensor], target: Tensor, *, backward: bool = True) -> None:
    """One forward and backward pass; without ``backward`` only the gradients are removed."""
    for leaf in leaves:
        leaf.grad = None
    if not backward:
        return
    loss(*leaves, target).backward()  # type: ignore[no-untyped-call]


def loss_contenders(device: str) -> dict[str, Contender]:
    """Losses of logits and target by name."""
    contenders: dict[str, Contender] = {
        "ours, EL": lambda z, y: curve_loss(z, y, EL),
        "ours, CE": lambda z, y: curve_loss(z, y, CE),
        "ours, EL smoothed": lambda z, y: curve_loss(z, y, EL, label_smoothing=0.1),
        "torch CE": F.cross_entropy,
        "torch CE smoothed": lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1),
        "published EL": published,
    }
    if device == "cuda":
        contenders["torch.compile CE"] = torch.compile(F.cross_entropy, dynamic=False)
        liger = _liger("liger_cross_entropy")
        if liger is not None:
            contenders["Liger CE"] = lambda z, y: _loss_of(liger(z, y))
    return contenders


def layer_contenders(device: str) -> dict[str, Contender]:
    """Losses of hidden states, output layer and target by name."""
    def plain(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(hidden, weight), target)

    contenders: dict[str, Contender] = {
        "ours, EL": lambda h, w, y: linear_curve_loss(h, w, y, EL),
        "ours, EL, sums in the weight's type": lambda h, w, y: linear_curve_loss(h, w, y, EL, accumulate="weight"),
        "torch linear + CE": plain,
    }
    fused = getattr(F, "linear_cross_entropy", None)
    if fused is not None:
        contenders["torch linear_cross_entropy"] = lambda h, w, y: fused(h, w, y)
    if device == "cuda":
        contenders["torch.compile linear + CE"] = torch.compile(plain, dynamic=False)
        liger = _liger("liger_fused_linear_cross_entropy")
        if liger is not None:
            contenders["Liger fused linear CE"] = lambda h, w, y: _loss_of(liger(h, w, y))
    return contenders


def _liger(name: str) -> Callable[..., Any] | None:
    try:
        return getattr(importlib.import_module("liger_kernel.transformers.functional"), name, None)
    except ImportError:
        return None


def _loss_of(result: Any) -> Tensor:
    loss: Tensor = result[0] if isinstance(result, tuple) else result
    return loss


def published(logits: Tensor, target: Tensor, log_end: float = 0.75, eps: float = 1e-5) -> Tensor:
    """The encouraging loss as its authors wrote it, in plain operations: only here, to be measured."""
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    bonus = torch.log(torch.clamp(1.0 - p, min=eps))
    line = -1 / (1 - log_end) * (p - log_end) + math.log(1 - log_end)
    bonus = torch.where(p > log_end, line, bonus)
    return F.nll_loss(log_p - bonus, target)
