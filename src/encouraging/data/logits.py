"""Logits on disk, whoever wrote them.

A ``.safetensors`` file, an ``.npz`` file, a folder of ``.npy`` files or a run directory, with the names

    logits           (examples, classes), float16, bfloat16, float32 or float64
    labels           (examples,), any integers
    ood_logits       (any, classes): examples from outside; ``ood_logits.<name>`` for further sets
    class_counts     (classes,): training examples of every class
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ..errors import DataError
from .arrays import FLOATS, INTEGERS, Array, in_folder, in_npz, in_safetensors

KEYS = ("logits", "labels", "ood_logits", "class_counts")


@dataclass(frozen=True)
class Logits:
    """What was found: logits and labels that fit each other, and what there is beside them."""

    path: Path
    logits: Array
    labels: Tensor
    outside: Mapping[str, Array]
    counts: Tensor | None
    unused: tuple[str, ...]

    @property
    def examples(self) -> int:
        return self.logits.shape[0]

    @property
    def classes(self) -> int:
        return self.logits.shape[1]

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The number of the first row, logits and labels; logits are good until the next block is asked for."""
        first = 0
        for block in self.logits.blocks(rows):
            yield first, block, self.labels[first : first + len(block)]
            first += len(block)


def open_logits(path: str | Path) -> Logits:
    """Look into a file, a folder of ``.npy`` files or a run directory. Shapes, types and labels are checked; the logits
    themselves are not read yet."""
    path = Path(path)
    if path.is_dir():
        arrays = _folder(path)
    elif not path.exists():
        raise DataError(f"{path}: there is no such file. Expected .safetensors, .npz, a folder of .npy files or a run "
                        "directory.")
    elif path.suffix == ".safetensors":
        arrays = in_safetensors(path)
    elif path.suffix == ".npz":
        arrays = in_npz(path, KEYS)
    else:
        raise DataError(f"{path}: {_other(path.suffix)}")
    logits, labels = (_wanted(arrays, key, path) for key in ("logits", "labels"))
    classes = _check_logits(logits)
    outside: dict[str, Array] = {}
    for key, array in arrays.items():
        family, _, name = key.partition(".")
        if family == "ood_logits":
            if (name or "outside") in outside:
                raise DataError(f"{array.where}: another set from outside has that name; call it ood_logits.<name>.")
            outside[name or "outside"] = array
    for array in outside.values():
        if _check_logits(array) != classes:
            raise DataError(f"{array.where}: has {array.shape[1]} classes where logits has {classes}.")
    used = {"logits", "labels", "class_counts", *(key for key in arrays if key.partition(".")[0] == "ood_logits")}
    counts = arrays.get("class_counts")
    return Logits(path, logits, _labels(labels, logits), outside, None if counts is None else _counts(counts, classes),
                  tuple(sorted(set(arrays) - used)))


def _check_logits(array: Array) -> int:
    if len(array.shape) != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise DataError(f"{array.where}: expected the shape (examples, classes) with at least one example and two "
                        f"classes, got {array.shape}.")
    if array.dtype not in FLOATS:
        raise DataError(f"{array.where}: expected {', '.join(FLOATS[:-1])} or {FLOATS[-1]}, got {array.dtype}.")
    return array.shape[1]


def _labels(array: Array, logits: Array) -> Tensor:
    if array.dtype not in INTEGERS:
        raise DataError(f"{array.where}: expected integers, the number of the right class of every example, got "
                        f"{array.dtype}.")
    if array.shape != logits.shape[:1]:
        raise DataError(f"{array.where}: expected the shape {logits.shape[:1]}, one label a row of the logits, got "
                        f"{array.shape}.")
    labels = array.whole().to(torch.int64)
    wrong = ((labels < 0) | (labels >= logits.shape[1])).nonzero()
    if len(wrong):
        row = int(wrong[0])
        raise DataError(f"{array.where}: row {row} has {int(labels[row])}, expected 0 to {logits.shape[1] - 1}; leave "
                        "out rows without a label.")
    return labels


def _counts(array: Array, classes: int) -> Tensor:
    if array.shape != (classes,) or array.dtype not in FLOATS + INTEGERS:
        raise DataError(f"{array.where}: expected {classes} numbers, one a class, got the shape {array.shape} of "
                        f"{array.dtype}.")
    counts = array.whole().to(torch.float64)
    if not bool((counts >= 0).all()):
        raise DataError(f"{array.where}: class {int((~(counts >= 0)).nonzero()[0])} has "
                        f"{float(counts[~(counts >= 0)][0]):g}, expected how many training examples it has.")
    return counts


def _wanted(arrays: Mapping[str, Array], key: str, path: Path) -> Array:
    if key in arrays:
        return arrays[key]
    near = difflib.get_close_matches(key, [name for name in arrays if name not in KEYS], 1, 0.5)
    there = ", ".join(sorted(arrays)) or "nothing"
    raise DataError(f"{path}: has no {key!r}; it holds {there}." + (f" Is {near[0]!r} meant?" if near else ""))


def _other(suffix: str) -> str:
    if suffix in (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt"):
        return ("a pickled file, which can run code when it is loaded. Save it with "
                "safetensors.torch.save_file({'logits': logits, 'labels': labels}, 'mine.safetensors').")
    if suffix == ".npy":
        return "one array alone. Give the folder that holds logits.npy and labels.npy."
    return f"expected .safetensors, .npz, a folder of .npy files or a run directory, got {suffix or 'no suffix'!r}."


def _folder(path: Path) -> dict[str, Array]:
    found = in_folder(path, KEYS)
    inside = path / "logits.safetensors"
    if "logits" not in found and inside.is_file():
        return in_safetensors(inside)
    if not found:
        names = sorted(file.name for file in path.iterdir())[:8]
        raise DataError(f"{path}: expected logits.npy and labels.npy, or the logits.safetensors of a finished run; it "
                        f"holds {', '.join(names) or 'nothing'}.")
    return found
