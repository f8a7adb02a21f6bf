"""Calibration: is a model that says 90% right nine times out of ten?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..curves._curve import nll as surprise
from ..errors import ArgumentError, ShapeError, TargetError
from ._inputs import as_tensor, check
from ._readings import Readings, as_floats, read

BINS = 10
LOWEST, HIGHEST = 1e-4, 1e4  # temperatures, in units of how far apart a row's logits are
SMALLEST, LARGEST = 1e-30, 1e30  # temperatures by which logits can be divided in float32


@dataclass(frozen=True)
class Reliability:
    """Equal-width bins ``(low, high]`` of confidence. Those of several parts are added with ``+``.

    Attributes:
        count: The number of examples per bin.
        confidence: The sum of their confidence, per bin.
        right: How many of them are classified correctly, per bin.

    Raises:
        ShapeError: By ``+``, for parts with different numbers of bins.
    """

    count: np.ndarray
    confidence: np.ndarray
    right: np.ndarray

    def __add__(self, other: Reliability) -> Reliability:
        if len(self.count) != len(other.count):
            raise ShapeError(f"reliability over {len(self.count)} and over {len(other.count)} bins: expected equally "
                             "many in all parts that are added.")
        return Reliability(self.count + other.count, self.confidence + other.confidence, self.right + other.right)

    @property
    def ece(self) -> float:
        """The expected calibration error: the mean distance between confidence and accuracy, weighted by the counts."""
        total = self.count.sum()
        return float(np.abs(self.confidence - self.right).sum() / total) if total else math.nan

    @property
    def mce(self) -> float:
        """The largest distance in any bin that has examples."""
        filled = self.count > 0
        distance = np.abs(self.confidence - self.right)[filled] / self.count[filled]
        return float(distance.max()) if len(distance) else math.nan

    def rows(self) -> list[dict[str, float | int]]:
        """The bins for a table or a plot; empty ones have no confidence and no accuracy."""
        width = 1 / len(self.count)
        return [{"low": round(i * width, 12), "high": round((i + 1) * width, 12), "count": int(count)}
                | ({"confidence": float(sure / count), "accuracy": float(right / count)} if count else {})
                for i, (count, sure, right) in enumerate(zip(self.count, self.confidence, self.right, strict=True))]


def reliability(confidence: Tensor | np.ndarray, correct: Tensor | np.ndarray, bins: int = BINS) -> Reliability:
    """Count examples into bins of confidence.

    Args:
        confidence: (N), from 0 to 1.
        correct: (N), whether each example is classified correctly: booleans, or 0 and 1.
        bins: The number of bins.

    Returns:
        The bins, with ``ece`` and ``mce``.

    Raises:
        ShapeError: The two are not of the same shape (N).
        ArgumentError: A confidence, an answer or the number of bins is out of range.

    >>> round(reliability(torch.tensor([0.95, 0.85]), torch.tensor([True, False])).ece, 6)
    0.45
    """
    if isinstance(bins, bool) or not hasattr(bins, "__index__") or bins < 1:
        raise ArgumentError(f"reliability(bins={bins!r}): expected an integer, one bin or more.")
    confidence, correct = as_tensor(confidence, "confidence"), as_tensor(correct, "correct")
    if confidence.shape != correct.shape or confidence.ndim != 1:
        raise ShapeError(f"reliability: expected one confidence and one answer per example, got the shapes "
                         f"{tuple(confidence.shape)} and {tuple(correct.shape)}.")
    sure = confidence.detach().double().cpu().numpy()
    if not bool(((sure >= 0) & (sure <= 1)).all()):
        row = int(np.argmin((sure >= 0) & (sure <= 1)))
        raise ArgumentError(f"reliability: the confidence of row {row} is {sure[row]:g}, expected 0 to 1.")
    right = correct.detach().double().cpu().numpy()
    if not bool(((right == 0) | (right == 1)).all()):
        raise ArgumentError("reliability: correct has other numbers than 0 and 1; expected whether each example is "
                            "classified correctly, such as metrics.correct(logits, target).")
    # Edges in the type of the confidence: as float32, 0.3 is a little above 0.3 and would miss the bin that it ends.
    inner = (torch.arange(1, bins, dtype=torch.float64) / bins).to(confidence.dtype).double().numpy()
    bin_of = np.searchsorted(inner, sure, side="left")  # (low, high]: a confidence on an edge belongs below it
    count, total, hits = (np.bincount(bin_of, weights, minlength=bins) for weights in (None, sure, right))
    return Reliability(count, total, hits)


def ece(logits: Tensor | np.ndarray, target: Tensor | np.ndarray, bins: int = BINS) -> float:
    """The expected calibration error of softmax probabilities.

    Args:
        logits: (N, C), two classes or more: a tensor or an array.
        target: (N), integers from 0 to C - 1.
        bins: The number of bins of confidence.

    Returns:
        A number from 0 to 1; NaN without examples.

    Raises:
        ShapeError, DtypeError, TargetError: As :func:`read`.
        ArgumentError: ``bins`` is not an integer of 1 or more.

    >>> round(ece(torch.tensor([[20.0, 0.0]] * 2), torch.tensor([0, 1])), 6)  # certain, and right half of the time
    0.5
    """
    readings = read(logits, target)
    return reliability(readings.confidence, readings.correct, bins).ece


def nll(readings: Readings) -> float:
    """The mean negative log-likelihood, from the gap: exact where the probability has rounded to 1."""
    return float(surprise(readings.gap.double()).mean())


def temperature_bounds(logits: Tensor) -> tuple[float, float]:
    """The range in which the best temperature is searched: from far below to far above the scale of these logits."""
    highest = logits.amax(1, keepdim=True)
    widths = (highest - torch.where(logits.isneginf(), highest, logits)).amax(1).double()
    scale = float(widths.median()) or float(widths.max()) or 1.0
    return LOWEST * scale, HIGHEST * scale


def divided(logits: Tensor, temperature: float) -> Tensor:
    """Logits over a temperature, in float64 where float32 would overflow."""
    return (logits if SMALLEST < temperature < LARGEST else logits.double()) / temperature


def fit_temperature(logits: Tensor | np.ndarray, target: Tensor | np.ndarray) -> float:
    """The temperature by which to divide logits so that their likelihood on held-out examples is best.

    It never changes which class is chosen. Fit it on examples that the model was not trained on; judge it on others.
    Where the best would be 0 or infinite, because the model is always right or no better than chance, the result is a
    bound far below or above the scale of the logits.

    Args:
        logits: (N, C), two classes or more: a tensor or an array.
        target: (N), integers from 0 to C - 1.

    Returns:
        The temperature; 1 where all logits of each row are equal.

    Raises:
        ShapeError, DtypeError, TargetError: As :func:`read`.
        ArgumentError: There are no examples.

    >>> logits = 50 * torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    >>> round(fit_temperature(logits, torch.tensor([0, 0, 0, 1])), 2)  # right three times in four: log-odds 1.1
    45.51
    """
    logits, target = as_tensor(logits, "logits"), as_tensor(target, "labels")
    check(logits, target)
    if not len(logits):
        raise ArgumentError("fit_temperature: expected at least one example.")
    values = logits.detach() if logits.dtype == torch.float64 else as_floats(logits.detach())
    label = target.to(torch.int64)
    bad = values.isnan() | values.isposinf()
    if bool(bad.any()) or not bool(values.gather(1, label[:, None]).isfinite().all()):
        raise TargetError("fit_temperature: the logits have NaN or infinite values (-inf is allowed for classes that "
                          "were masked out, except the label's).")
    bounds = temperature_bounds(values)
    # A constant in all logits of a row changes no probability, but in the mean below it would cost digits.
    values = values - values.amax(1, keepdim=True)
    if not SMALLEST < bounds[0] < bounds[1] < LARGEST:
        values = values.double()
    low, high = (math.log(bound) for bound in bounds)
    chosen = float(values.gather(1, label[:, None]).double().mean())

    def slope(log_temperature: float) -> float:
        """The model's mean logit minus the label's. Positive: the likelihood rises with the temperature."""
        p = torch.softmax(values * math.exp(-log_temperature), 1)
        return float(p.mul_(values).nansum(1).double().mean()) - chosen

    if bool((values == values[:, :1]).all()):
        return 1.0  # nothing to scale
    # The loss is convex in 1/T, so the slope changes sign at most once; never where a model is perfect or worse than
    # chance. Search from T = 1 in growing steps.
    start = min(max(0.0, low), high)
    up, step, near = slope(start) > 0, 1.0, start
    while True:
        far = min(near + step, high) if up else max(near - step, low)
        if (slope(far) > 0) != up:
            return math.exp(_root(slope, min(near, far), max(near, far), 1e-5))
        if far in (low, high):
            return math.exp(far)
        near, step = far, 2 * step


def _root(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Where the function changes its sign between ``low`` and ``high``, by the Illinois method.

    scipy has root finders, but metrics import torch and numpy alone.
    """
    at_low, at_high, side = function(low), function(high), 0
    while high - low > tolerance:
        # Not closer to an end than half the tolerance, so that the interval around the root shrinks from both sides.
        secant = low - at_low * (high - low) / (at_high - at_low)
        middle = min(max(secant, low + tolerance / 2), high - tolerance / 2)
        at_middle = function(middle)
        if (at_middle > 0) == (at_low > 0):
            low, at_low = middle, at_middle
            at_high = at_high / 2 if side == -1 else at_high  # an end that stays twice counts for less
            side = -1
        else:
            high, at_high = middle, at_middle
            at_low = at_low / 2 if side == 1 else at_low
            side = 1
    return (low + high) / 2
