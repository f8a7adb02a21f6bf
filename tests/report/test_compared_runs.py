"""``encouraging.compare`` on runs and records: any of their numbers, and only the arms that are asked about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from encouraging import compare
from encouraging.errors import ArgumentError, DataError


@pytest.fixture
def folder(tmp_path):
    """Records of two arms with three seeds each."""
    return with_seeds(tmp_path, range(3))


def with_seeds(folder, seeds):
    records = Path(__file__).parents[2] / "results" / "cifar100-learning-rate-quick"
    for name in [f"{arm}-seed{seed}.json" for arm in ("el_075", "ce") for seed in seeds]:
        (folder / name).write_bytes((records / name).read_bytes())
    return folder


def test_runs_are_compared_on_any_of_their_numbers(folder):
    result = compare(folder, ["nll", "temperature.ece_after"])
    assert result.baseline == "ce"  # the recipe's first arm, not the first file
    assert [row.claim.better for row in result] == ["lower", "higher"]  # the task declares nll, nobody the other
    finals = {(arm, seed): json.loads((folder / f"{arm}-seed{seed}.json").read_text())["final"]
              for arm in ("ce", "el_075") for seed in range(3)}
    expected = [finals["ce", seed]["nll"] - finals["el_075", seed]["nll"] for seed in range(3)]
    assert result["el_075"].comparison.differences == pytest.approx(expected)
    given = compare(folder, ["nll", "temperature.ece_after"], better={"temperature.ece_after": "lower"})
    assert [row.claim.better for row in given] == ["lower", "lower"]


def test_the_verdicts_over_le_on_the_page_are_those_of_the_records():
    """Each column of the page's table is one comparison of all values of LE with cross-entropy."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "cifar.md").read_text()
    table = page.partition("\n| LE | n | best accuracy | accuracy of the last epoch |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    arms = [f"el_{row[0].replace('.', '')}" for row in rows]
    assert arms == ["el_0", "el_025", "el_05", "el_075", "el_09", "el_1"]
    words = {"holds": "**better**", "fails": "**worse**", "undecided": "undecided"}
    for column, (metric, digits) in enumerate(
            [("best_accuracy", 2), ("accuracy", 2), ("nll", 3), ("ece", 3), ("temperature.ece_after", 3)], 2):
        better = "higher" if digits == 2 else "lower"
        result = compare(root / "results" / "cifar100-learning-rate-quick", metric, baseline="ce", only=arms,
                         better={metric: better})
        for row, arm in zip(rows, arms, strict=True):
            found = result[arm].comparison
            mean, low, high = (f"{number:+.{digits}f}" for number in (found.mean, found.low, found.high))
            assert row[column] == f"{mean} ({low}, {high}) {words[result[arm].verdict]}"
            assert row[1] == str(found.n)


def test_runs_that_diverged_are_named(folder):
    path = folder / "el_075-seed2.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "final": {}, "failed": "the loss is not finite"}))
    result = compare(folder, "accuracy")
    assert result["el_075"].comparison.n == 2
    assert "el_075 seed 2 diverged" in result.notes


def test_an_arm_that_diverged_does_not_win(folder):
    """As for the claims of a recipe: the seeds that are left were chosen by their outcome."""
    with_seeds(folder, range(5))
    assert compare(folder, "accuracy")["el_075"].verdict == "holds"
    path = folder / "el_075-seed2.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "final": {}, "failed": "the loss is not finite"}))
    assert compare(folder, "accuracy")["el_075"].verdict == "undecided"


def test_an_arm_of_which_every_run_diverged_is_not_left_out(folder):
    for seed in range(3):
        path = folder / f"el_075-seed{seed}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "final": {}, "failed": "the loss is not finite"}))
    records = Path(__file__).parents[2] / "results" / "cifar100-learning-rate-quick"
    for seed in range(3):
        (folder / f"el_1-seed{seed}.json").write_bytes((records / f"el_1-seed{seed}.json").read_bytes())
    result = compare(folder, "accuracy")
    assert {row.claim.arm: row.comparison.n for row in result} == {"el_075": 0, "el_1": 3}
    assert "el_075" in result.page()


def test_runs_that_were_judged_at_looks_pay_for_them(folder):
    before = compare(with_seeds(folder, range(5)), "accuracy")["el_075"].comparison
    for path in folder.glob("*.json"):
        plan = {"schema": 1, "looks": [3, 5], "seeds": [0, 1, 2, 3, 4]}
        path.write_text(json.dumps({**json.loads(path.read_text()), "looks": plan}))
    after = compare(folder, "accuracy")["el_075"].comparison
    assert after.level > before.level


def test_runs_of_several_recipes_and_folders_without_runs_are_refused(folder, tmp_path):
    with pytest.raises(DataError, match=r"recipes .*mnist-mse.* expected those of one recipe, such as"):
        compare(Path(__file__).parents[2] / "results", "accuracy")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="expected finished runs or their records"):
        compare(empty, "accuracy")
    with pytest.raises(DataError, match="Did you mean 'nll'"):
        compare(folder, "nl")


def test_only_some_arms_are_compared():
    numbers = {"ce": [1.0, 2.0, 3.0], "a": [2.0, 3.1, 4.2], "b": [0.0, 1.0, 2.5]}
    result = compare(numbers, "accuracy", only=["b"])
    assert [row.claim.arm for row in result] == ["b"]
    assert list(result.numbers) == ["ce", "b"]
    assert [row.claim.arm for row in compare(numbers, "accuracy", baseline="a", only=["ce"])] == ["ce"]
    with pytest.raises(ArgumentError, match="only 'c': expected one of the arms ce, a, b"):
        compare(numbers, "accuracy", only=["c"])
    with pytest.raises(ArgumentError, match="is the baseline itself"):
        compare(numbers, "accuracy", only=["ce"])
