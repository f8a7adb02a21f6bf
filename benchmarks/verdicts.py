"""How often verdicts are wrong: simulated families of claims, judged as the package judges them.

    python benchmarks/verdicts.py --write docs/verdicts.md

Differences are drawn with a standard deviation of 1 around a known truth and judged with 5 seeds, and by looks at 4, 8,
16 and 32 seeds until every claim is decided. A family is wrong when any of its claims is: *holds* where the truth is 0
or less, *fails* where it is 0 or more, *no difference* where it is half of the expected difference or more. The tables
are printed, and written between the marks of a page. `tests/judge/test_simulation.py` holds `judge_families` to what
the package decides.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import special

from encouraging.judge.family import holm
from encouraging.judge.looks import LOOKS
from encouraging.judge.stats import ALPHA, looks_skewed

FAMILIES = 20_000
UNDECIDED, HOLDS, FAILS, NO_DIFFERENCE = range(4)
FIXED = (5,)
MARKS = "<!-- simulations: begin -->\n", "<!-- simulations: end -->\n"


@dataclass(frozen=True)
class Case:
    """A family of claims: the true difference of each, the difference that is expected, and the distribution."""

    words: str
    truth: tuple[float, ...]
    sought: float | None = None
    draw: str = "normal"


@dataclass(frozen=True)
class Outcome:
    """Shares of the families with a wrong verdict, and of the claims that are decided; and how many seeds it took."""

    wrong: float
    decided: float
    seeds: float


def differences(case: Case, families: int, seeds: int, rng: np.random.Generator) -> np.ndarray:
    """Families, claims, seeds; a standard deviation of 1."""
    shape = (families, len(case.truth), seeds)
    noise = rng.standard_normal(shape) if case.draw == "normal" else rng.standard_exponential(shape) - 1
    return noise + np.array(case.truth)[:, None]


def judge_families(data: np.ndarray, looks: Sequence[int], sought: float | None = None, *,
                   pay: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """The verdict of every claim of every family, and the number of seeds at which the family stopped.

    With ``pay = False`` every look is judged as if it were the only one, which is what must not be done.
    """
    families, claims, _ = data.shape
    means = np.stack([data[..., :n].mean(-1) for n in looks], -1)
    errors = np.stack([data[..., :n].std(-1, ddof=1) / np.sqrt(n) for n in looks], -1)
    freedom = np.array(looks) - 1
    p = 2 * special.stdtr(freedom, -abs(means) / errors)
    cost = len(looks) if pay else 1
    verdicts = np.zeros((families, claims), int)
    seeds = np.full(families, looks[-1])
    going = np.arange(families)
    for look in range(len(looks)):
        strongest = p[going, :, : look + 1].argmin(-1)
        smallest = np.minimum(1.0, cost * np.take_along_axis(p[going], strongest[..., None], -1)[..., 0])
        steps = [holm(row) for row in smallest.tolist()]
        decided = np.array([[step.decided for step in row] for row in steps])
        side = np.take_along_axis(means[going], strongest[..., None], -1)[..., 0] > 0
        found = np.where(decided, np.where(side, HOLDS, FAILS), UNDECIDED)
        if sought is not None:
            for earlier in range(look + 1):
                reach = special.stdtrit(freedom[earlier], 1 - ALPHA / claims / cost / 2) * errors[going, :, earlier]
                within = abs(means[going, :, earlier]) + reach < sought / 2
                found = np.where((found == UNDECIDED) & within, NO_DIFFERENCE, found)
        verdicts[going] = found
        ended = (found != UNDECIDED).all(-1)
        seeds[going[ended]] = looks[look]
        going = going[~ended]
        if not len(going):
            break
    return verdicts, seeds


def simulate(case: Case, looks: Sequence[int], *, pay: bool = True, families: int = FAMILIES, seed: int = 0) -> Outcome:
    data = differences(case, families, looks[-1], np.random.default_rng(seed))
    verdicts, seeds = judge_families(data, looks, case.sought, pay=pay)
    truth = np.array(case.truth)
    wrong = ((verdicts == HOLDS) & (truth <= 0)) | ((verdicts == FAILS) & (truth >= 0))
    if case.sought is not None:
        wrong |= (verdicts == NO_DIFFERENCE) & (abs(truth) >= case.sought / 2)
    return Outcome(float(wrong.any(-1).mean()), float((verdicts != UNDECIDED).mean()), float(seeds.mean()))


NOTHING, EXPECTED, HALF = "none", "the expected one, 1 sd", "half of the expected one"
MIXED = "none in 2 claims, the expected one in 3"
CASES = [
    Case(NOTHING, (0.0,)), Case(NOTHING, (0.0,) * 5),
    Case(f"{NOTHING}, and 1 sd is expected", (0.0,), 1.0), Case(f"{NOTHING}, and 1 sd is expected", (0.0,) * 5, 1.0),
    Case(HALF, (0.5,), 1.0), Case(HALF, (0.5,) * 5, 1.0),
    Case(MIXED, (0.0, 0.0, 1.0, 1.0, 1.0), 1.0),
    Case(EXPECTED, (1.0,), 1.0), Case(EXPECTED, (1.0,) * 5, 1.0),
]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def decisions(draw: str) -> str:
    rows = []
    for case in (Case(case.words, case.truth, case.sought, draw) for case in CASES):
        fixed, looked = simulate(case, FIXED), simulate(case, LOOKS)
        rows.append([case.words, str(len(case.truth)), percent(fixed.wrong), percent(fixed.decided),
                     percent(looked.wrong), percent(looked.decided), f"{looked.seeds:.1f}"])
    return table(["true difference", "claims", "5 seeds: families with a wrong verdict", "claims decided",
                  "until decided: families with a wrong verdict", "claims decided", "seeds, on average"], rows)


def worst() -> str:
    case = Case("", (0.0, *[0.75] * 4), 1.5)
    return table([f"{n} seeds" for n in (8, 16, 32)] + ["until decided"],
                 [[percent(simulate(case, looks).wrong) for looks in ((8,), (16,), (32,), LOOKS)]])


def unpaid() -> str:
    rows = [[str(len(case.truth)), *(percent(simulate(case, LOOKS, pay=pay).wrong) for pay in (False, True))]
            for case in CASES[:2]]
    return table(["claims", "families decided, p-values as they are",
                  "families decided, p-values times the number of looks"], rows)


def alarms() -> str:
    rows = []
    for n in (5, *LOOKS[1:]):
        shares = [np.mean([looks_skewed(row) for row in differences(Case("", (0.0,), draw=draw), 4000, n,
                                                                    np.random.default_rng(n))[:, 0]])
                  for draw in ("normal", "exponential")]
        rows.append([str(n), *map(percent, shares)])
    return table(["seeds", "claims with a warning, normal differences",
                  "claims with a warning, exponential differences"], rows)


def page() -> str:
    """All tables with what they show."""
    return "\n\n".join([
        "A *family* is all claims that are judged together; it is wrong if any of its verdicts is. "
        f"{FAMILIES:,} families were simulated for each row, so the standard error of a share of 5% is 0.2%. The "
        "*expected difference* is the one of which half is the limit of *no difference*; sd is the standard deviation "
        "of the differences.",
        "**Normal differences**: no more than 5% of the families have a wrong verdict.", decisions("normal"),
        "**The worst family that we found** has more than 5% wrong verdicts with 32 seeds. It has five claims: one "
        "without a difference, and four whose true difference is exactly half of the expected one, which is 1.5 sd. "
        "At exactly half, *no difference* counts as wrong, and just below it would be right. These errors are added to "
        "those in direction, of which there are at most 5%. Share of families with a wrong verdict:", worst(),
        "**Strongly skewed differences** (exponential, skewness 2): in most rows more than 5% of the families have a "
        "wrong verdict.", decisions("exponential"),
        "**Every look is another chance of a wrong verdict.** Where there is no difference (normal), judging at every "
        "look by ordinary p-values decides three times as many families as the 5% that are allowed. The package "
        "multiplies the p-values by the number of looks.", unpaid(),
        "**The warning of skew** finds few of the skewed claims when seeds are few. One in ten sets of normal "
        "differences, which are not skewed, gets it too.", alarms()]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace what stands between the marks of this page")
    chosen = parser.parse_args().write
    text = page()
    print(text)
    if chosen is not None:
        begin, end = MARKS
        old = chosen.read_text()
        chosen.write_text(re.sub(f"{re.escape(begin)}.*{re.escape(end)}", lambda _: begin + text + end, old,
                                 flags=re.DOTALL))


if __name__ == "__main__":
    main()
