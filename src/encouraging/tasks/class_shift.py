"""Changes of the logits by class frequency before the loss: LDAM's margins and scale, balanced softmax."""

from __future__ import annotations

import torch
from torch import Tensor

from ..imbalance import log_prior
from ..margins import ldam_margins, subtract_margin
from .objective_config import ObjectiveConfig


class ClassShift:
    r"""The logits that the loss of an arm sees, from those of its network.

    .. math:: z'_c = s \, (z_c - m_y [c = y]) + \log \pi_c

    with the arm's ``logit_scale`` :math:`s`, its margins :math:`m` per class (``ldam_margin`` is the largest of them)
    and, for ``balanced_softmax``, the fractions :math:`\pi` of the training examples. Terms that an arm does not use
    are left out. Evaluations use only the scale: see :meth:`evaluated`.

    >>> shift = ClassShift(ObjectiveConfig(logit_scale=2.0, ldam_margin=0.5), torch.tensor([1, 16]))
    >>> shift(torch.zeros(2, 2), torch.tensor([0, 1]))
    tensor([[-1.0000,  0.0000],
            [ 0.0000, -0.5000]])
    """

    def __init__(self, objective: ObjectiveConfig, counts: Tensor, device: torch.device | None = None) -> None:
        self.scale = objective.logit_scale
        self.margins = ldam_margins(counts, objective.ldam_margin).to(device) if objective.ldam_margin else None
        self.prior = log_prior(counts).to(device) if objective.balanced_softmax else None

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """The logits for the loss; ``target`` holds the labels."""
        if self.margins is not None:
            logits = subtract_margin(logits, target, self.margins)
        logits = self.evaluated(logits)
        return logits if self.prior is None else logits + self.prior.to(logits.dtype)

    def evaluated(self, logits: Tensor) -> Tensor:
        """The logits for evaluations: a cosine is multiplied by the scale that the model was trained with."""
        return logits if self.scale == 1 else self.scale * logits
