"""The text files of the TU collection of graph datasets: edges, the graph of every node, labels of nodes and graphs.

    NAME_A.txt                edges as "from, to", counted from 1 over all nodes
    NAME_graph_indicator.txt  the graph of every node, counted from 1
    NAME_graph_labels.txt     the class of every graph
    NAME_node_labels.txt      the kind of every node, one column or several; optional
    NAME_node_attributes.txt  not read: the paper's experiments use the kinds of nodes alone
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import DataError
from ..plugins import is_reference, load_object
from ._load import checked_files
from .graphs import Graphs
from .images import folder_path
from .registry import data_dir, dataset


def read_graphs(name: str, root: str | Path | None = None, folder: str | None = None) -> Graphs:
    """The graphs that ``name`` names: of a known dataset, ``folder:PATH`` with files in the TU layout, or what
    ``module:function`` returns (:class:`Graphs`, or a dict of its fields)."""
    if name.startswith("folder:"):
        return _read_once(folder_path(name, root, folder))
    if is_reference(name):
        return _own(name, load_object(name, folder)())
    if dataset(name).reader != "tu":
        raise DataError(f"{name} holds images, and graphs were expected, such as proteins or nci1.")
    return _read_once(checked_files(name, "train", data_dir(root))[0].parent)


def _own(name: str, found: object) -> Graphs:
    if isinstance(found, Mapping):
        try:
            return Graphs(**found)
        except TypeError as error:
            raise DataError(f"{name} returned a dict that does not fit encouraging.data.Graphs: {error}.") from error
    if not isinstance(found, Graphs):
        raise DataError(f"{name} returned a {type(found).__name__}: expected encouraging.data.Graphs.")
    return found


@lru_cache(maxsize=4)
def _read_once(path: Path) -> Graphs:
    """A process trains one split after another: it reads the files once."""
    return read_tu(path)


def read_tu(folder: Path) -> Graphs:
    """The graphs of a folder, as torch-geometric's ``TUDataset`` gives them.

    The features of a node are its kind as one-hot numbers (1 for every node where the files name no kinds). Loops and
    repeated edges are left out. Classes are the graph labels in rising order.

    Raises:
        DataError: a file is missing or damaged, or the files do not belong together.
    """
    prefix = _prefix(folder)
    graph_of = _numbers(folder / f"{prefix}_graph_indicator.txt")[:, 0] - 1
    labels = _numbers(folder / f"{prefix}_graph_labels.txt")[:, 0]
    if not len(graph_of) or graph_of[0] != 0 or (np.diff(graph_of) < 0).any() or graph_of[-1] != len(labels) - 1:
        raise DataError(f"{folder / prefix}_graph_indicator.txt: expected the numbers 1 to {len(labels)}, one per "
                        "graph label, rising from node to node.")
    sizes = np.bincount(graph_of, minlength=len(labels))
    if not sizes.all():
        raise DataError(f"{folder / prefix}_graph_indicator.txt: graph {int(sizes.argmin()) + 1} has no nodes.")
    start, end = _edges(folder / f"{prefix}_A.txt", graph_of)
    classes, label = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise DataError(f"{folder / prefix}_graph_labels.txt: expected two classes or more, got {len(classes)}.")
    return Graphs(_features(folder / f"{prefix}_node_labels.txt", len(graph_of)),
                  torch.from_numpy(np.stack([start, end])), torch.from_numpy(sizes),
                  torch.from_numpy(np.bincount(graph_of[start], minlength=len(labels))),
                  torch.from_numpy(label.reshape(-1)).long(), len(classes))


def _prefix(folder: Path) -> str:
    found = sorted(folder.glob("*_A.txt"))
    if len(found) != 1:
        raise DataError(f"{folder}: expected one file NAME_A.txt with the edges, found {len(found)}.")
    return found[0].name.removesuffix("_A.txt")


def _numbers(path: Path) -> np.ndarray:
    """Whole numbers, separated by commas, row by row."""
    try:
        return np.loadtxt(path, dtype=np.int64, delimiter=",", ndmin=2)
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: expected lines of whole numbers with commas between them ({error}).") from error


def _edges(path: Path, graph_of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From and to, each edge once and none from a node to itself, in the order of from and to."""
    pairs, count = _numbers(path), len(graph_of)
    if pairs.shape[1] != 2 or (len(pairs) and not 1 <= pairs.min() <= pairs.max() <= count):
        raise DataError(f"{path}: expected two nodes per line, 1 to {count}.")
    keys = np.unique((pairs[:, 0] - 1) * count + pairs[:, 1] - 1)
    start, end = keys // count, keys % count
    start, end = start[start != end], end[start != end]
    across = np.flatnonzero(graph_of[start] != graph_of[end])
    if len(across):
        raise DataError(f"{path}: the edge {start[across[0]] + 1}, {end[across[0]] + 1} joins two graphs.")
    return start, end


def _features(path: Path, count: int) -> Tensor:
    if not path.is_file():
        return torch.ones(count, 1)
    kinds = torch.from_numpy(_numbers(path))
    if len(kinds) != count:
        raise DataError(f"{path}: {len(kinds)} labels for {count} nodes: the files do not belong together.")
    columns = kinds - kinds.amin(0)
    if int(columns.max()) > 100_000:
        raise DataError(f"{path}: labels from {int(kinds.min())} to {int(kinds.max())}: expected kinds of nodes.")
    return torch.cat([F.one_hot(column).float() for column in columns.unbind(1)], 1)
