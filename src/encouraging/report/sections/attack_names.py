"""What attacks are called where a reader sees them."""

from __future__ import annotations

METHODS = {"fgsm": "FGSM", "pgd": "PGD", "pgd_l2": "PGD in L2", "autoattack": "AutoAttack",
           "autoattack_l2": "AutoAttack in L2", "pgd_l2_damped": "PGD in L2 by cross-entropy, damped",
           "fgsm_normalised": "FGSM on the label’s logit, normalised"}
DRIVEN = {"": "by cross-entropy", "_margin": "by margin", "_dlr": "by DLR", "_scale_free": "scale-free"}


def called(name: str) -> str:
    """The name of an attack as a reader sees it.

    >>> called("pgd"), called("pgd_scale_free"), called("autoattack"), called("mine")
    ('PGD by cross-entropy', 'PGD scale-free', 'AutoAttack', 'mine')
    """
    for method in ("pgd_l2", "pgd", "fgsm"):
        if name.removeprefix(method) in DRIVEN and name.startswith(method):
            return f"{METHODS[method]} {DRIVEN[name.removeprefix(method)]}"
    return METHODS.get(name, name)
