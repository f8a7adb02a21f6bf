"""The simulation of verdicts decides as the package does, and what it finds is what the documentation says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from encouraging.judge.family import Case, judge_cases
from encouraging.judge.looks import LOOKS

ROOT = Path(__file__).parents[2]
WORDS = ("undecided", "holds", "fails", "no difference")


@pytest.fixture(scope="module")
def simulation():
    spec = importlib.util.spec_from_file_location("verdicts_simulation", ROOT / "benchmarks" / "verdicts.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def decided_here(data: np.ndarray, looks: tuple[int, ...], sought: float | None) -> tuple[list[str], int]:
    """One family by the package's own code, look by look as the command takes them."""
    for taken in range(1, len(looks) + 1):
        found = judge_cases([Case([row[:n] for n in looks[:taken]], len(looks), sought=sought) for row in data])
        verdicts = [comparison.verdict for comparison in found]
        if "undecided" not in verdicts:
            break
    return verdicts, looks[taken - 1]


@pytest.mark.parametrize("looks", [(5,), (3, 5, 9), (4, 8)])
@pytest.mark.parametrize("sought", [None, 1.0, 4.0])
@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_it_decides_as_the_package_does(simulation, looks, sought, draw):
    case = simulation.Case("", (0.0, 0.5, 1.5, -1.0), sought, draw)
    data = simulation.differences(case, 40, looks[-1], np.random.default_rng(5))
    verdicts, seeds = simulation.judge_families(data, looks, sought)
    for family, row, stop in zip(data, verdicts, seeds, strict=True):
        assert ([WORDS[code] for code in row], stop) == decided_here(family, looks, sought)
    assert len(set(verdicts.ravel())) > 2


@pytest.mark.parametrize("claims", [1, 5])
def test_wrong_decisions_stay_at_5_percent_however_long_one_looks(simulation, claims):
    for truth, sought in ((0.0, None), (0.0, 1.0), (0.5, 1.0), (0.9, 1.8)):
        case = simulation.Case("", (truth,) * claims, sought)
        assert simulation.simulate(case, LOOKS, families=3000).wrong < 0.05 + 2.5 * 0.004
    assert simulation.simulate(simulation.Case("", (0.0,)), LOOKS, pay=False, families=3000).wrong > 0.1


def test_skewed_differences_are_decided_wrongly_more_often(simulation):  # issue 12, point 9
    one, five = (simulation.simulate(simulation.Case("", (0.0,) * m, None, "exponential"), (5,), families=4000).wrong
                 for m in (1, 5))
    assert one == pytest.approx(0.12, abs=0.02)
    assert five == pytest.approx(0.23, abs=0.03)


def test_the_documentation_has_the_output_of_the_script(simulation):
    """Two of its tables, which are made quickly, and the first row of the others."""
    page = (ROOT / "docs" / "verdicts.md").read_text()
    begin, end = simulation.MARKS
    printed = page.split(begin)[1].split(end)[0]
    assert simulation.alarms() in printed
    assert simulation.unpaid() in printed
    for draw in ("normal", "exponential"):
        case = simulation.Case(simulation.NOTHING, (0.0,), None, draw)
        fixed, looked = (simulation.simulate(case, looks) for looks in (simulation.FIXED, LOOKS))
        row = [simulation.NOTHING, "1", simulation.percent(fixed.wrong), simulation.percent(fixed.decided),
               simulation.percent(looked.wrong), simulation.percent(looked.decided), f"{looked.seeds:.1f}"]
        assert "| " + " | ".join(row) + " |" in printed
