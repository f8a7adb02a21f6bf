"""The paper's network for graphs: graph convolutions (GCN), each followed by self-attention pooling (SAGPool).

Written in plain PyTorch. A block's adjacency is normalised once for its convolution and its scores, and the only shape
that is read from the device is the number of remaining edges. torch-geometric's own ``SAGPooling`` is a different
layer: it multiplies the scores by the sign of another weight, whose size has no effect. Weight decay drives this weight
to 0, where its sign can flip during training.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .classifier import Classifier


class GraphInput(Protocol):
    """Several graphs as one, with torch-geometric's names; ``sizes`` are the nodes per graph, best on the host."""

    @property
    def x(self) -> Tensor: ...
    @property
    def edge_index(self) -> Tensor: ...
    @property
    def batch(self) -> Tensor: ...
    @property
    def sizes(self) -> Tensor: ...


class Adjacency:
    r"""Multiplies by :math:`D^{-1/2} (A + I) D^{-1/2}`, with the in-degrees of :math:`A + I` in :math:`D`.

    >>> spread = Adjacency(torch.tensor([[0, 1], [1, 0]]), 3, torch.float32)
    >>> spread(torch.tensor([[1.0], [3.0], [5.0]])).flatten().round(decimals=3).tolist()
    [2.0, 2.0, 5.0]
    """

    def __init__(self, edge_index: Tensor, nodes: int, dtype: torch.dtype) -> None:
        self.start, self.end = edge_index[0], edge_index[1]
        degree = torch.ones(nodes, dtype=dtype, device=edge_index.device)
        ones = torch.ones((), dtype=dtype, device=edge_index.device).expand(edge_index.shape[1])
        self.scale = degree.scatter_add(0, self.end, ones).rsqrt()[:, None]

    def __call__(self, x: Tensor) -> Tensor:
        scaled = x * self.scale.to(x.dtype)
        to = self.end[:, None].expand(-1, x.shape[1])
        return scaled.scatter_add(0, to, scaled.index_select(0, self.start)) * self.scale.to(x.dtype)


class GraphConv(nn.Module):
    """Kipf and Welling's graph convolution: every node's features times a matrix, averaged with its neighbours'."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        if x.shape[1] < len(self.weight):  # the order in which fewer numbers pass along the edges
            return F.linear(adjacency(x), self.weight, self.bias)
        return adjacency(F.linear(x, self.weight)) + self.bias


class Block(nn.Module):
    """Convolution, ReLU, and pooling that keeps the fraction ``ratio`` of every graph's nodes: those with the highest
    scores, by which their features are multiplied. The scores are the tanh of a graph convolution."""

    def __init__(self, inputs: int, hidden: int, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio
        self.conv = GraphConv(inputs, hidden)
        self.score = GraphConv(hidden, 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The features of the kept nodes, the indices of these nodes, and their number per graph."""
        adjacency = Adjacency(edge_index, len(x), self.conv.weight.dtype)
        x = self.conv(x, adjacency).relu()
        score = self.score(x, adjacency)[:, 0].tanh()
        kept_sizes = kept_of(sizes, self.ratio)
        kept = highest(score.detach(), batch, sizes, kept_sizes)
        return x[kept] * score[kept, None], kept, kept_sizes


def kept_of(sizes: Tensor, ratio: float) -> Tensor:
    """The number of nodes that are kept of each graph, rounded up.

    >>> kept_of(torch.tensor([1, 4, 5]), 0.5)
    tensor([1, 2, 3])
    """
    return torch.tensor([math.ceil(ratio * size) for size in sizes.tolist()], dtype=torch.long, device=sizes.device)


def highest(score: Tensor, batch: Tensor, sizes: Tensor, kept: Tensor) -> Tensor:
    """The nodes with the ``kept[i]`` highest scores of every graph i, in their original order; of ties the first.

    >>> highest(torch.tensor([1.0, 3.0, 2.0, 0.0]), torch.tensor([0, 0, 0, 1]), torch.tensor([3, 1]),
    ...         torch.tensor([2, 1]))
    tensor([1, 2, 3])
    """
    order = score.argsort(descending=True, stable=True)
    order = order[batch[order].argsort(stable=True)]  # graph by graph, with decreasing scores
    total = int(kept.sum())
    skipped = (sizes.cumsum(0) - sizes - (kept.cumsum(0) - kept)).to(score.device)
    skip = torch.repeat_interleave(skipped, kept.to(score.device), output_size=total)
    return order[torch.arange(total, device=score.device) + skip].sort().values


def edges_between(kept: Tensor, edge_index: Tensor, nodes: int) -> Tensor:
    """The edges between kept nodes, with the new indices of these nodes."""
    new_index = torch.full((nodes,), -1, dtype=torch.long, device=kept.device)
    new_index[kept] = torch.arange(len(kept), device=kept.device)
    ends = new_index[edge_index]
    return ends[:, (ends >= 0).all(0)]


def max_and_mean(x: Tensor, batch: Tensor, sizes: Tensor) -> Tensor:
    """The largest and the mean value of every feature over each graph's nodes, concatenated."""
    graph = batch[:, None].expand(-1, x.shape[1])
    empty = x.new_zeros(len(sizes), x.shape[1])
    # segment_reduce would be faster, but its gradient of the maximum fails gradcheck (torch 2.13).
    largest = empty.scatter_reduce(0, graph, x, "amax", include_self=False)
    return torch.cat([largest, empty.scatter_add(0, graph, x) / sizes.to(x.device)[:, None]], 1)


class SAGPoolBody(nn.Module):
    """Three blocks whose readouts are summed, and two layers on top."""

    def __init__(self, features: int, hidden: int, ratio: float, dropout: float) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(inputs, hidden, ratio) for inputs in (features, hidden, hidden))
        self.first = nn.Linear(2 * hidden, hidden)
        self.drop = nn.Dropout(dropout)
        self.second = nn.Linear(hidden, hidden // 2)

    def forward(self, graphs: GraphInput) -> Tensor:
        x, edge_index, batch, sizes = graphs.x, graphs.edge_index, graphs.batch, graphs.sizes
        readout: Tensor | None = None
        for number, block in enumerate(self.blocks, 1):
            nodes = len(x)
            x, kept, sizes = block(x, edge_index, batch, sizes)
            batch = batch[kept]
            if number < len(self.blocks):
                edge_index = edges_between(kept, edge_index, nodes)
            block_readout = max_and_mean(x, batch, sizes)
            readout = block_readout if readout is None else readout + block_readout
        assert readout is not None
        return F.relu(self.second(self.drop(F.relu(self.first(readout)))))


def sagpool_gcn(classes: int, features: int, *, hidden: int = 128, ratio: float = 0.5,
                dropout: float = 0.5) -> Classifier:
    """The paper's network for PROTEINS and NCI1: three graph convolutions, each followed by self-attention pooling."""
    return Classifier(SAGPoolBody(features, hidden, ratio, dropout), nn.Linear(hidden // 2, classes))
