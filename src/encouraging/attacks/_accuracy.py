"""How many examples stay classified correctly, over attacks and epsilons."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError, DtypeError
from ..metrics import margin
from ._attack import Attack
from ._autoattack import STANDARD
from ._check import BEYOND, check_batch, check_eps, check_settings, check_state_path
from ._model import Model, checked, evaluating, plain
from ._state import Cell, State

# The paper's epsilons for images in [0, 1].
LINF_EPSILONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
L2_EPSILONS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
ROUNDING = 1e-3  # relative error that a sum of steps may have


@dataclass(frozen=True)
class Progress:
    """Where a measurement stands.

    Attributes:
        attack: the attack's name.
        eps: its epsilon.
        fraction: how much of this pair is done, from 0 to 1.
        accuracy: the accuracy in percent once all of it is done, else None.
    """

    attack: str
    eps: float
    fraction: float
    accuracy: float | None = None


@dataclass(frozen=True)
class RobustAccuracy:
    """Which examples stayed classified correctly. Printing it shows the accuracies as a table.

    Attributes:
        attacks: the attacks by name.
        survived: one tensor of truth values per attack and epsilon, on the CPU.
    """

    attacks: Mapping[str, Attack]
    survived: Mapping[str, Mapping[float, Tensor]]

    def accuracy(self, attack: str, eps: float) -> float:
        """Percent of examples that are classified correctly before and after this attack."""
        return percent(self.survived[attack][eps])

    def table(self) -> dict[str, dict[str, float]]:
        """All accuracies in percent, ready for JSON: ``{"pgd": {"0.1": 76.5}}``."""
        return {name: {f"{eps:g}": percent(mask) for eps, mask in row.items()} for name, row in self.survived.items()}

    def __str__(self) -> str:
        """The table as text, in percent: a line per attack, a column per epsilon."""
        table = self.table()
        columns = sorted({eps for row in table.values() for eps in row}, key=float)
        lines = [["epsilon", *columns], *([name, *(f"{row[eps]:.1f}" if eps in row else "" for eps in columns)]
                                          for name, row in table.items())]
        name_width, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
        return "\n".join("  ".join([name.ljust(name_width),
                                    *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
                         for name, *cells in lines)


def percent(survived: Tensor) -> float:
    return 100 * survived.double().mean().item()


def accuracy_over_eps(model: Model, x: Tensor, y: Tensor, attacks: Sequence[Attack] | Mapping[str, Attack],
                      epsilons: Iterable[float] | Mapping[str, Iterable[float]], *, seed: int = 0,
                      batch_size: int = 1000, state_path: str | Path | None = None,
                      progress: Callable[[Progress], None] | None = None) -> RobustAccuracy:
    """Accuracy under every attack at every epsilon.

    An example counts where it is classified correctly both before and after the attack; so examples that the model
    gets wrong anyway are not attacked. A tie between the label and a rival counts as wrong, and so do logits that are
    NaN. Epsilons beyond the reach of an attack's steps all give the same result, which is computed once.

    Args:
        model: any function from inputs to logits (N, C); a module is put into evaluation mode meanwhile.
        x: inputs in [0, 1], the shape (N, ...).
        y: labels, the shape (N,).
        attacks: a list, whose names are those of :attr:`Attack.name`, or a mapping from names.
        epsilons: one grid for all attacks, or a mapping from their names. In L-infinity at most 1, the range of inputs.
        seed: random starts depend on it and on the position of an example in x alone.
        batch_size: the largest number of examples that are attacked at a time; AutoAttack's random draws depend on it.
        state_path: a file that is written after every attack and epsilon (AutoAttack: after every part, beside it). A
            call that was stopped continues from there; the state of another model, data or seed is refused. A model is
            known by its weights: a function by those of the modules that it calls, if it calls any.
        progress: called after every batch, and with the accuracy at the end of every attack and epsilon.

    Returns:
        The examples that survived, with accuracies in percent.

    Raises:
        ArgumentError, DtypeError, ShapeError, TargetError: an argument cannot be used; the message says why.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(model.weight)
    >>> x, y = torch.tensor([[0.75, 0.25], [0.875, 0.0]]), torch.tensor([0, 0])
    >>> result = accuracy_over_eps(model, x, y, [Attack("fgsm")], [0, 0.25, 0.5])
    >>> result.table()
    {'fgsm': {'0': 100.0, '0.25': 50.0, '0.5': 0.0}}
    >>> print(result)
    epsilon      0  0.25  0.5
    fgsm     100.0  50.0  0.0
    """
    named, grids = _check_attacks(attacks, epsilons)
    check_settings(seed=seed, batch_size=batch_size)
    unclipped = [name for name, attack in named.items() if attack.setting("clip") is False]
    highest = check_batch(x, y, box=len(unclipped) < len(named))
    if not len(x):
        raise ArgumentError("accuracy_over_eps: x has no examples; expected at least one.")
    path = check_state_path(state_path)
    report = progress or (lambda _: None)
    with evaluating(model) as model, torch.autocast(x.device.type, enabled=False):
        x, y = plain(x), plain(y).long()
        correct = _clean(checked(model, highest), x, y, batch_size)
        right = correct.nonzero()[:, 0]
        how = _How(seed, batch_size, State(path, model, x, y, seed, batch_size), report)
        survived: dict[str, dict[float, Tensor]] = {name: {} for name in named}
        for name, attack in named.items():
            for eps in grids[name]:
                cell = Cell(name, attack, eps)
                mask = how.state.get(cell, len(x))
                beyond = [before for before in survived[name] if min(before, eps) > (1 + ROUNDING) * attack.reach]
                if mask is None and beyond:
                    mask = survived[name][beyond[0]]
                    how.state.put(cell, mask)
                if mask is None:
                    mask = correct.clone()
                    if eps > 0 and len(right):
                        mask[right] = _attacked(model, x[right], y[right], right, cell, how)
                    mask = mask.cpu()
                    how.state.put(cell, mask)
                survived[name][eps] = mask
                report(Progress(name, eps, 1.0, percent(mask)))
    return RobustAccuracy(named, survived)


@dataclass(frozen=True)
class _How:
    """What all attacks of a call share."""

    seed: int
    batch_size: int
    state: State
    report: Callable[[Progress], None]


def _attacked(model: Model, x: Tensor, y: Tensor, index: Tensor, cell: Cell, how: _How) -> Tensor:
    """Which of these examples are still classified correctly; ``index`` has their positions among all."""
    attack, eps, batch_size = cell.attack, cell.eps, how.batch_size
    if attack.method == "autoattack":
        parts = len(attack.setting("parts") or STANDARD)
        done: list[str] = []

        def after_part(part: str, _: float) -> None:
            done.append(part)
            how.report(Progress(cell.name, eps, min(1.0, len(done) / parts)))

        perturbed = attack(model, x, y, eps, seed=how.seed, batch_size=batch_size, progress=after_part,
                           state_path=how.state.beside(cell))
        return _correct(model, perturbed, y, batch_size)
    survived = []
    for first in range(0, len(x), batch_size):
        rows = slice(first, first + batch_size)
        call: dict[str, Any] = {} if attack.method == "fgsm" else {"seed": how.seed, "index": index[rows]}
        survived.append(_correct(model, attack(model, x[rows], y[rows], eps, **call), y[rows], batch_size))
        how.report(Progress(cell.name, eps, min(1.0, (first + batch_size) / len(x))))
    return torch.cat(survived)


@torch.no_grad()
def _correct(model: Model, x: Tensor, y: Tensor, batch_size: int) -> Tensor:
    return torch.cat([margin(model(batch), label) > 0
                      for batch, label in zip(torch.split(x, batch_size), torch.split(y, batch_size), strict=True)])


def _clean(model: Model, x: Tensor, y: Tensor, batch_size: int) -> Tensor:
    """Which examples are classified correctly before any attack; a model that has diverged is refused."""
    has_nan = []

    def noting_nan(batch: Tensor) -> Tensor:
        logits = model(batch)
        has_nan.append(logits.isnan().any(1))
        return logits

    correct = _correct(noting_nan, x, y, batch_size)
    if torch.cat(has_nan).all():
        raise ArgumentError("model(x): the logits of all examples are NaN; expected numbers. Did training diverge, "
                            "or do the inputs lack the normalisation that the model was trained with?")
    return correct


def _check_attacks(attacks: Sequence[Attack] | Mapping[str, Attack],
                   epsilons: Iterable[float] | Mapping[str, Iterable[float]]
                   ) -> tuple[dict[str, Attack], dict[str, tuple[float, ...]]]:
    if isinstance(attacks, Attack):
        raise DtypeError(f"attacks: expected a list or a mapping, got {attacks!r} alone. Pass [{attacks!r}].")
    given = ({name: _check_grid(grid) for name, grid in epsilons.items()} if isinstance(epsilons, Mapping) else
             _check_grid(epsilons))
    pairs: list[tuple[str, Attack]]
    pairs = list(attacks.items()) if isinstance(attacks, Mapping) else [(_check_attack(a).name, a) for a in attacks]
    named = {name: _check_attack(attack) for name, attack in pairs}
    if len(named) < len(pairs):
        raise ArgumentError(f"attacks: two of them have the same name ({', '.join(name for name, _ in pairs)}). Pass a "
                            "mapping from names of your own.")
    if not named:
        raise ArgumentError("attacks: expected at least one.")
    grids = given if isinstance(given, dict) else dict.fromkeys(named, given)
    missing = [name for name in named if name not in grids]
    if missing:
        raise ArgumentError(f"epsilons: no grid for {', '.join(map(repr, missing))}; there are grids for "
                            f"{', '.join(map(repr, grids))}.")
    for name, attack in named.items():
        if attack.norm == "linf" and attack.setting("clip") is not False and max(grids[name]) > 1:
            raise ArgumentError(f"epsilons: {max(grids[name]):g} for {name!r}: {BEYOND}, and give attacks in L2 a "
                                "grid of their own: a mapping from names to grids.")
    return named, grids


def _check_grid(grid: Iterable[float]) -> tuple[float, ...]:
    """The epsilons of a grid, which may be an iterator and is therefore read once."""
    is_number = getattr(grid, "ndim", None) == 0  # as an array or a tensor, which call themselves iterable
    if is_number or not isinstance(grid, Iterable) or isinstance(grid, str):
        raise DtypeError(f"epsilons: expected a list of numbers, got {grid!r}. For one epsilon pass [{grid!r}].")
    epsilons = tuple(map(check_eps, grid))
    if not epsilons:
        raise ArgumentError("epsilons: a grid is empty; expected at least one epsilon per grid.")
    return epsilons


def _check_attack(attack: object) -> Attack:
    if not isinstance(attack, Attack):
        raise DtypeError(f"attacks: expected values like Attack('pgd', loss='margin'), got {type(attack).__name__}.")
    return attack
