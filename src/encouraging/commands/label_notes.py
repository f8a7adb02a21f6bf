"""What the labels say about the numbers of a diagnosis: whether a constant answer would do as well, and which classes
have no examples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from ..report.diagnosis_page import overconfidence
from ..report.numbers import listed

FEWEST = 30  # examples below which an accuracy near that of a constant answer means nothing
FREQUENT = 60  # percent of the examples in one class, from which the accuracy alone says little
SURE = 0.3  # mean confidence minus accuracy, from which the labels are doubted
NAMED = 5  # classes that are named in a sentence


def label_doubts(diagnosis: Mapping[str, Any], labels: Tensor) -> Iterator[str]:
    """Whether the model is no better than a constant answer; if it is also sure, its labels are probably wrong."""
    label, share = _most_frequent(diagnosis, labels)
    error = 100 * math.sqrt(share / 100 * (1 - share / 100) / len(labels))
    if len(labels) < FEWEST or share == 100 or diagnosis["accuracy"] > share + 2 * error:
        return
    words = (f"The model is not clearly better than a constant answer: class {label} has {share:.1f}% of the examples, "
             f"and the accuracy is {diagnosis['accuracy']:.1f}%.")
    if (excess := overconfidence(diagnosis)) > SURE:
        from_one = " The smallest label is 1: do they count from 1?" if int(labels.min()) == 1 else ""
        words += (f" Yet its mean confidence is {diagnosis['accuracy'] + 100 * excess:.1f}%. Check that the labels are "
                  f"in the order of the rows (a shuffled loader changes it) and number the classes as the columns do."
                  f"{from_one}")
    yield words


def label_notes(diagnosis: Mapping[str, Any], labels: Tensor) -> Iterator[str]:
    """A class that has most of the examples, and classes that have none."""
    label, share = _most_frequent(diagnosis, labels)
    if FREQUENT <= share < 100:
        words = (f"Class {label} has {share:.1f}% of the examples, so always answering {label} would have an accuracy "
                 f"of {share:.1f}%.")
        accuracies = [value for value in diagnosis.get("class_accuracy", ()) if value is not None]
        if accuracies:
            words += (" The balanced accuracy, the mean over the classes, is "
                      f"{sum(accuracies) / len(accuracies):.1f}%.")
        yield words
    empty = (labels.bincount(minlength=diagnosis["classes"]) == 0).nonzero()[:, 0].tolist()
    if empty:
        named = [_name(diagnosis, number) for number in empty[:NAMED]]
        more = [f"{len(empty) - NAMED:,} more"] if len(empty) > NAMED else []
        yield (f"{len(empty):,} of {diagnosis['classes']:,} classes {'has' if len(empty) == 1 else 'have'} no examples "
               f"here, so nothing is known about {'it' if len(empty) == 1 else 'them'}: {listed([*named, *more])}.")


def _most_frequent(diagnosis: Mapping[str, Any], labels: Tensor) -> tuple[str, float]:
    """The class with the most examples, and its percentage of them."""
    counts = labels.bincount()
    return _name(diagnosis, int(counts.argmax())), 100 * float(counts.max()) / len(labels)


def _name(diagnosis: Mapping[str, Any], label: int) -> str:
    names: Sequence[str] | None = diagnosis.get("class_names")
    return names[label] if names else str(label)
