"""What an arm would begin after its last epoch is said before the training, and is no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from encouraging.recipes import check_recipe, names, read_recipe
from encouraging.recipes.unreached import unreached
from task_laws import call


def lines(arms: dict[str, object], *, chosen: tuple[str, ...] = (), epochs: int = 2) -> list[str]:
    tree = {"task": "image", "data": "digits", "model": "digits_mlp", "seeds": 1, "arms": arms,
            "train": {"epochs": epochs, "lr": 0.1}}
    return list(unreached(check_recipe(tree, "mine", "mine"), chosen))


@pytest.mark.parametrize("name", names())
def test_the_package_s_recipes_reach_all_of_theirs(name: str) -> None:
    assert list(unreached(read_recipe(name))) == []


def test_a_start_after_the_last_epoch_is_named_with_its_arms() -> None:
    arms = {"ce": {}, "drw": {"reweight_from_epoch": 3}, "late": {"reweight_from_epoch": 3, "bonus_from_epoch": 4},
            "change": {"changes": [{"from_epoch": 5, "label_smoothing": 0.1}]}}
    assert lines(arms) == [
        "reweight_from_epoch = 3 (drw, late) is after the last epoch, which is 2: class weights are never used",
        "bonus_from_epoch = 4 (late) is after the last epoch, which is 2: the bonus never begins",
        "changes.from_epoch = 5 (change) is after the last epoch, which is 2: the change never happens"]
    assert lines(arms, chosen=("ce", "drw")) == [
        "reweight_from_epoch = 3 (drw) is after the last epoch, which is 2: class weights are never used"]
    assert lines(arms, epochs=5) == []


def test_one_stage_that_reaches_it_is_enough() -> None:
    long = {"train": {"epochs": 9, "lr": 0.1}}
    assert lines({"two": {"reweight_from_epoch": 5, "stages": [{}, long]}}) == []
    assert lines({"two": {"reweight_from_epoch": 5, "stages": [{}, {**long, "objective": {}}]}}) == [
        "reweight_from_epoch = 5 (two) is after the last epoch, which is 2: class weights are never used"]


def test_a_training_says_so_before_it_starts(tmp_path: Path) -> None:
    said = call("run", "digits", "--out", tmp_path, "--device", "cpu", "--arm", "ce", "--seeds", "1", "--set",
                "train.epochs=1", "--set", "arms.ce.reweight_from_epoch=2")
    assert "reweight_from_epoch = 2 (ce) is after the last epoch, which is 1" in " ".join(said.split())
