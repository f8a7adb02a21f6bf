"""The class probabilities that a model stands for, read through the loss that it was trained with."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..curves import Curve
from ..curves._curve import check_curve, nll
from ..errors import ArgumentError, CurveError
from ..links import class_gaps
from ._inputs import check, float_logits

LINKS = ("softmax", "sigmoid")
FARTHEST = 60.0  # nats, as far as pulls are asked for: past it the pull of a focal loss underflows, and p is 1


def posterior_logits(logits: Tensor | np.ndarray, curve: Curve, *, link: str = "softmax") -> Tensor:
    r"""Logits whose softmax is the probability of the classes, for a model that was trained with ``curve``.

    Cross-entropy is smallest where the model's probabilities :math:`p` are those of the labels, :math:`q`. Another
    curve is smallest elsewhere: with ``encouraging(0.75)`` a label that is right 60% of the time is predicted with 85%.
    At that point the pulls balance, so that

    .. math:: q_k \propto \frac{1}{-\varphi'(p_k)} = \frac{p_k (1 - p_k)}{\mathrm{pull}_k}

    This has no parameter to fit and needs no labels. It is exact at the optimum of the loss; a model that is
    overconfident because it has learnt its training set by heart needs a temperature as well, as with cross-entropy.
    The most probable class stays so; with ``log_end`` above 0.5 two classes may become equally probable. ``normal``,
    ``aggressive`` and ``square`` have no such optimum, and the result means little there. With label smoothing the
    result is the probability of the smoothed labels.

    Args:
        logits: (N, C), two classes or more: a tensor or an array. With the sigmoid link any shape.
        curve: The curve that the model was trained with.
        link: ``"softmax"``, or ``"sigmoid"`` for classes that are independent of each other.

    Returns:
        A tensor in float64, of the shape of the logits: for ``softmax``, :func:`ece`, :func:`fit_temperature`, a file
        for ``encouraging diagnose``.

    Raises:
        ShapeError, DtypeError: As :func:`read`.
        ArgumentError: ``link`` is not known.
        CurveError: The curve's pull is not above 0 for one of these logits.

    >>> import torch
    >>> from encouraging import curves
    >>> trained = torch.tensor([[0.8485, 0.1515]]).log()  # the optimum of encouraging(0.75) for labels of 60% and 40%
    >>> posterior_logits(trained, curves.encouraging(0.75)).softmax(1).round(decimals=3).tolist()
    [[0.6, 0.4]]
    """
    check_curve(curve)
    values = float_logits(logits).detach().double()
    if link == "sigmoid":
        return _log_pull(curve, -values) - _log_pull(curve, values)
    if link != "softmax":
        raise ArgumentError(f"posterior_logits(link={link!r}): expected one of {', '.join(LINKS)}.")
    check(values)
    gaps = class_gaps(values)[0]
    # log p + log(1 - p) - log pull; the last two in one, which stays finite where each of them is not.
    return -nll(gaps) - (_log_pull(curve, gaps) + nll(-gaps.clamp(max=FARTHEST)))


def _log_pull(curve: Curve, gaps: Tensor) -> Tensor:
    pull = curve.pull(gaps.clamp(-FARTHEST, FARTHEST))
    if bool((pull <= 0).any()):
        where = float(gaps[pull <= 0].flatten()[0])
        raise CurveError(f"{curve!r}: its pull is {float(pull[pull <= 0].flatten()[0]):.3g} at a gap of {where:.4g}: "
                         "expected more than 0 everywhere, because probabilities are read from the balance of the "
                         "pulls.")
    return pull.log()
