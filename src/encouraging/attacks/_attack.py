"""An attack with its settings as one value, for lists of attacks and recipes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..errors import ArgumentError, did_you_mean
from ._autoattack import autoattack, check_autoattack
from ._check import check_settings
from ._fgsm import fgsm
from ._model import Model
from ._pgd import pgd, pgd_l2

METHODS: dict[str, Callable[..., Tensor]] = {"fgsm": fgsm, "pgd": pgd, "pgd_l2": pgd_l2, "autoattack": autoattack}
# Arguments of a single call, which are no settings of the attack.
CALL = {"model", "x", "y", "eps", "seed", "index", "batch_size", "state_path", "progress"}


class Attack:
    """One of ``fgsm``, ``pgd``, ``pgd_l2`` and ``autoattack`` by name, with any of its settings.

    Args:
        method: the name of the function.
        **settings: its keyword arguments, without those of a single call (seed, index, batch_size, state_path,
            progress).

    Raises:
        ArgumentError: a name is not known, or a setting cannot be used.

    >>> Attack("pgd", loss="margin", steps=100)
    Attack('pgd', loss='margin', steps=100)
    >>> Attack("pgd", loss="margin").name, Attack("autoattack", norm="l2").name
    ('pgd_margin', 'autoattack_l2')
    """

    __slots__ = ("method", "settings")

    def __init__(self, method: str, **settings: Any) -> None:
        if method not in METHODS:
            raise ArgumentError(f"Attack({method!r}): expected one of {', '.join(map(repr, METHODS))}."
                                f"{did_you_mean(method, METHODS)}")
        allowed = sorted(set(inspect.signature(METHODS[method]).parameters) - CALL)
        for name in settings:
            if name not in allowed:
                raise ArgumentError(f"Attack({method!r}): {name!r} is no setting of {method}; expected some of "
                                    f"{', '.join(allowed)}.{did_you_mean(name, allowed)}")
        check_settings(**settings)
        if method == "autoattack":
            check_autoattack(**settings)
        self.method = method
        self.settings = dict(sorted(settings.items()))

    def __call__(self, model: Model, x: Tensor, y: Tensor, eps: float, **call: Any) -> Tensor:
        """Perturbed inputs; ``call`` may hold seed, index, batch_size and what else the function takes."""
        return METHODS[self.method](model, x, y, eps, **self.settings, **call)

    def setting(self, name: str) -> Any:
        """A setting's value, given or default; ``None`` where the method has no such setting."""
        parameter = inspect.signature(METHODS[self.method]).parameters.get(name)
        return self.settings.get(name, parameter.default if parameter is not None else None)

    @property
    def loss(self) -> str | None:
        """What drives the attack; AutoAttack chooses for itself."""
        loss: str | None = self.setting("loss")
        return loss

    @property
    def norm(self) -> str:
        """``"linf"`` or ``"l2"``."""
        return "l2" if self.method == "pgd_l2" else self.setting("norm") or "linf"

    @property
    def reach(self) -> float:
        """The largest distance that the steps can cover; infinity for a random start and AutoAttack, which depend on
        epsilon beyond that.

        >>> Attack("pgd_l2", steps=10, step_size=0.5).reach, Attack("pgd").reach
        (5.0, inf)
        """
        if self.method not in ("pgd", "pgd_l2") or self.setting("random_start"):
            return math.inf
        return float(self.setting("steps") * self.setting("step_size"))

    @property
    def name(self) -> str:
        """The method, the loss unless it is the paper's, and AutoAttack's norm unless it is L-infinity."""
        if self.method == "autoattack":
            return "autoattack_l2" if self.norm == "l2" else "autoattack"
        return self.method if self.loss == "ce" else f"{self.method}_{self.loss}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attack) and (self.method, self.settings) == (other.method, other.settings)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"Attack({', '.join([repr(self.method), *(f'{k}={v!r}' for k, v in self.settings.items())])})"
