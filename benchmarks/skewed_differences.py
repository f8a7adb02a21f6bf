"""How often verdicts are wrong where there is no difference, for differences that are not normal.

A family is the claims of one recipe. Every claim has paired differences whose true mean is 0; the family is wrong if
the t interval, adjusted by Holm, decides any of its claims. Prints the rows of the table in docs/report.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy import stats

from encouraging.judge.stats import ALPHA

DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda random, size: random.normal(size=size),
    "exponential": lambda random, size: random.exponential(size=size) - 1,
    "log-normal": lambda random, size: random.lognormal(size=size) - np.exp(0.5),
}


def wrong_families(differences: np.ndarray) -> np.ndarray:
    """Which families have a decided claim: Holm decides any exactly when the smallest p is at most alpha / m.

    ``differences`` has the shape (families, claims, seeds). It is
    :func:`encouraging.judge.family.judge_cases` for many.
    """
    claims, seeds = differences.shape[1:]
    t = differences.mean(-1) / (differences.std(-1, ddof=1) / np.sqrt(seeds))
    smallest: np.ndarray = (2 * stats.t.sf(abs(t), seeds - 1)).min(1)
    return smallest <= ALPHA / claims


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", type=int, default=200_000, help="simulated families per number")
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 10, 20], help="numbers of seeds")
    options = parser.parse_args()
    for name, draw in DRAWS.items():
        for seeds in options.seeds:
            shares = [100 * wrong_families(draw(np.random.default_rng(0), (options.families, claims, seeds))).mean()
                      for claims in (1, 2, 3, 4, 5)]
            print(f"| {name} | {seeds} | " + " | ".join(f"{share:.1f}%" for share in shares) + " |")


if __name__ == "__main__":
    main()
