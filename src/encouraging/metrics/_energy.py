r"""Energies: minus the logits, as energy-based models see them.

A classifier with logits :math:`z` has the conditional energy :math:`E(y \mid x) = -z_y` and the free energy
:math:`-\log \sum_y e^{z_y}`. Learning should make the energy low on the data, for the label, and high elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError, ShapeError
from ._inputs import best_rival, check_labels, float_logits
from ._readings import Readings, Unlabelled, check_readings
from ._spread import spread


def conditional_energy(logits: Tensor | np.ndarray) -> Tensor:
    """The energy of each class: minus its logit.

    Args:
        logits: (..., C).

    Returns:
        Energies of the same shape.

    Raises:
        DtypeError: The logits are not floats.

    >>> conditional_energy(torch.tensor([[2.0, -1.0]]))
    tensor([[-2.,  1.]])
    """
    return -float_logits(logits)


def free_energy(logits: Tensor | np.ndarray, temperature: float = 1.0) -> Tensor:
    r"""The energy of the example whatever its class, :math:`-T \log \sum_y e^{z_y / T}`.

    Args:
        logits: (..., C).
        temperature: :math:`T`, above 0.

    Returns:
        Energies of shape (...).

    Raises:
        ArgumentError: The temperature is not above 0.
        DtypeError, ShapeError: The logits are not floats, or have no classes.

    >>> free_energy(torch.tensor([[0.0, 0.0]])).exp()
    tensor([0.5000])
    """
    if not temperature > 0:
        raise ArgumentError(f"free_energy(temperature={temperature}): expected a number above 0.")
    return -temperature * torch.logsumexp(_with_classes(logits) / temperature, -1)


def minimum_energy(logits: Tensor | np.ndarray) -> Tensor:
    """The lowest conditional energy, by which the paper recognises examples of the training distribution.

    Args:
        logits: (..., C).

    Returns:
        Energies of shape (...).

    Raises:
        DtypeError, ShapeError: The logits are not floats, or have no classes.

    >>> minimum_energy(torch.tensor([[2.0, -1.0]]))
    tensor([-2.])
    """
    return -_with_classes(logits).amax(-1)


def _with_classes(logits: Tensor | np.ndarray) -> Tensor:
    logits = float_logits(logits)
    if not logits.ndim or not logits.shape[-1]:
        raise ShapeError(f"logits: expected the shape (..., classes) with one class or more, got "
                         f"{tuple(logits.shape)}.")
    return logits


def rival_energy(logits: Tensor | np.ndarray, target: Tensor | np.ndarray, *, zero_label: bool = False) -> Tensor:
    """The lowest conditional energy among the classes that are not the label.

    Args:
        logits: (..., C), of any floating-point type.
        target: (...), integers from 0 to C - 1.
        zero_label: Whether the label's logit is set to 0 instead of being left out, so that the result never lies
            above 0: what the paper's tables hold.

    Returns:
        Energies of the shape of ``target``.

    Raises:
        ShapeError, DtypeError: The shapes do not match, the logits are not floats, or the labels are not integers.

    >>> logits, target = torch.tensor([[5.0, -1.0, -2.0]]), torch.tensor([0])
    >>> rival_energy(logits, target).item(), rival_energy(logits, target, zero_label=True).item()
    (1.0, -0.0)
    """
    logits, target = check_labels(logits, target)
    return -best_rival(logits, target[..., None], 0.0 if zero_label else -torch.inf)


def energy_profile(logits: Tensor | np.ndarray, target: Tensor | np.ndarray, of: int) -> Tensor:
    """The mean conditional energy of each class over the examples of one class: the paper's energy surface.

    Args:
        logits: (N, C).
        target: (N), the labels.
        of: The class whose examples are taken.

    Returns:
        (C) energies in float64; NaN where the class has no examples.

    Raises:
        ShapeError, DtypeError: The shapes do not match, the logits are not floats, or the labels are not integers.

    >>> energy_profile(torch.tensor([[2.0, 0.0], [4.0, 1.0], [0.0, 9.0]]), torch.tensor([0, 0, 1]), of=0)
    tensor([-3.0000, -0.5000], dtype=torch.float64)
    """
    logits, target = check_labels(logits, target)
    return conditional_energy(logits[target == of]).double().mean(0)


def energies(readings: Readings) -> dict[str, Any]:
    """On the label, on its best rival (and in the paper's form), free, and the lowest of all classes."""
    return {"label": spread(-readings.score), "rival": spread(-readings.rival),
            "rival_zeroed": float(-readings.rival.clamp(min=0).double().mean()),
            "free": spread(-readings.lse), "minimum": spread(-readings.highest)}


# The names by which other libraries know the scores. MSP is the maximum probability as it is usually computed.
USUAL_NAMES = {"msp": "msp", "max_logit": "min_energy", "energy": "free_energy", "log_odds": "max_probability"}


def scores(readings: Readings | Unlabelled) -> dict[str, Tensor]:
    """Scores by which out-of-distribution examples are detected; higher means more like the training data.

    - ``min_energy``: the highest logit, which is minus the lowest energy; usually called MaxLogit (MLS)
    - ``free_energy``: the logsumexp of all logits; usually called Energy (EBO)
    - ``max_probability``: the log-odds of the highest probability
    - ``msp``: the highest probability in float32; usually called MSP

    Log-odds have the order of the probability itself, but still differ where it rounds to 1 in float32. A model with
    large margins has most of its examples there: MSP cannot tell them apart, and ties count as guesses.

    Args:
        readings: What :func:`read` or :func:`read_unlabelled` returned.

    Returns:
        One number per example for each name.

    Raises:
        DtypeError: Something else than readings was passed.

    >>> from encouraging.metrics import read_unlabelled
    >>> {name: round(score.item(), 2) for name, score in scores(read_unlabelled(torch.tensor([[20.0, 0.0]]))).items()}
    {'max_probability': 20.0, 'min_energy': 20.0, 'free_energy': 20.0, 'msp': 1.0}
    """
    if not isinstance(readings, Unlabelled):
        readings = check_readings(readings, "scores(read_unlabelled(logits))")
    return {"max_probability": readings.log_odds, "min_energy": readings.highest, "free_energy": readings.lse,
            "msp": readings.log_odds.float().sigmoid()}
