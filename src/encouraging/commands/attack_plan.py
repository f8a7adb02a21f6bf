"""Which attacks ``encouraging attack`` runs, and at which epsilons."""

from __future__ import annotations

import importlib.util
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..attack_names import LOSSES, METHODS
from ..attacks import DAMPING, L2_EPSILONS, LINF_EPSILONS, Attack
from ..engine.attack_results import Measured
from ..errors import ArgumentError, did_you_mean
from ..judge.attack_names import size_words
from ..recipes import Recipe
from ..report.numbers import plural


def _all_attacks() -> dict[str, Measured]:
    grid = [Attack(method, loss=loss) for method in METHODS for loss in LOSSES]
    judges = [Attack("autoattack", norm=norm) for norm in ("linf", "l2")]
    # What the authors' attacks on L-Softmax do: epsilon counts normalised pixels, which may leave their range.
    normalised = {"fgsm_normalised": Measured(Attack("fgsm", loss="label_logit", clip=False), "normalised")}
    # What the authors' attack in L2 does: it stops where a gradient is shorter than rounding error.
    damped = {"pgd_l2_damped": Measured(Attack("pgd_l2", damping=DAMPING))}
    return {attack.name: Measured(attack) for attack in (*grid, *judges)} | normalised | damped


KNOWN = _all_attacks()
GRID = tuple(Attack(method, loss=loss).name for method in METHODS for loss in LOSSES)
JUDGES = ("autoattack", "autoattack_l2")
PAPER_EPSILONS = {"linf": LINF_EPSILONS, "l2": L2_EPSILONS}
# RobustBench has 8/255 and 0.5 for natural images; the smaller ones are for models that were trained on clean images.
NATURAL_EPSILONS = {"linf": tuple(k / 255 for k in (0, 1, 2, 4, 8)), "l2": (0.0, 0.125, 0.25, 0.5)}
# Light on dark: models survive the paper's large epsilons. No change of a digit of 8 x 8 pixels is longer than 8.
STROKE_EPSILONS: dict[str, Mapping[str, tuple[float, ...]]] = {
    "mnist": PAPER_EPSILONS, "fashion_mnist": PAPER_EPSILONS,
    "digits": {"linf": LINF_EPSILONS, "l2": tuple(eps for eps in L2_EPSILONS if eps <= 8)}}


def default_epsilons(data: str) -> Mapping[str, tuple[float, ...]]:
    """The epsilons of each norm for a dataset.

    >>> [f"{eps:g}" for eps in default_epsilons("cifar10")["linf"]]
    ['0', '0.00392157', '0.00784314', '0.0156863', '0.0313725']
    >>> default_epsilons("digits")["l2"]
    (0.0, 0.3, 1.0, 3.0)
    """
    return STROKE_EPSILONS.get(data, NATURAL_EPSILONS)


@dataclass(frozen=True)
class AttackPlan:
    """What the command line asks for. Without ``attacks``: the grid, and what the claims of a recipe name."""

    attacks: tuple[str, ...] = ()
    autoattack: bool = False
    eps: tuple[float, ...] | None = None
    eps_l2: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in self.attacks:
            if name not in KNOWN:
                raise ArgumentError(f"--attack {name}: expected one of {', '.join(KNOWN)}." + did_you_mean(name, KNOWN))
        of_pixels = [name for name in self.attacks if KNOWN[name].attack.norm == "linf" and name != "fgsm_normalised"]
        if max(self.eps or (0,)) > 1 and (of_pixels or "fgsm_normalised" not in self.attacks):
            raise ArgumentError(f"--eps {max(self.eps or ()):g}: pixels are in [0, 1], so that a size above 1 "
                                "allows any image. Divide sizes in grey levels by 255: 8/255.")

    def attacks_on(self, recipe: Recipe) -> dict[str, tuple[Measured, list[float]]]:
        """The attacks on the runs of a recipe, by name, with their epsilons."""
        claimed = claimed_attacks(recipe)
        names = self.attacks or (*GRID, *(name for name in KNOWN if name in claimed and name not in GRID))
        names = tuple(dict.fromkeys((*names, *(JUDGES if self.autoattack else ()))))
        if any(name in JUDGES for name in names) and importlib.util.find_spec("pyautoattack") is None:
            raise ArgumentError(f"{recipe.name}: AutoAttack needs the package pyautoattack: pip install "
                                "pyautoattack. Or choose other attacks with --attack.")
        return {name: (Measured(KNOWN[name].attack, KNOWN[name].units), self._epsilons(KNOWN[name].attack, recipe.data))
                for name in names}

    def words(self, recipe: Recipe, runs: int) -> str:
        """What will be measured on this many runs of a recipe."""
        grids: dict[tuple[float, ...], list[str]] = {}
        for name, (_, epsilons) in self.attacks_on(recipe).items():
            grids.setdefault(tuple(epsilons), []).append(name)
        cells = sum(len(epsilons) * len(names) for epsilons, names in grids.items())
        in_all = f" each, {cells * runs} in all" if runs > 1 else ""
        grid_words = "; ".join(f"{', '.join(names)} at {', '.join(map(size_words, epsilons))}"
                               for epsilons, names in grids.items())
        return (f"{recipe.name}: {plural(runs, 'run')} with {plural(cells, 'measurement')}{in_all}, less what is "
                f"measured already: {grid_words}")

    def _epsilons(self, attack: Attack, data: str) -> list[float]:
        epsilons = self.eps_l2 if attack.norm == "l2" else self.eps
        return list(epsilons if epsilons is not None else default_epsilons(data)[attack.norm])


def claimed_attacks(recipe: Recipe) -> Mapping[str, list[str]]:
    """The attacks that claims of a recipe are about, with the claimed epsilons.

    A claim on scale-free attacks together, ``attacks.pgd_scale_free.0.3``, needs those of the grid.
    """
    claimed: dict[str, list[str]] = {}
    for claim in recipe.claims:
        kind, _, path = claim.metric.partition(".")
        name, _, eps = path.partition(".")
        if kind == "attacks" and name:
            claimed.setdefault(name, []).append(eps)
    return claimed


def attack_command(recipe: Recipe, folder: Path) -> str:
    """The command that measures what the claims of a recipe name on its runs: with the number of test images that they
    are about, and with their epsilons where the default does not have all of them.

    >>> from encouraging.recipes import read_recipe
    >>> attack_command(read_recipe("mnist-autoattack"), Path("runs/mnist-autoattack"))
    'encouraging attack runs/mnist-autoattack --examples 1000'
    """
    words = ["encouraging", "attack", str(folder)]
    for norm, option in (("linf", "--eps"), ("l2", "--eps-l2")):
        claimed = {eps for name, epsilons in claimed_attacks(recipe).items() for eps in epsilons
                   if ("_l2" in name) == (norm == "l2")}
        default = {f"{eps:g}" for eps in default_epsilons(recipe.data)[norm]}
        if not claimed <= default:
            words += [option, ",".join(sorted({"0", *claimed}, key=lambda eps: _number(eps) or 0.0))]
    if recipe.attack_images is not None:
        words += ["--examples", str(recipe.attack_images)]
    return shlex.join(words)


def read_epsilons(text: str | None, option: str) -> tuple[float, ...] | None:
    """A list of epsilons from the command line.

    >>> read_epsilons("0,0.1,8/255", "--eps")
    (0.0, 0.03137254901960784, 0.1)
    """
    if text is None:
        return None
    numbers = [_number(word.strip()) for word in text.split(",") if word.strip()]
    if not numbers or not all(number is not None and 0 <= number < math.inf for number in numbers):
        raise ArgumentError(f"{option} {text}: expected numbers from 0 on with commas between them, such as 0,0.1,0.3 "
                            "or 8/255.")
    return tuple(sorted({number for number in numbers if number is not None}))


def _number(text: str) -> float | None:
    numerator, slash, denominator = text.partition("/")
    try:
        return float(numerator) / float(denominator) if slash else float(numerator)
    except (ValueError, ZeroDivisionError):
        return None

