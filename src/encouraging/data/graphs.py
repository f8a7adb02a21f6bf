"""All graphs of a dataset on the device, concatenated, from which batches are gathered without a loop over graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import DataError


class GraphBatch(NamedTuple):
    """Several graphs as one disconnected graph, with torch-geometric's names.

    ``sizes`` is on the host, because shapes depend on it, and reading it from a GPU would wait for its queue.
    """

    x: Tensor  # (nodes, features)
    edge_index: Tensor  # (2, edges): from, to
    batch: Tensor  # (nodes,): the graph of every node, in ascending order
    sizes: Tensor  # (graphs,): nodes per graph

    @property
    def num_graphs(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True)
class Graphs:
    """All graphs of a dataset, one after another, with their labels. All tensors are on the CPU.

    Args:
        x: features of every node, (nodes, features), in float32.
        edge_index: (2, edges), from and to, counted over the nodes of all graphs; the edges of a graph are
            consecutive, in the order of the graphs.
        sizes: nodes per graph, at least 1.
        edges: edges per graph.
        labels: one per graph, counted from 0.
        classes: the number of classes, at least 2.

    Raises:
        DataError: a field has another type, or they do not fit together.
    """

    x: Tensor
    edge_index: Tensor
    sizes: Tensor
    edges: Tensor
    labels: Tensor
    classes: int

    def __post_init__(self) -> None:
        self._check_types()
        if len(self.x) != int(self.sizes.sum()) or self.edge_index.shape != (2, int(self.edges.sum())):
            raise DataError(f"graphs of {int(self.sizes.sum())} nodes and {int(self.edges.sum())} edges: got "
                            f"{tuple(self.x.shape)} features, expected (nodes, features), and edges of the shape "
                            f"{tuple(self.edge_index.shape)}, expected (2, edges).")
        if not len(self.sizes) == len(self.edges) == len(self.labels):
            raise DataError(f"{len(self.sizes)} sizes, {len(self.edges)} numbers of edges and {len(self.labels)} "
                            "labels: expected one of each per graph.")
        owner = torch.repeat_interleave(torch.arange(len(self)), self.sizes)
        edge_owner = torch.repeat_interleave(torch.arange(len(self)), self.edges)
        if self.edge_index.numel() and not (0 <= int(self.edge_index.min()) <= int(self.edge_index.max()) < len(owner)
                                            and bool((owner[self.edge_index] == edge_owner).all())):
            raise DataError("an edge leads to a node of another graph: expected the edges of a graph together, in the "
                            "order of the graphs.")
        if len(self) and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < self.classes:
            raise DataError(f"labels from {int(self.labels.min())} to {int(self.labels.max())} for {self.classes} "
                            f"classes: expected 0 to {self.classes - 1}.")

    def _check_types(self) -> None:
        integers = "sizes", "edges", "labels", "edge_index"
        for name in ("x", *integers):
            field = getattr(self, name)
            if not isinstance(field, Tensor) or field.device.type != "cpu":
                came = f"on {field.device}" if isinstance(field, Tensor) else f"a {type(field).__name__}"
                raise DataError(f"{name} is {came}: expected a tensor on the CPU.")
            if name in integers and field.dtype not in (torch.int64, torch.int32):
                raise DataError(f"{name} is {field.dtype}: expected whole numbers, torch.int64.")
            dims = 2 if name in ("x", "edge_index") else 1
            if field.ndim != dims:
                raise DataError(f"{name} has the shape {tuple(field.shape)}: expected {dims} dimension(s).")
        if self.x.dtype != torch.float32 or not self.x.shape[1] or not bool(self.x.isfinite().all()):
            raise DataError(f"x is {self.x.dtype} of the shape {tuple(self.x.shape)}: expected finite numbers in "
                            "torch.float32, one feature per node or more. x.float() turns other types into it.")
        if type(self.classes) is not int or self.classes < 2:
            raise DataError(f"classes = {self.classes!r}: expected a whole number, 2 or more.")
        if bool((self.sizes < 1).any()) or bool((self.edges < 0).any()):
            raise DataError("expected at least one node, and no less than 0 edges, per graph: sizes from "
                            f"{int(self.sizes.min())}, edges from {int(self.edges.min())}. Leave empty graphs out.")

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def features(self) -> int:
        return self.x.shape[1]


class ResidentGraphs:
    """Graphs on the device, from which batches are gathered there.

    >>> graphs = Graphs(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[1, 2], [2, 1]]), torch.tensor([1, 2]),
    ...                 torch.tensor([0, 2]), torch.tensor([0, 1]), 2)
    >>> batch = ResidentGraphs(graphs, torch.device("cpu")).batch(torch.tensor([1, 0]))
    >>> batch.x.flatten().tolist(), batch.edge_index.tolist(), batch.batch.tolist()
    ([1.0, 2.0, 0.0], [[0, 1], [1, 0]], [0, 0, 1])
    """

    def __init__(self, graphs: Graphs, device: torch.device) -> None:
        self.device = device
        self.sizes, self.edges = graphs.sizes, graphs.edges
        self.x, self.edge_index = graphs.x.to(device), graphs.edge_index.to(device)
        self.first_node, self.first_edge = _starts(graphs.sizes), _starts(graphs.edges)

    def batch(self, index: Tensor) -> GraphBatch:
        """The graphs with these indices, in this order; ``index`` is on the host."""
        sizes, edges = self.sizes[index], self.edges[index]
        shift = _starts(sizes) - self.first_node[index]  # of the indices of a graph's nodes
        nodes, owner = _ranges(self.first_node[index], sizes, self.device)
        own_edges, edge_owner = _ranges(self.first_edge[index], edges, self.device)
        edge_index = self.edge_index[:, own_edges] + shift.to(self.device)[edge_owner]
        return GraphBatch(self.x[nodes], edge_index, owner, sizes)


def _starts(counts: Tensor) -> Tensor:
    return counts.cumsum(0) - counts


def _ranges(first: Tensor, counts: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """The concatenated ranges of ``counts[i]`` numbers that start with ``first[i]``, and the i of each number. Shapes
    are computed on the host, so that nothing waits for the device."""
    total = int(counts.sum())
    shift, lengths = (first - _starts(counts)).to(device), counts.to(device)
    owner = torch.repeat_interleave(torch.arange(len(counts), device=device), lengths, output_size=total)
    return torch.arange(total, device=device) + shift[owner], owner
