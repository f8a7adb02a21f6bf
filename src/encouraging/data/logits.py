"""Logits on disk, written by this package or by others.

A ``.safetensors`` file, an ``.npz`` file, a folder of ``.npy`` files or a run directory, with the names

    logits           (examples, classes), float16, bfloat16, float32 or float64;
                     (examples, 1) is the logit of class 1 of a binary classifier
    labels           (examples,), any integers
    ood_logits       (any, classes): out-of-distribution examples; ``ood_logits.<name>`` for further sets
    class_counts     (classes,): training examples per class
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import DataError, did_you_mean
from .arrays import FLOATS, INTEGERS, Array, in_folder, in_npz, in_safetensors, shown
from .logits_advice import lacking_words, other_ending, type_words

KEYS = ("logits", "labels", "ood_logits", "class_counts")
FIRST_ROWS = 100  # from which probabilities are recognised


@dataclass(frozen=True)
class Column(Array):
    """The single column of a binary classifier. Class 0 has the logit 0, so the softmax of both is the sigmoid."""

    def blocks(self, rows: int | None = None) -> Iterator[Tensor]:
        for block in super().blocks(rows):
            yield F.pad(block, (1, 0))


@dataclass(frozen=True)
class Logits:
    """Logits with their labels, and the other arrays of the file.

    ``outside`` has the out-of-distribution sets by name, ``counts`` the training examples per class, and ``unused`` the
    names of arrays that are not used. ``probabilities`` is true if the first rows look like the output of a softmax or
    sigmoid instead of logits.
    """

    path: Path
    logits: Array
    labels: Tensor
    outside: Mapping[str, Array]
    counts: Tensor | None
    unused: tuple[str, ...]
    probabilities: bool = False

    @property
    def examples(self) -> int:
        return self.logits.shape[0]

    @property
    def classes(self) -> int:
        return _classes(self.logits)

    @property
    def binary_column(self) -> bool:
        """Whether there is a single column, which is read as the logit of class 1 against class 0."""
        return isinstance(self.logits, Column)

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Tensor, Tensor]]:
        """The number of the first row, logits and labels; logits are valid until the next block is requested."""
        first = 0
        for block in self.logits.blocks(rows):
            yield first, block, self.labels[first : first + len(block)]
            first += len(block)


def open_logits(path: str | Path) -> Logits:
    """Open a file, a folder of ``.npy`` files or a run directory. Shapes, types and labels are checked; of the logits
    only the first rows are read."""
    path = Path(path)
    if path.is_dir():
        arrays = _folder(path)
    elif not path.exists():
        raise DataError(f"{shown(path)}: there is no such file. Expected .safetensors, .npz, a folder of .npy files or "
                        "a run directory.")
    elif path.suffix.lower() not in (".safetensors", ".npz"):
        raise DataError(f"{shown(path)}: {other_ending(path)}")
    elif path.is_file() and not path.stat().st_size:
        raise DataError(f"{shown(path)}: the file is empty.")
    elif path.suffix.lower() == ".safetensors":
        arrays = in_safetensors(path)
    else:
        arrays = in_npz(path, KEYS)
    logits, labels = _checked(_required(arrays, "logits", path)), _required(arrays, "labels", path)
    outside: dict[str, Array] = {}
    for key, array in arrays.items():
        family, _, name = key.partition(".")
        if family == "ood_logits":
            if (name or "outside") in outside:
                raise DataError(f"{array.where}: another out-of-distribution set has that name; call it "
                                "ood_logits.<name>.")
            outside[name or "outside"] = _checked(array)
    for array in outside.values():
        if array.shape[1] != logits.shape[1]:
            raise DataError(f"{array.where}: has {array.shape[1]} classes where logits has {logits.shape[1]}.")
    used = {"logits", "labels", "class_counts", *(key for key in arrays if key.partition(".")[0] == "ood_logits")}
    counts = arrays.get("class_counts")
    return Logits(path, logits, _labels(labels, logits), outside,
                  None if counts is None else _counts(counts, _classes(logits)),
                  tuple(sorted(set(arrays) - used)), _are_probabilities(logits))


def _classes(logits: Array) -> int:
    return max(2, logits.shape[1])


def _checked(array: Array) -> Array:
    if len(array.shape) != 2 or array.shape[0] < 1 or array.shape[1] < 1:
        advice = "" if len(array.shape) != 1 or not array.shape[0] else \
            " These seem to be the predicted classes; give the logits of all classes." if array.dtype in INTEGERS else \
            " Make a column of it: logits[:, None]."
        raise DataError(f"{array.where}: expected the shape (examples, classes) with at least one example, or "
                        f"(examples, 1) for a binary classifier with one logit, got {array.shape}.{advice}")
    if array.dtype not in FLOATS:
        raise DataError(f"{array.where}: expected {', '.join(FLOATS[:-1])} or {FLOATS[-1]}, got {array.dtype}."
                        + type_words("logits", array.dtype))
    return array if array.shape[1] > 1 else Column(*(getattr(array, field.name) for field in fields(array)))


def _labels(array: Array, logits: Array) -> Tensor:
    whole = array.dtype in INTEGERS
    wrong_type = (f"{array.where}: expected integers, the right class of each example, got {array.dtype}."
                  + type_words("labels", array.dtype))
    if not whole and array.dtype not in (*FLOATS, "bool"):
        raise DataError(wrong_type)
    if array.shape != logits.shape[:1]:  # before other types, because one-hot rows are often floats
        wide = len(array.shape) == 2 and array.shape[0] == logits.shape[0]
        advice = f" Take labels[:, 0]{'' if whole else '.astype(int)'}." if wide and array.shape[1] == 1 else \
            " Take labels.argmax(1) of one-hot rows. Several labels per example are not supported." if wide else \
            " Take logits.T: a row is an example." if array.shape == logits.shape[1:] else ""
        raise DataError(f"{array.where}: expected the shape {logits.shape[:1]}, one label per row of the logits, got "
                        f"{array.shape}.{advice}")
    if not whole:
        raise DataError(wrong_type)
    labels, classes = array.whole().to(torch.int64), _classes(logits)
    wrong = ((labels < 0) | (labels >= classes)).nonzero()
    if len(wrong):
        row = int(wrong[0])
        advice = _label_advice(labels, classes, int(labels[row]), single=logits.shape[1] == 1)
        raise DataError(f"{array.where}: row {row} has {int(labels[row])}, expected 0 to {classes - 1}; {advice}")
    return labels


def _label_advice(labels: Tensor, classes: int, wrong: int, *, single: bool) -> str:
    of_signs = classes == 2 and bool((labels.abs() == 1).all()) and int(labels.max()) == 1
    if single:
        return ("a single column of logits is a binary classifier's, the logit of class 1 against class 0"
                + (": take (labels + 1) // 2." if of_signs else "."))
    if of_signs:
        return "the labels seem to be -1 and 1: take (labels + 1) // 2."
    if int(labels.min()) == 1 and int(labels.max()) == classes:
        return "the labels seem to count from 1: subtract it."
    return "leave out rows without a label." if wrong < 0 else "number the classes from 0, in the order of the columns."


def _counts(array: Array, classes: int) -> Tensor:
    if array.shape != (classes,) or array.dtype not in FLOATS + INTEGERS:
        raise DataError(f"{array.where}: expected {classes} numbers, one per class, got the shape {array.shape} of "
                        f"{array.dtype}.")
    counts = array.whole().to(torch.float64)
    wrong = ~(counts >= 0) | counts.isinf()
    if bool(wrong.any()):
        raise DataError(f"{array.where}: class {int(wrong.nonzero()[0])} has {float(counts[wrong][0]):g}, expected how "
                        "many training examples it has.")
    return counts


def _are_probabilities(logits: Array) -> bool:
    """Whether the first rows look like probabilities, the most likely mistake: no number is below 0, and rows sum to 1,
    or to 100 in percent (a single column: to at most 1)."""
    rows = next(logits.blocks(min(FIRST_ROWS, logits.shape[0]))).double()
    if isinstance(logits, Column):
        return bool(((rows[:, 1] >= 0) & (rows[:, 1] <= 1)).all())
    sums = rows.sum(1)
    return bool((rows >= 0).all() and any(((sums / total - 1).abs() < 0.02).all() for total in (1, 100)))


def _required(arrays: Mapping[str, Array], key: str, path: Path) -> Array:
    if key in arrays:
        return arrays[key]
    names = ", ".join(sorted(arrays)) or "nothing"
    raise DataError(f"{shown(path)}: has no {key!r}; it holds {names}."
                    + did_you_mean(key, (name for name in arrays if name not in KEYS))
                    + lacking_words(key, path, arrays))


def _folder(path: Path) -> dict[str, Array]:
    arrays = in_folder(path, KEYS)
    of_run = path / "logits.safetensors"
    if "logits" not in arrays and of_run.is_file():
        return in_safetensors(of_run)
    if not arrays:
        names = sorted(shown(file.name) for file in path.iterdir())
        held = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        below = min((file.parent for depth in ("*", "*/*") for file in path.glob(f"{depth}/logits.safetensors")),
                    default=None)
        raise DataError(f"{shown(path)}: expected logits.npy and labels.npy, or the logits.safetensors of a finished "
                        f"run; it holds {held or 'nothing'}."
                        + (f" Finished runs are below it, such as {shown(below)}." if below else ""))
    return arrays
