"""Write text with a model of running text: one token after the other, drawn from what the model predicts."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@torch.no_grad()
def continued(model: nn.Module, tokens: Tensor, context: int, draw: torch.Generator,
              temperature: float = 1.0) -> Iterator[int]:
    """The tokens that follow, without end.

    Args:
        model: called with tokens (1, positions); returns features and the weight of the output layer.
        tokens: (positions), the beginning; at least one.
        context: the largest number of tokens that the model sees.
        draw: where the random numbers come from, on the CPU.
        temperature: divides the logits; 0 takes the most probable token.
    """
    seen = tokens[-context:]
    while True:
        features, weight = model(seen[None])
        logits = F.linear(features[0, -1].float(), weight.float())
        if temperature == 0:
            token = logits.argmax()
        else:
            # Inverse sampling on the CPU: the same draw gives the same text on every device.
            # The largest logit becomes 0, so that none is infinite when a tiny temperature divides it.
            logits = logits.double().cpu()
            cumulative = torch.softmax((logits - logits.max()) / temperature, 0).cumsum(0)
            drawn = torch.rand((), generator=draw, dtype=torch.float64) * cumulative[-1]
            token = torch.searchsorted(cumulative, drawn, right=True).clamp(max=len(cumulative) - 1)
        yield int(token)
        seen = torch.cat([seen, token.to(seen)[None]])[-context:]
