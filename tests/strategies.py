"""Draws: logits from hopeless to certain, targets in every layout, and the arguments of the losses."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from paper_formulas import ALL_CURVES

CURVES = st.sampled_from(ALL_CURVES)
SEEDS = st.integers(0, 2**31)
REDUCTIONS = st.sampled_from(["none", "mean", "sum"])
LAYOUTS = st.sampled_from([(), (0,), (1,), (5,), (3, 4), (2, 3, 2), (2, 1, 2, 2)])  # of one loss an example


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows_with_gaps(gaps: Tensor, classes: int, seed: int, spread: float = 2.0) -> tuple[Tensor, Tensor]:
    """Logits (N, C) and labels (N) whose gaps, in float64, are the ones asked for."""
    g = generator(seed)
    logits = spread * torch.randn(len(gaps), classes, generator=g, dtype=torch.float64)
    label = torch.randint(classes, (len(gaps),), generator=g)
    rivals = logits.scatter(1, label[:, None], -torch.inf).logsumexp(1)
    return logits.scatter(1, label[:, None], (gaps + rivals)[:, None]), label


class Case(NamedTuple):
    """Logits in a layout of ``F.cross_entropy`` with a target and its arguments."""

    input: Tensor
    target: Tensor
    arguments: dict[str, Any]


@st.composite
def cases(draw: st.DrawFn, *, dtype: torch.dtype = torch.float64, soft: bool | None = None,
          low: float = -14.0, high: float = 16.0, some_kept: bool = True) -> Case:
    """p from 1e-6 to 1 - 1e-7, every layout, labels or probabilities, weights, ignored rows, smoothing, reductions."""
    shape, classes, seed = draw(LAYOUTS), draw(st.integers(2, 7)), draw(SEEDS)
    g = generator(seed)
    n = math.prod(shape)
    gaps = low + (high - low) * torch.rand(n, generator=g, dtype=torch.float64)
    logits, label = rows_with_gaps(gaps, classes, seed)
    logits = logits + draw(st.sampled_from([0.0, 0.0, 300.0, -1000.0]))
    arguments: dict[str, Any] = {"reduction": draw(REDUCTIONS)}
    axis = min(1, len(shape))
    input = logits.reshape(*shape, classes).movedim(-1, axis).to(dtype)
    smoothing = draw(st.sampled_from([0.0, 0.0, 0.1, 1.0]))
    if smoothing:
        arguments["label_smoothing"] = smoothing
    if draw(st.booleans()):
        arguments["weight"] = (torch.rand(classes, generator=g, dtype=torch.float64) + 0.05).to(dtype)
    if draw(st.booleans()) if soft is None else soft:
        target = torch.rand(n, classes, generator=g, dtype=torch.float64) ** 4
        target[::3] = torch.nn.functional.one_hot(label[::3], classes).double()
        target = target / target.sum(1, keepdim=True)
        target = target.reshape(*shape, classes).movedim(-1, axis).to(dtype)
    else:
        ignore = draw(st.sampled_from([None, -100, -1, 0, classes + 3]))
        target = label
        if ignore is not None:
            if ignore != -100:
                arguments["ignore_index"] = ignore
            target = target.masked_fill(torch.rand(n, generator=g) < 0.3, ignore)
            if some_kept and n and bool((target == ignore).all()):
                target[0] = 1
        target = target.reshape(shape)
    return Case(input, target, arguments)
