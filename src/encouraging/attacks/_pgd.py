"""Projected gradient descent (Madry and others, 2018) in the two usual balls."""

from __future__ import annotations

import torch
from torch import Tensor

from ._ascent import Ascent, attack
from ._ball import L2_BALL, LINF, Ball
from ._check import check_batch, check_eps, check_index, check_reach, check_settings
from ._model import Model, checked, evaluating


def pgd(model: Model, x: Tensor, y: Tensor, eps: float, *, steps: int = 40, step_size: float = 2 / 255,
        loss: str = "ce", random_start: bool = True, restarts: int = 1, seed: int = 0, index: Tensor | None = None,
        batch_size: int | None = None) -> Tensor:
    """Steps along the sign of the gradient; no coordinate changes by more than ``eps``. Defaults are the paper's.

    Args:
        model: any function from inputs to logits (N, C); a module is put into evaluation mode meanwhile.
        x: inputs in [0, 1], float32 or float64, the shape (N, ...). Normalisation belongs in the model.
        y: labels, the shape (N,).
        eps: the largest change of any coordinate, at most 1.
        steps: how many steps; each is projected onto the ball, then clipped to [0, 1].
        step_size: the length of a step, in the units of ``eps``.
        loss: what the steps increase: ``"ce"`` (the paper's), ``"margin"``, ``"dlr"`` or ``"label_logit"``. Attacks
            driven by ``"ce"`` can fail on confident models; ``"margin"`` and ``"dlr"`` do not depend on the scale.
        random_start: begin at a random point of the ball, clipped to [0, 1], instead of at x.
        restarts: how many random starts. Of every example the first result that is misclassified is kept, or else
            the one with the smallest margin.
        seed: random starts depend on it and on ``index`` alone, not on the batch or the device.
        index: the number of every example in its data set, the shape (N,); 0, 1, ... by default.
        batch_size: the largest number of examples that are attacked at a time; all of them by default.

    Returns:
        Perturbed inputs, without a gradient: the last step's, as in the paper.

    Raises:
        ArgumentError, DtypeError, ShapeError, TargetError: an argument cannot be used; the message says why.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(model.weight)
    >>> x, y = torch.tensor([[0.75, 0.25]]), torch.tensor([0])
    >>> pgd(model, x, y, 0.25, loss="margin", random_start=False)
    tensor([[0.5000, 0.5000]])
    """
    return _pgd(LINF, model, x, y, eps, steps=steps, step_size=step_size, loss=loss, random_start=random_start,
                restarts=restarts, seed=seed, index=index, batch_size=batch_size)


def pgd_l2(model: Model, x: Tensor, y: Tensor, eps: float, *, steps: int = 40, step_size: float = 0.2,
           loss: str = "ce", random_start: bool = False, restarts: int = 1, damping: float = 0.0, seed: int = 0,
           index: Tensor | None = None, batch_size: int | None = None) -> Tensor:
    """Steps along the normalised gradient; the Euclidean length of the perturbation is at most ``eps``.

    The defaults are the paper's: its code computes a random start and never uses it, so there is none; and 40 steps of
    0.2 reach no further than 8, whatever ``eps``.

    Args:
        model, x, y, steps, loss, random_start, restarts, seed, index, batch_size: as in :func:`pgd`.
        eps: the largest Euclidean length of the perturbation.
        step_size: the Euclidean length of a step.
        damping: what is added to the length by which an example's gradient is divided. The paper's attack is the one
            with ``DAMPING``: its code adds 1e-10 to the gradient of the mean over 128 images. Where a model is
            confident the gradient of cross-entropy is shorter than that, the steps become too small, and the model
            seems robust.

    Returns:
        Perturbed inputs, as :func:`pgd` returns them.

    Raises:
        ArgumentError, DtypeError, ShapeError, TargetError: an argument cannot be used; the message says why.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(model.weight)
    >>> x, y = torch.tensor([[0.75, 0.25]]), torch.tensor([0])
    >>> moved = pgd_l2(model, x, y, 0.1, loss="margin") - x
    >>> round(moved.norm().item(), 6)
    0.1
    """
    return _pgd(L2_BALL, model, x, y, eps, steps=steps, step_size=step_size, loss=loss, random_start=random_start,
                restarts=restarts, seed=seed, index=index, batch_size=batch_size, damping=damping)


def _pgd(ball: Ball, model: Model, x: Tensor, y: Tensor, eps: float, *, steps: int, step_size: float, loss: str,
         random_start: bool, restarts: int, seed: int, index: Tensor | None, batch_size: int | None,
         damping: float = 0.0) -> Tensor:
    eps = check_eps(eps)
    check_settings(loss=loss, steps=steps, step_size=step_size, random_start=random_start, restarts=restarts,
                   damping=damping, seed=seed, batch_size=batch_size)
    if ball is LINF:
        check_reach(eps)
    highest = check_batch(x, y)
    ascent = Ascent(ball, eps, steps, step_size, loss, random_start, restarts, damping=damping)
    with evaluating(model) as model, torch.autocast(x.device.type, enabled=False):
        return attack(checked(model, highest), x, y, ascent, seed=seed, index=check_index(index, x),
                      batch_size=batch_size)
