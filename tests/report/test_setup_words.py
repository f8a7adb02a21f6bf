"""What the page says about the training of a recipe."""

from __future__ import annotations

from types import SimpleNamespace

from encouraging.report.config_words import setup_rows


def rows(*train):
    record = SimpleNamespace(config={"task": "image", "data": "mnist", "model": "cnn", "train": list(train)})
    return dict(setup_rows(SimpleNamespace(records=[record], arms={"ce": [], "el": []}, seeds=[0, 1, 2])))


FIRST = {"epochs": 30, "optimizer": "sgd", "lr": 0.025, "schedule": "multistep", "milestones": [10, 20], "gamma": 0.1,
         "batch_size": 64, "precision": "bf16"}


def test_one_stage():
    assert rows(FIRST) == {
        "task": "image", "data": "mnist", "model": "cnn", "epochs": "30", "optimizer": "sgd",
        "learning rate": "0.025 (times 0.1 from epochs 10 and 20)", "batch size": "64", "precision": "bf16",
        "arms": "2", "seeds": "3"}


def test_settings_in_which_stages_differ_have_a_value_per_stage():
    second = {**FIRST, "epochs": 20, "lr": 0.1, "schedule": "step", "every": 5.0}
    found = rows(FIRST, second)
    assert found["epochs"] == "30, then 20"
    assert found["learning rate"] == "0.025 (times 0.1 from epochs 10 and 20), then 0.1 (times 0.1 every 5 epochs)"
    assert (found["optimizer"], found["batch size"]) == ("sgd", "64")


def test_stages_of_updates_and_of_epochs_are_both_named():
    found = rows({**FIRST, "max_steps": 900, "precision": "fp32"}, FIRST)
    assert (found["updates"], found["epochs"], found["precision"]) == ("900", "30", "fp32, then bf16")
    assert "precision" not in rows({**FIRST, "precision": "fp32"})


def test_records_without_training_have_the_rest():
    assert rows() == {"task": "image", "data": "mnist", "model": "cnn", "arms": "2", "seeds": "3"}
