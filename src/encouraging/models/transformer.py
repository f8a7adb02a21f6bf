"""The Transformer of the paper's translation experiments: encoder and decoder, norms after the residual sums.

Sizes and sharing are those of fairseq's ``transformer_iwslt_de_en``: dropout on embeddings and on what every layer
adds, none inside attention; sinusoidal positions; no bias in the output layer. Initial values are fairseq's with
``initial="fairseq"``.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import RecipeError

PAD = 0
POSITIONS = 1024  # that are computed in advance; longer sentences are possible
Sharing = Literal["none", "output", "all"]
Initial = Literal["xavier", "fairseq"]
# Without cuDNN's, which torch prefers on some GPUs in 16 bits: it makes a plan for every new shape, and so for every
# step of a search, which takes far longer than attention over a sentence.
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Memory(NamedTuple):
    """Keys and values of one layer, (rows, heads, positions, width)."""

    key: Tensor
    value: Tensor

    def rows(self, index: Tensor) -> Memory:
        return Memory(self.key.index_select(0, index), self.value.index_select(0, index))


class DecoderState(NamedTuple):
    """The state of the decoder: per layer its own keys and values so far, and those of the encoder's output. ``seen``
    is true at source positions that hold a token."""

    own: tuple[Memory, ...]
    source: tuple[Memory, ...]
    seen: Tensor
    step: int

    def rows(self, index: Tensor) -> DecoderState:
        """The state of these hypotheses, for a beam that continues with some of them. They may only be reordered within
        a sentence, so the keys and values of the source stay as they are."""
        return self._replace(own=tuple(memory.rows(index) for memory in self.own))


class Attention(nn.Module):
    """Queries of one sequence over keys and values of another, or of itself.

    Keys have no bias: it would add the same to all scores of a query, which does not change the softmax. Its gradient
    would be rounding errors, which Adam scales up like any other gradient.
    """

    def __init__(self, width: int, heads: int, initial: Initial = "xavier") -> None:
        super().__init__()
        self.heads, self.initial = heads, initial
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # Xavier's bound for the three projections together, as in fairseq.
        bound = math.sqrt(1.5 / self.query.in_features)
        for layer in (self.query, self.key, self.value):
            nn.init.uniform_(layer.weight, -bound, bound)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        if self.initial == "xavier":  # otherwise they keep nn.Linear's values, as in fairseq
            nn.init.zeros_(self.query.bias)
            nn.init.zeros_(self.value.bias)

    def remember(self, x: Tensor) -> Memory:
        """Keys and values of a sequence."""
        return Memory(self._split(self.key(x)), self._split(self.value(x)))

    def forward(self, x: Tensor, memory: Memory, seen: Tensor | None = None, causal: bool = False) -> Tensor:
        mixed = F.scaled_dot_product_attention(self._split(self.query(x)), memory.key, memory.value, attn_mask=seen,
                                               is_causal=causal)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class Block(nn.Module):
    """One layer of the encoder, or of the decoder with attention to the encoder's output."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float, crosses: bool,
                 initial: Initial = "xavier") -> None:
        super().__init__()
        self.attention = Attention(width, heads, initial)
        self.cross = Attention(width, heads, initial) if crosses else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if crosses else 2))
        self.inner, self.outer = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.drop = nn.Dropout(dropout)
        for layer in (self.inner, self.outer) if initial == "xavier" else ():
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def remember_source(self, encoded: Tensor) -> Memory:
        """Keys and values of the encoder's output, for a layer of the decoder."""
        assert self.cross is not None
        return self.cross.remember(encoded)

    def forward(self, x: Tensor, memory: Memory, seen: Tensor | None = None, causal: bool = False,
                source: Memory | None = None, source_seen: Tensor | None = None) -> Tensor:
        x = self.norms[0](x + self.drop(self.attention(x, memory, seen, causal)))
        if self.cross is not None and source is not None:
            x = self.norms[1](x + self.drop(self.cross(x, source, source_seen)))
        out: Tensor = self.norms[-1](x + self.drop(self.outer(self.inner(x).relu())))
        return out


class Transformer(nn.Module):
    """Called with sentences and the beginnings of their translations; returns features and the output layer's weight.

    The logits of the next piece at every position are ``F.linear(features, weight)``. They are left to the caller, so
    that a loss can be computed together with the output layer, without storing them.

    Args:
        source_size: number of pieces of the source side.
        target_size: number of pieces of the target side.
        layers: number of layers of the encoder, and of the decoder.
        width: width of the features.
        heads: number of attention heads; divides ``width``.
        hidden: width between the two layers after attention.
        dropout: dropout of embeddings and of what every layer adds.
        share: which matrices are shared: ``"all"`` embeddings and the output layer, the decoder's embedding and the
            ``"output"`` layer, or ``"none"``.
        initial: initial values of the layers after attention, and of the biases of queries and values: ``"xavier"``,
            with biases of 0, or ``"fairseq"``, those of ``nn.Linear``. All others are fairseq's in both cases.

    >>> model = Transformer(9, 9, layers=1, width=8, heads=2, hidden=16, share="all")
    >>> features, weight = model(torch.tensor([[5, 6, 2]]), torch.tensor([[1, 7]]))
    >>> F.linear(features, weight).shape
    torch.Size([1, 2, 9])
    """

    def __init__(self, source_size: int, target_size: int, *, layers: int = 6, width: int = 512, heads: int = 4,
                 hidden: int = 1024, dropout: float = 0.3, share: Sharing = "none",
                 initial: Initial = "xavier") -> None:
        super().__init__()
        check_sizes(layers, width, heads, hidden, dropout, share, initial)
        if share == "all" and source_size != target_size:
            raise RecipeError(f"share = 'all' with {source_size} source and {target_size} target pieces: expected one "
                              "vocabulary for both.", "model_options")
        self.width, self.share = width, share
        self.target_embedding = nn.Embedding(target_size, width, PAD)
        self.source_embedding = None if share == "all" else nn.Embedding(source_size, width, PAD)
        self.output = nn.Linear(width, target_size, bias=False) if share == "none" else None
        self.encoder, self.decoder = (nn.ModuleList(Block(width, heads, hidden, dropout, crosses, initial)
                                                    for _ in range(layers)) for crosses in (False, True))
        self.drop = nn.Dropout(dropout)
        self.register_buffer("sines", sinusoids(POSITIONS, width), persistent=False)
        with torch.no_grad():
            for embedding in filter(None, (self.target_embedding, self.source_embedding)):
                embedding.weight.normal_(std=width**-0.5)[PAD] = 0
            if self.output is not None:
                self.output.weight.normal_(std=width**-0.5)

    @property
    def weight(self) -> Tensor:
        """The weight of the output layer."""
        return self.target_embedding.weight if self.output is None else self.output.weight

    def forward(self, source: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        encoded, seen = self.encode(source)
        x = self._embed(self.target_embedding, inputs, 0)
        with sdpa_kernel(KERNELS):
            for block in self._blocks(self.decoder):
                # Padding comes last, so causal attention of other positions never reaches it.
                x = block(x, block.attention.remember(x), None, True, block.remember_source(encoded), seen)
        return x, self.weight

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Features of the sentences, and a mask of the positions that hold a token, in the shape for attention."""
        seen = (source != PAD)[:, None, None]
        x = self._embed(self.source_embedding or self.target_embedding, source, 0)
        with sdpa_kernel(KERNELS):
            for block in self._blocks(self.encoder):
                x = block(x, block.attention.remember(x), seen)
        return x, seen

    def begin(self, source: Tensor, copies: int = 1) -> DecoderState:
        """The state before the first piece, repeated ``copies`` times per sentence."""
        encoded, seen = self.encode(source)
        encoded, seen = encoded.repeat_interleave(copies, 0), seen.repeat_interleave(copies, 0)
        crossed = tuple(block.remember_source(encoded) for block in self._blocks(self.decoder))
        empty = tuple(Memory(memory.key[:, :, :0], memory.value[:, :, :0]) for memory in crossed)
        return DecoderState(empty, crossed, seen, 0)

    def advance(self, pieces: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Logits (rows, pieces) after the given piece of every row, and the next state."""
        x = self._embed(self.target_embedding, pieces[:, None], state.step)
        own = []
        with sdpa_kernel(KERNELS):
            for block, past, source in zip(self._blocks(self.decoder), state.own, state.source, strict=True):
                new = block.attention.remember(x)
                memory = Memory(torch.cat([past.key, new.key], 2), torch.cat([past.value, new.value], 2))
                own.append(memory)
                x = block(x, memory, None, False, source, state.seen)
        return F.linear(x[:, 0], self.weight), state._replace(own=tuple(own), step=state.step + 1)

    @staticmethod
    def _blocks(blocks: nn.ModuleList) -> list[Block]:
        return cast(list[Block], list(blocks))

    def _embed(self, embedding: nn.Embedding, pieces: Tensor, first: int) -> Tensor:
        last = first + pieces.shape[1]
        sines: Tensor = self.get_buffer("sines")
        sines = sinusoids(last, self.width, first).to(sines) if last > len(sines) else sines[first:last]
        embedded: Tensor = self.drop(embedding(pieces) * math.sqrt(self.width) + sines)
        return embedded


def check_sizes(layers: object = 6, width: object = 512, heads: object = 4, hidden: object = 1024,
                dropout: object = 0.3, share: object = "none", initial: object = "xavier") -> None:
    """Refuse values of a wrong type or size."""
    sizes = {"layers": layers, "width": width, "heads": heads, "hidden": hidden}
    positive = all(isinstance(size, int) and not isinstance(size, bool) and size >= 1 for size in sizes.values())
    if not positive or isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        values = ", ".join(f"{name} = {value!r}" for name, value in {**sizes, "dropout": dropout}.items())
        raise RecipeError(f"{values}: expected sizes that are whole numbers, 1 or more, and a dropout of at least 0 "
                          "and below 1.", "model_options")
    if width % heads or width % 2:  # type: ignore[operator]
        raise RecipeError(f"width = {width} with heads = {heads}: expected an even width that the heads divide.",
                          "model_options")
    if share not in ("none", "output", "all"):
        raise RecipeError(f"share = {share!r}: expected 'none', 'output' or 'all'.", "model_options")
    if initial not in ("xavier", "fairseq"):
        raise RecipeError(f"initial = {initial!r}: expected 'xavier' or 'fairseq'.", "model_options")


def sinusoids(positions: int, width: int, first: int = 0) -> Tensor:
    """Sines, then cosines, of the positions from ``first`` to ``positions``, at rates from 1 down to 1/10000."""
    rates = torch.exp(torch.arange(width // 2) * -(math.log(10000) / max(width // 2 - 1, 1)))
    angles = torch.arange(first, positions)[:, None] * rates[None]
    return torch.cat([angles.sin(), angles.cos()], 1)
