"""What metrics say of single classes: energy profiles, accuracy by class and by its frequency, mean margins."""

from __future__ import annotations

import math

import pytest
import torch

from encouraging.errors import ArgumentError, ShapeError
from encouraging.metrics import (
    class_accuracy,
    class_margin,
    energy_profile,
    margin,
    read,
    shot_accuracy,
    shot_groups,
)
from strategies import generator


def test_the_profile_is_the_mean_energy_of_the_examples_of_a_class() -> None:
    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]])
    assert energy_profile(logits, torch.tensor([1, 1, 0]), 1).tolist() == [-2.0, -3.0]
    assert energy_profile(logits, torch.tensor([1, 1, 0]), 2).isnan().all()  # no examples


def test_accuracy_of_classes_and_of_shots_is_a_count() -> None:
    logits = torch.tensor([[2.0, 0, 0, 0], [0, 2.0, 0, 0], [2.0, 0, 0, 0], [0, 0, 0, 2.0], [0, 0, 1.0, 1.0]])
    found = read(logits, torch.tensor([0, 1, 1, 3, 3]))
    assert class_accuracy(found, 4) == [100.0, 50.0, None, 50.0]
    # More than 100 is many, fewer than 20 is few; 20 and 100 themselves are medium.
    assert shot_accuracy(found, torch.tensor([101, 100, 5, 20])) == {"many": 100.0, "medium": 50.0}
    assert shot_accuracy(found, torch.tensor([101, 19, 5, 19])) == {"many": 100.0, "few": 50.0}
    assert shot_accuracy(found, torch.tensor([9, 5, 5, 2]), many=6, few=3) == {"many": 100.0, "medium": 50.0,
                                                                               "few": 50.0}
    with pytest.raises(ShapeError, match="labels up to 3"):
        shot_accuracy(found, torch.tensor([1, 2, 3]))
    assert shot_accuracy(found, {3: 20, 2: 5, 1: 100, 0: 101}) == {"many": 100.0, "medium": 50.0}
    with pytest.raises(ArgumentError, match=r"class counts: a mapping with the keys 1, 2; expected the class indices 0"
                                            r".*A class without training examples has the count 0"):
        shot_accuracy(found, {1: 20, 2: 5})
    for metric in (class_accuracy, class_margin):
        with pytest.raises(ArgumentError, match="classes=2: there are labels up to 3"):
            metric(found, 2)
    for bad in (math.nan, -1.0):
        with pytest.raises(ArgumentError, match=f"class counts: got {bad:g}"):
            shot_accuracy(found, [101, 100, bad, 20])


def test_groups_of_classes_may_be_empty_and_margins_have_a_mean_per_class() -> None:
    assert not shot_groups(torch.tensor([500, 400]))["few"].any()
    assert all(mask.sum() == 1 for mask in shot_groups(torch.tensor([4, 5, 6]), many=5, few=5).values())
    with pytest.raises(ArgumentError, match="many=5 and few=6"):
        shot_groups(torch.tensor([1]), many=5, few=6)
    g = generator(0)
    logits, target = 3 * torch.randn(200, 6, generator=g), torch.randint(5, (200,), generator=g)  # nothing of class 5
    logits[torch.arange(200), target] += 4
    found, expected = class_margin(read(logits, target), 6), margin(logits, target).double()
    assert found[:5] == pytest.approx([float(expected[target == c].mean()) for c in range(5)])
    assert found[5] is None
