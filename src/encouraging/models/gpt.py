"""A small GPT: a decoder-only Transformer that predicts the next token of a text.

Norms come before attention and before the layers after it, positions are learnt, and the output layer is the embedding.
Initial values are GPT-2's: normal with deviation 0.02, divided by the square root of the number of residual sums where
a layer adds to the residual stream.
"""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import RecipeError, ShapeError

DEVIATION = 0.02


class Block(nn.Module):
    """Attention to the tokens before, then two layers per token; both add to what they read."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.attend, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.inner, self.outer = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                             for part in self.attend(self.norms[0](x)).chunk(3, 2))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True,
                                               dropout_p=self.dropout if self.training else 0.0)
        x = x + self.drop(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + cast(Tensor, self.drop(self.outer(F.gelu(self.inner(self.norms[1](x))))))


class GPT(nn.Module):
    """Called with tokens (rows, positions); returns features (rows, positions, width) and the output layer's weight.

    The logits of the next token at every position are ``F.linear(features, weight)``. They are left to the caller, so
    that a loss can be computed together with the output layer, without storing them.

    Args:
        size: number of tokens of the vocabulary.
        context: the largest number of positions.
        layers: number of blocks.
        width: width of the features.
        heads: number of attention heads; divides ``width``.
        dropout: dropout of embeddings, of attention, and of what every layer adds.

    >>> import torch
    >>> features, weight = GPT(9, 8, layers=1, width=8, heads=2)(torch.tensor([[1, 2, 3]]))
    >>> F.linear(features, weight).shape
    torch.Size([1, 3, 9])
    """

    def __init__(self, size: int, context: int, *, layers: int = 6, width: int = 384, heads: int = 6,
                 dropout: float = 0.0) -> None:
        super().__init__()
        check_gpt(layers, width, heads, dropout)
        self.context = context
        self.embedding, self.positions = nn.Embedding(size, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.drop = nn.LayerNorm(width, bias=False), nn.Dropout(dropout)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                residual = name.endswith(("out.weight", "outer.weight"))
                nn.init.normal_(parameter, std=DEVIATION / (math.sqrt(2 * layers) if residual else 1))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        length = tokens.shape[1]
        if length > self.context:
            raise ShapeError(f"{length} tokens: expected at most {self.context}, the context of this model.")
        x = self.drop(self.embedding(tokens) + self.positions.weight[:length])
        for block in self.blocks:
            x = block(x)
        return self.norm(x), self.embedding.weight


def check_gpt(layers: object = 6, width: object = 384, heads: object = 6, dropout: object = 0.0) -> None:
    """Refuse values of a wrong type or size."""
    sizes = {"layers": layers, "width": width, "heads": heads}
    positive = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sizes.values())
    if not positive or isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        values = ", ".join(f"{name} = {value!r}" for name, value in {**sizes, "dropout": dropout}.items())
        raise RecipeError(f"{values}: expected sizes that are whole numbers, 1 or more, and a dropout of at least 0 "
                          "and below 1.", "model_options")
    if width % heads:  # type: ignore[operator]
        raise RecipeError(f"width = {width} with heads = {heads}: expected a width that the heads divide.",
                          "model_options")
