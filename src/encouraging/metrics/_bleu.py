"""BLEU from counts per sentence, and the paired bootstrap between two systems, with exactly sacrebleu's numbers.

Runs can be compared later, without their texts, because counts are enough. They have one row per sentence: its length,
the reference's length, and how many of its n-grams the reference has, for n from 1 to 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import ArgumentError, DtypeError, ShapeError

ORDERS = 4
COLUMNS = 2 + ORDERS


class Bootstrap(NamedTuple):
    """How much better a system is than a baseline, see :func:`paired_bootstrap`.

    Attributes:
        difference: BLEU of the system minus that of the baseline.
        p: The p value of the difference.
        low, high: The interval that holds 95% of the resampled differences.
    """

    difference: float
    p: float
    low: float
    high: float


def bleu_of_counts(counts: ArrayLike) -> float:
    """Corpus BLEU with sacrebleu's smoothing of orders without a match.

    Args:
        counts: (sentences, 6) integers: the length, the reference's length, and the matches of orders 1 to 4.

    Returns:
        A number from 0 to 100.

    Raises:
        ShapeError: The counts have another shape, or no sentences.
        DtypeError: The counts are not integers.

    >>> round(bleu_of_counts([[4, 4, 4, 3, 2, 1], [3, 4, 2, 1, 0, 0]]), 2)
    71.28
    """
    table = _table(counts)
    return float(_bleu(table.sum(0)[None])[0])


def paired_bootstrap(counts: ArrayLike, baseline: ArrayLike, samples: int = 1000, seed: int = 12345) -> Bootstrap:
    """Whether a system is better than a baseline on sentences like these: both are scored on the same random draws of
    them, with replacement.

    Args:
        counts: Counts of the system, as :func:`bleu_of_counts` takes them.
        baseline: Counts of the baseline, for the same sentences.
        samples: How many draws, at least 1.
        seed: The seed of the draws; the default is sacrebleu's.

    Returns:
        The difference, its p value and its interval.

    Raises:
        ShapeError: The counts are not of two translations of the same sentences.
        DtypeError: The counts are not integers.
        ArgumentError: ``samples`` is not an integer of 1 or more.

    >>> right, half = [4, 4, 4, 3, 2, 1], [4, 4, 2, 1, 1, 1]
    >>> result = paired_bootstrap([right, right, half], [half, right, half], samples=100)
    >>> round(result.difference, 2), result.low
    (15.24, 0.0)
    """
    if isinstance(samples, bool) or not hasattr(samples, "__index__") or samples < 1:
        raise ArgumentError(f"paired_bootstrap(samples={samples!r}): expected an integer, one draw or more.")
    ours, theirs = _table(counts), _table(baseline)
    if ours.shape != theirs.shape or not (ours[:, 1] == theirs[:, 1]).all():
        raise ShapeError(f"counts of {len(ours)} sentences and of {len(theirs)} with references of other lengths: "
                         "expected two translations of the same sentences.")
    index = np.random.default_rng(seed).choice(len(ours), size=(samples, len(ours)), replace=True)
    scores = [np.concatenate([_bleu(table[draws].sum(1)) for draws in np.array_split(index, max(1, samples // 50))])
              for table in (ours, theirs)]
    difference = float(_bleu(ours.sum(0)[None])[0] - _bleu(theirs.sum(0)[None])[0])
    differences = scores[0] - scores[1]
    centred = np.abs(differences) - np.abs(differences).mean()
    p = (int((centred > abs(difference)).sum()) + 1) / (samples + 1)
    low, high = np.quantile(differences, [0.025, 0.975])
    return Bootstrap(difference, p, float(low), float(high))


def _table(counts: ArrayLike) -> NDArray[np.int64]:
    table = np.asarray(counts)
    if table.ndim != 2 or table.shape[1] != COLUMNS or not len(table):
        raise ShapeError(f"counts of shape {table.shape}: expected (sentences, {COLUMNS}), the length, the reference's "
                         f"length and the matches of orders 1 to {ORDERS}.")
    if table.dtype.kind not in "iuf" or not (np.isfinite(table) & (table == np.floor(table)) & (table >= 0)).all():
        raise DtypeError("counts hold something else than counts: expected whole numbers, 0 or more.")
    table = table.astype(np.int64)
    totals = np.maximum(table[:, :1] - np.arange(ORDERS), 0)  # n-grams of a sentence follow from its length
    return np.concatenate([table, totals], 1)


def _bleu(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """BLEU of every row of summed counts."""
    length, reference = sums[:, 0].astype(float), sums[:, 1].astype(float)
    right, total = sums[:, 2:COLUMNS].astype(float), sums[:, COLUMNS:].astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        brevity = np.where(length < reference, np.where(length > 0, np.exp(1 - reference / length), 0.0), 1.0)
        # The first order without a match counts as a half, the next one as a quarter, and so on.
        halved = 2.0 ** np.cumsum((right == 0) & (total > 0), 1)
        precision = 100 * np.where(right > 0, right, 1 / halved) / total
        logs = np.where(total > 0, np.log(precision), -np.inf)
        score = brevity * np.exp(logs.mean(1))
    return np.where((right > 0).any(1) & (total > 0).all(1), score, 0.0)
