"""Attacks on any classifier ``model(x) -> logits``, and whether their numbers can be trusted."""

from ._accuracy import L2_EPSILONS, LINF_EPSILONS, Progress, RobustAccuracy, accuracy_over_eps
from ._attack import Attack
from ._autoattack import autoattack
from ._fgsm import fgsm
from ._masking import Verdict, masked_gradients
from ._pgd import pgd, pgd_l2
from ._training import DAMPING, TRAINING_ATTACKS, adversarial_batch

__all__ = [
    "DAMPING",
    "L2_EPSILONS",
    "LINF_EPSILONS",
    "TRAINING_ATTACKS",
    "Attack",
    "Progress",
    "RobustAccuracy",
    "Verdict",
    "accuracy_over_eps",
    "adversarial_batch",
    "autoattack",
    "fgsm",
    "masked_gradients",
    "pgd",
    "pgd_l2",
]
