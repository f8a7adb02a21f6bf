"""The attacks that runs are measured with: methods, the losses that drive them, and what each is called.

A file of its own, beside ``attacks/``, because reports and verdicts read it without importing torch.
"""

from __future__ import annotations

from typing import NamedTuple


class Method(NamedTuple):
    """An attack by gradients: its function in :mod:`encouraging.attacks`, its norm and its words."""

    name: str
    norm: str
    words: str

    def by(self, loss: str) -> str:
        """The name of this attack, driven by a loss: ``pgd`` by cross-entropy, ``pgd_margin`` by the margin."""
        return self.name + LOSSES[loss].suffix

    @property
    def scale_free(self) -> str:
        """The name of the strongest, per image, of its attacks by losses that do not depend on the scale."""
        return f"{self.name}{SCALE_FREE}"


class DrivingLoss(NamedTuple):
    """What is added to the name of a method, and its words; ``scale_free`` losses do not change when the logits are
    multiplied by a number."""

    suffix: str
    words: str
    scale_free: bool = False


METHODS = {method.name: method for method in (Method("fgsm", "linf", "FGSM"), Method("pgd", "linf", "PGD"),
                                              Method("pgd_l2", "l2", "PGD in L2"))}
LOSSES = {"ce": DrivingLoss("", "by cross-entropy"), "margin": DrivingLoss("_margin", "by margin", scale_free=True),
          "dlr": DrivingLoss("_dlr", "by DLR", scale_free=True)}
SCALE_FREE = "_scale_free"
# Other attacks: AutoAttack chooses its own losses, and the authors' attacks have other settings.
OTHERS = {"autoattack": "AutoAttack", "autoattack_l2": "AutoAttack in L2",
          "pgd_l2_damped": "PGD in L2 by cross-entropy, damped",
          "fgsm_normalised": "FGSM on the label’s logit, normalised"}
DAMPED = {"pgd_l2": "pgd_l2_damped"}  # the form of a method by cross-entropy that stops where a gradient is tiny
