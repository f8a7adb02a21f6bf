"""Adversarial training: the batch that a training step sees instead of the clean one."""

from __future__ import annotations

from torch import Tensor

from ..errors import ArgumentError, DtypeError
from ._ascent import Ascent
from ._attack import Attack
from ._ball import L2_BALL, LINF
from ._check import check_eps, check_index, check_reach, check_types
from ._model import Model, checked, evaluating, plain

# What the paper's code adds to the length of a gradient, 1e-10, times the 128 images over which its loss is the mean:
# the same in terms of an example's own gradient.
DAMPING = 1e-10 * 128

# The paper's adversarial training: the attack and its epsilon.
TRAINING_ATTACKS = {
    "fgsm": (Attack("fgsm"), 0.3),
    "pgd": (Attack("pgd", steps=7, step_size=0.1), 0.3),
    "pgd_l2": (Attack("pgd_l2", steps=7, step_size=0.2, damping=DAMPING), 3.0),
}


def adversarial_batch(model: Model, x: Tensor, y: Tensor, attack: Attack, eps: float, *, seed: int | Tensor = 0,
                      index: Tensor | None = None) -> Tensor:
    """Perturb a training batch without synchronising with the device, so that it can be part of a CUDA graph.

    The model is attacked in evaluation mode, so that batch norm keeps its statistics, and returns to its mode;
    gradients of parameters are neither computed nor accumulated. Values of x and y are not checked: x must be in
    [0, 1]. An active autocast stays active.

    Args:
        model: any function from inputs to logits (N, C).
        x: inputs in [0, 1], the shape (N, ...).
        y: labels, the shape (N,).
        attack: ``fgsm``, ``pgd`` or ``pgd_l2`` with one start; the paper's are in ``TRAINING_ATTACKS``.
        eps: the radius of the ball, in L-infinity at most 1 unless the attack has ``clip=False``.
        seed: random starts depend on it and on ``index``. Give every step another one; in a CUDA graph it is an
            int64 tensor on the device that changes between replays.
        index: the index of every example, the shape (N,); its position in the batch by default.

    Returns:
        The perturbed batch, without a gradient.

    Raises:
        ArgumentError, DtypeError, ShapeError: an argument cannot be used; the message says why.

    >>> import torch
    >>> model = torch.nn.Linear(4, 3)
    >>> x, y = torch.rand(8, 4), torch.randint(3, (8,))
    >>> attack, eps = TRAINING_ATTACKS["pgd"]
    >>> loss = torch.nn.functional.cross_entropy(model(adversarial_batch(model, x, y, attack, eps, seed=1)), y)
    """
    eps = check_eps(eps)
    check_types(x, y)
    if not isinstance(attack, Attack):
        raise DtypeError(f"attack: expected a value like Attack('pgd', steps=7, step_size=0.1), got {attack!r}. The "
                         "paper's are in TRAINING_ATTACKS.")
    if attack.method == "autoattack" or attack.setting("restarts") not in (None, 1):
        raise ArgumentError(f"adversarial_batch: {attack!r} cannot run in a training step, because it waits for the "
                            "device. Expected fgsm, pgd or pgd_l2 with restarts=1.")
    if attack.norm == "linf" and attack.setting("clip") is not False:
        check_reach(eps)
    settings = {name: attack.setting(name) for name in ("steps", "step_size", "random_start", "clip", "damping")}
    if attack.method == "fgsm":
        settings |= {"steps": 1, "step_size": eps}
    ascent = Ascent(L2_BALL if attack.norm == "l2" else LINF, eps, loss=str(attack.loss),
                    **{name: value for name, value in settings.items() if value is not None})
    with evaluating(model) as model:
        return ascent.run(checked(model), plain(x), plain(y).long(), seed=seed, index=check_index(index, x)).detach()
