"""Accuracy over epsilons: what it counts, and that it goes on where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from encouraging.attacks import L2_EPSILONS, LINF_EPSILONS, Attack, Progress, accuracy_over_eps, pgd
from encouraging.errors import ArgumentError, DtypeError

ATTACKS = [Attack("fgsm"), Attack("pgd", steps=5, step_size=0.05, restarts=2)]
GRID = (0.0, 0.05, 0.2)


class StoppedError(Exception):
    pass


def test_the_grids_are_the_papers() -> None:
    assert LINF_EPSILONS == (0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
    assert L2_EPSILONS == (0, 0.3, 1, 3, 10, 30, 100)


def test_it_counts_examples_that_are_right_before_and_after(digits: Any) -> None:
    result = accuracy_over_eps(digits.model, digits.x, digits.y, ATTACKS, GRID, batch_size=150)
    clean = digits.model(digits.x).argmax(1) == digits.y
    assert 0 < clean.double().mean() < 1
    found = pgd(digits.model, digits.x, digits.y, 0.2, steps=5, step_size=0.05, restarts=2)
    after = digits.model(found).argmax(1) == digits.y
    assert torch.equal(result.survived["pgd"][0.2], clean & after)
    assert torch.equal(result.survived["fgsm"][0.0], clean)
    assert result.accuracy("pgd", 0.2) == pytest.approx(100 * (clean & after).double().mean().item())
    assert json.loads(json.dumps(result.table()))["pgd"].keys() == {"0", "0.05", "0.2"}


def test_the_batch_size_does_not_change_it(digits: Any) -> None:
    x, y = digits.first(60)
    whole, parts = (accuracy_over_eps(digits.model, x, y, ATTACKS, GRID, batch_size=size) for size in (1000, 7))
    assert whole.table() == parts.table()


def test_another_seed_starts_elsewhere_and_the_same_one_does_not(digits: Any) -> None:
    x, y = digits.first(60)
    seeds = [pgd(digits.model, x, y, 0.1, steps=1, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(seeds[0], seeds[1])
    assert not torch.equal(seeds[0], seeds[2])


@pytest.mark.parametrize("stop", [1, 3, 4, 9])
def test_a_call_that_was_stopped_goes_on_and_ends_alike(digits: Any, tmp_path: Path, stop: int) -> None:
    x, y = digits.first(50)
    path, seen = tmp_path / "state.json", []

    def progress(where: Progress) -> None:
        seen.append(where)
        if len(seen) == stop:
            raise StoppedError

    def measure(**arguments: Any) -> Any:
        return accuracy_over_eps(digits.model, x, y, ATTACKS, GRID, batch_size=20, **arguments)

    with pytest.raises(StoppedError):
        measure(state_path=path, progress=progress)
    finished = {(where.attack, where.eps) for where in seen if where.accuracy is not None}
    calls: list[Progress] = []
    again = measure(state_path=path, progress=calls.append)
    assert again.table() == measure().table()
    # What was finished is reported once more, and not attacked again.
    for cell in finished:
        assert [where.fraction for where in calls if (where.attack, where.eps) == cell] == [1.0]
    assert [(where.attack, where.eps) for where in calls if where.accuracy is not None] == [
        (attack.name, eps) for attack in ATTACKS for eps in GRID]
    assert all(where.accuracy in (None, again.accuracy(where.attack, where.eps)) for where in calls)


def test_progress_rises_to_the_end_of_every_epsilon(digits: Any) -> None:
    calls: list[Progress] = []
    accuracy_over_eps(digits.model, *digits.first(50), [Attack("fgsm")], [0.1], batch_size=10, progress=calls.append)
    fractions = [where.fraction for where in calls]
    assert fractions == sorted(fractions)
    assert len(fractions) >= 5
    assert fractions[-1] == 1.0


def test_new_attacks_and_epsilons_join_an_old_state(digits: Any, tmp_path: Path) -> None:
    x, y = digits.first(40)
    path = tmp_path / "state.json"
    accuracy_over_eps(digits.model, x, y, ATTACKS[:1], [0.1], state_path=path)
    more = accuracy_over_eps(digits.model, x, y, ATTACKS, [0.1, 0.2], state_path=path)
    assert more.table() == accuracy_over_eps(digits.model, x, y, ATTACKS, [0.1, 0.2]).table()
    other = {"fgsm": Attack("fgsm", loss="margin")}  # the same name with other settings is measured anew
    changed = accuracy_over_eps(digits.model, x, y, other, [0.1], state_path=path)
    assert torch.equal(changed.survived["fgsm"][0.1],
                       accuracy_over_eps(digits.model, x, y, other, [0.1]).survived["fgsm"][0.1])


def test_a_name_with_a_slash_has_a_state_too(digits: Any, tmp_path: Path) -> None:
    x, y = digits.first(20)
    named = {"pgd/margin": Attack("pgd", steps=1, loss="margin"), "aa/ce": Attack("autoattack", parts=["apgd-ce"])}
    first = accuracy_over_eps(digits.model, x, y, named, [0.1], state_path=tmp_path / "state.json")
    again = accuracy_over_eps(digits.model, x, y, named, [0.1], state_path=tmp_path / "state.json")
    assert first.table() == again.table()
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_the_state_of_another_model_data_or_seed_is_refused(digits: Any, tmp_path: Path) -> None:
    x, y = digits.first(40)
    path = tmp_path / "state.json"
    accuracy_over_eps(digits.model, x, y, ATTACKS[:1], [0.1], state_path=path)
    for model, images, seed in ((digits.scaled(2), x, 0), (digits.model, x.flip(0), 0), (digits.model, x, 1)):
        with pytest.raises(ArgumentError, match="another model, other data"):
            accuracy_over_eps(model, images, y, ATTACKS[:1], [0.1], state_path=path, seed=seed)
    path.write_text("{")
    with pytest.raises(ArgumentError, match="not the state of an attack"):
        accuracy_over_eps(digits.model, x, y, ATTACKS[:1], [0.1], state_path=path)


def test_every_attack_may_have_its_own_grid(digits: Any) -> None:
    x, y = digits.first(30)
    attacks = {"near": Attack("fgsm"), "far": Attack("pgd_l2", steps=3)}
    result = accuracy_over_eps(digits.model, x, y, attacks, {"near": [0.1], "far": [0.3, 3]})
    assert {name: list(row) for name, row in result.table().items()} == {"near": ["0.1"], "far": ["0.3", "3"]}


def test_a_grid_that_can_be_read_only_once_serves_every_attack(digits: Any) -> None:
    x, y = digits.first(30)
    once = accuracy_over_eps(digits.model, x, y, ATTACKS, map(float, ["0", "0.1"]))
    assert once.table() == accuracy_over_eps(digits.model, x, y, ATTACKS, [0.0, 0.1]).table()
    one_each = accuracy_over_eps(digits.model, x, y, ATTACKS, {"fgsm": iter([0.0]), "pgd": iter([0.1])})
    assert {name: list(row) for name, row in one_each.table().items()} == {"fgsm": ["0"], "pgd": ["0.1"]}


def test_normalised_images_need_attacks_that_do_not_clip(digits: Any) -> None:
    x, y = digits.first(30)
    shifted = x - 0.5
    free = Attack("fgsm", loss="label_logit", clip=False)
    result = accuracy_over_eps(lambda batch: digits.model(batch + 0.5), shifted, y, [free], [0.0, 0.2])
    assert result.accuracy(free.name, 0.2) < result.accuracy(free.name, 0.0)
    with pytest.raises(ArgumentError, match="expected 0 to 1"):
        accuracy_over_eps(digits.model, shifted, y, [free, Attack("pgd")], [0.2])


def test_epsilons_out_of_reach_are_computed_once_and_are_what_each_alone_would_be(digits: Any, tmp_path: Path) -> None:
    x, y = digits.first(40)
    attack, calls = Attack("pgd_l2", steps=4, step_size=0.2, loss="margin"), []

    def counted(batch: torch.Tensor) -> torch.Tensor:
        calls.append(len(batch))
        return digits.model(batch)

    grid = (0.1, 0.5, 0.8, 1.0, 10.0, 100.0)  # four steps of 0.2 reach 0.8
    result = accuracy_over_eps(counted, x, y, [attack], grid, state_path=tmp_path / "state.json")
    assert len(calls) == 1 + 4 * (4 + 1)  # clean; then four steps and a look for each of 0.1, 0.5, 0.8 and 1
    for eps in grid:
        alone = accuracy_over_eps(digits.model, x, y, [attack], [eps])
        assert torch.equal(alone.survived[attack.name][eps], result.survived[attack.name][eps])
    calls.clear()
    again = accuracy_over_eps(counted, x, y, [attack], grid, state_path=tmp_path / "state.json")
    assert again.table() == result.table()
    assert len(calls) == 1


def test_with_a_random_start_every_epsilon_counts(digits: Any) -> None:
    x, y = digits.first(40)
    attack = Attack("pgd", steps=1, step_size=0.01, loss="margin")
    table = accuracy_over_eps(digits.model, x, y, [attack], [0.3, 1.0]).table()["pgd_margin"]
    assert table["0.3"] != table["1"]


def test_logits_that_are_nan_count_as_wrong_and_a_model_that_has_nothing_else_is_refused(digits: Any) -> None:
    x, y = digits.first(20)

    def some(batch: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(len(batch)) % 2 == 0
        return torch.where(rows[:, None], torch.nan, digits.model(batch))

    result = accuracy_over_eps(some, x, y, [Attack("fgsm")], [0.0])
    assert not result.survived["fgsm"][0.0][::2].any()
    assert result.survived["fgsm"][0.0][1::2].any()
    with pytest.raises(ArgumentError, match="all examples are NaN"):
        accuracy_over_eps(lambda batch: digits.model(batch) * torch.nan, x, y, [Attack("fgsm")], [0.1])


@pytest.mark.parametrize(("attacks", "epsilons", "kind", "says"), [
    (Attack("pgd"), [0.1], DtypeError, r"Pass \[Attack\('pgd'\)\]"),
    ([Attack("pgd")], 0.1, DtypeError, r"For one epsilon pass \[0.1\]"),
    ([Attack("pgd")], {"pgd": 0.1}, DtypeError, r"For one epsilon pass \[0.1\]"),
    ([Attack("pgd")], torch.tensor(0.5), DtypeError, r"For one epsilon pass \[tensor\(0.5"),
    ([], [0.1], ArgumentError, "at least one"),
    ([Attack("pgd"), Attack("pgd", steps=3)], [0.1], ArgumentError, "same name"),
    (["pgd"], [0.1], DtypeError, "Attack.*got str"),
    ([Attack("pgd")], {"fgsm": [0.1]}, ArgumentError, "no grid for 'pgd'"),
    ([Attack("pgd")], [-0.1], ArgumentError, "eps=-0.1"),
    ([Attack("pgd")], [], ArgumentError, "a grid is empty"),
    ([Attack("pgd")], {"pgd": iter([])}, ArgumentError, "a grid is empty"),
    ([Attack("pgd")], [0, 4, 8], ArgumentError, "8 for 'pgd'.*allows any image.*8 / 255"),
    ([Attack("autoattack")], [8], ArgumentError, "8 for 'autoattack'"),
    ([Attack("pgd"), Attack("pgd_l2")], [0.3, 3], ArgumentError, "a mapping from names to grids"),
])
def test_what_cannot_be_measured_is_refused(digits: Any, attacks: Any, epsilons: Any, kind: type, says: str) -> None:
    with pytest.raises(kind, match=says):
        accuracy_over_eps(digits.model, *digits.first(3), attacks, epsilons)


def test_large_changes_are_measured_in_l2_and_of_normalised_inputs(digits: Any) -> None:
    attacks = [Attack("pgd_l2", steps=2), Attack("fgsm", clip=False)]
    assert list(accuracy_over_eps(digits.model, *digits.first(3), attacks, [3]).table()) == ["pgd_l2", "fgsm"]


def test_a_state_that_could_not_be_written_is_refused_before_the_first_attack(digits: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"no folder .*nowhere"):
        accuracy_over_eps(digits.model, *digits.first(3), ATTACKS, GRID, state_path=tmp_path / "nowhere" / "state")


def test_no_examples_are_refused(digits: Any) -> None:
    with pytest.raises(ArgumentError, match="no examples"):
        accuracy_over_eps(digits.model, *digits.first(0), [Attack("fgsm")], [0.1])
