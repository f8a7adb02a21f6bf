"""The text files of the TU collection of graph datasets: edges, the graph of every node, labels of nodes and graphs.

    NAME_A.txt                edges as "from, to", counted from 1 over all nodes
    NAME_graph_indicator.txt  the graph of every node, counted from 1
    NAME_graph_labels.txt     the class of every graph
    NAME_node_labels.txt      the kind of every node, one column or several; optional
    NAME_node_attributes.txt  numbers of every node; optional, read where there are no kinds, which the paper uses
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import DataError
from ..plugins import is_reference, load_function
from ._load import checked_files
from ._once import read_once
from .graphs import Graphs
from .images import folder_path
from .registry import data_dir, dataset


def read_graphs(name: str, root: str | Path | None = None, folder: str | None = None) -> Graphs:
    """The graphs that ``name`` names: of a known dataset, ``folder:PATH`` with files in the TU layout, or what
    ``module:function`` returns (:class:`Graphs`, or a dict of its fields)."""
    if name.startswith("folder:"):
        return _read_once(folder_path(name, root, folder))
    if is_reference(name):
        return _as_graphs(name, load_function(name, folder, "data")())
    if dataset(name).reader != "tu":
        raise DataError(f"{name} is not a dataset of graphs: expected one such as proteins or nci1.")
    return _read_once(checked_files(name, "train", data_dir(root))[0].parent)


def _as_graphs(name: str, returned: object) -> Graphs:
    """The graphs that your own function has returned."""
    if isinstance(returned, Mapping):
        try:
            return Graphs(**returned)
        except TypeError as error:
            raise DataError(f"{name} returned a dict that does not fit encouraging.data.Graphs: {error}.") from error
    if not isinstance(returned, Graphs):
        raise DataError(f"{name} returned a {type(returned).__name__}: expected encouraging.data.Graphs.")
    return returned


def _paths(folder: Path) -> list[Path]:
    folder, prefix = _files(folder)
    return list(folder.glob(f"{prefix}_*.txt"))


@read_once(_paths, keep=4)
def _read_once(folder: Path) -> Graphs:
    return read_tu(folder)


def read_tu(folder: Path) -> Graphs:
    """The graphs of a folder, as torch-geometric's ``TUDataset`` returns them.

    The features of a node are its kind as one-hot numbers; without kinds its attributes, and without those the number
    1. Loops and repeated edges are left out. Classes are the graph labels in ascending order.

    Args:
        folder: has the files, or has a folder ``raw`` with them, as torch-geometric does.

    Raises:
        DataError: a file is missing or damaged, or the files do not belong together.
    """
    folder, prefix = _files(folder)
    graph_of = _column(folder / f"{prefix}_graph_indicator.txt") - 1
    labels = _column(folder / f"{prefix}_graph_labels.txt")
    if not len(graph_of) or graph_of[0] != 0 or (np.diff(graph_of) < 0).any() or graph_of[-1] != len(labels) - 1:
        raise DataError(f"{folder / prefix}_graph_indicator.txt: expected the numbers 1 to {len(labels)}, one per "
                        "graph label, in ascending order.")
    sizes = np.bincount(graph_of, minlength=len(labels))
    if not sizes.all():
        raise DataError(f"{folder / prefix}_graph_indicator.txt: graph {int(sizes.argmin()) + 1} has no nodes.")
    start, end = _edges(folder / f"{prefix}_A.txt", graph_of)
    classes, label = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise DataError(f"{folder / prefix}_graph_labels.txt: expected two classes or more, got {len(classes)}.")
    return Graphs(_features(folder, prefix, len(graph_of)),
                  torch.from_numpy(np.stack([start, end])), torch.from_numpy(sizes),
                  torch.from_numpy(np.bincount(graph_of[start], minlength=len(labels))),
                  torch.from_numpy(label.reshape(-1)).long(), len(classes))


def _files(folder: Path) -> tuple[Path, str]:
    """The folder of the files, and the prefix of their names."""
    edges = sorted(folder.glob("*_A.txt")) or sorted(folder.glob("raw/*_A.txt"))
    if len(edges) != 1:
        raise DataError(f"{folder}: expected one file NAME_A.txt with the edges, here or in raw, found {len(edges)}.")
    return edges[0].parent, edges[0].name.removesuffix("_A.txt")


def _numbers(path: Path, dtype: type[np.generic] = np.int64) -> np.ndarray:
    """Numbers, separated by commas, row by row."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = [text for line in file if (text := line.partition("#")[0].strip())]
        read = np.loadtxt(lines, dtype, delimiter=",", ndmin=2) if lines else None
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except (OSError, ValueError) as error:
        kind = "whole numbers" if dtype is np.int64 else "numbers"
        raise DataError(f"{path}: expected lines of {kind} with commas between them ({error}).") from error
    if read is None:
        raise DataError(f"{path}: the file is empty. Unpack the dataset again.")
    return read


def _column(path: Path) -> np.ndarray:
    numbers = _numbers(path)
    if numbers.shape[1] != 1:
        raise DataError(f"{path}: {numbers.shape[1]} numbers per line: expected one.")
    return numbers[:, 0]


def _edges(path: Path, graph_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From and to, each edge once and none from a node to itself, in the order of from and to."""
    pairs, count = _numbers(path), len(graph_of)
    if pairs.shape[1] != 2 or not 1 <= pairs.min() <= pairs.max() <= count:
        raise DataError(f"{path}: expected two nodes per line, 1 to {count}; got {pairs.shape[1]} per line, "
                        f"{pairs.min()} to {pairs.max()}.")
    keys = np.unique((pairs[:, 0] - 1) * count + pairs[:, 1] - 1)
    start, end = keys // count, keys % count
    start, end = start[start != end], end[start != end]
    across = np.flatnonzero(graph_of[start] != graph_of[end])
    if len(across):
        raise DataError(f"{path}: the edge {start[across[0]] + 1}, {end[across[0]] + 1} joins two graphs.")
    return start, end


def _features(folder: Path, prefix: str, count: int) -> Tensor:
    kinds, attributes = (folder / f"{prefix}_node_{part}.txt" for part in ("labels", "attributes"))
    if kinds.is_file():
        return _one_hot(kinds, count)
    if not attributes.is_file():
        return torch.ones(count, 1)
    x = torch.from_numpy(_per_node(attributes, count, np.float32))
    if not x.isfinite().all():
        raise DataError(f"{attributes}: expected finite numbers, got NaN or infinite ones.")
    return x


def _one_hot(path: Path, count: int) -> Tensor:
    kinds = torch.from_numpy(_per_node(path, count))
    lowest, highest = kinds.amin(0), kinds.amax(0)
    if max(high - low for low, high in zip(lowest.tolist(), highest.tolist(), strict=True)) > 100_000:
        raise DataError(f"{path}: labels from {int(kinds.min())} to {int(kinds.max())}: expected kinds of nodes.")
    return torch.cat([F.one_hot(column).float() for column in (kinds - lowest).unbind(1)], 1)


def _per_node(path: Path, count: int, dtype: type[np.generic] = np.int64) -> np.ndarray:
    numbers = _numbers(path, dtype)
    if len(numbers) != count:
        raise DataError(f"{path}: {len(numbers)} lines for {count} nodes: the files do not belong together.")
    return numbers
