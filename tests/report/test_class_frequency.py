"""Accuracy and margins by class frequency: what the figures say, and what they leave out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from encouraging.metrics import Reader
from encouraging.report.arms import Arm, groups_of
from encouraging.report.sections import class_frequency
from synthetic_runs import record

COUNTS = torch.tensor([500, 200, 60, 30, 10, 5])


def diagnosis(counts: torch.Tensor | None, right: float = 1.0, bounds: dict[str, int] | None = None) -> dict:
    """Six classes with ten examples each; the fewer training examples, the more of them are wrong."""
    label = torch.arange(60) % 6
    logits = torch.zeros(60, 6)
    logits[torch.arange(60), label] = right * (4.0 - label)  # the last class has a negative margin
    reader = Reader(6)
    reader.update(logits, label)
    return reader.diagnosis(counts=counts) | ({"shot_bounds": bounds} if bounds else {})


def arms(*diagnoses: dict) -> list[Arm]:
    records = [replace(record("mine", f"arm{number}", 0), diagnosis=found) for number, found in enumerate(diagnoses)]
    return groups_of(records, {})[0].arms


def test_every_class_is_drawn_over_its_training_count_arms_side_by_side() -> None:
    section = class_frequency.section(arms(diagnosis(COUNTS), diagnosis(COUNTS, 2.0)))
    assert section is not None
    groups, classes, margins = section.pictures
    assert [panel.title for panel in classes.panels] == ["arm0", "arm1"]
    # The rarest class has a margin of -1 and the next one of 0, and a tie is wrong; the most frequent one has 4.
    assert "arm0 0.0 to 100.0 and arm1 0.0 to 100.0" in classes.alt
    assert "arm0 -1.0 to 4.0 and arm1 -2.0 to 8.0" in margins.alt.replace("−", "-")
    assert "100.0% on many" in groups.alt
    assert all("<svg" in str(svg) for picture in section.pictures for _, svg in picture.parts())


def test_the_bounds_are_those_of_the_runs() -> None:
    picture = class_frequency.picture(arms(diagnosis(COUNTS, bounds={"many": 150, "few": 40})))
    assert picture is not None
    (_, svg), = picture.parts()
    assert re.search("many: over 150", str(svg))
    assert re.search("few: under 40", str(svg))


def test_a_group_that_no_arm_has_is_left_out() -> None:
    picture = class_frequency.picture(arms(diagnosis(COUNTS.clamp(min=101))))
    assert picture is not None
    assert "100.0% on many" not in picture.alt  # the rarest classes are among them now
    assert "few" not in picture.alt
    (_, svg), = picture.parts()
    assert "few" not in str(svg)


def test_the_mean_is_over_the_seeds_and_a_class_without_test_examples_is_skipped() -> None:
    first, second = diagnosis(COUNTS), diagnosis(COUNTS)
    first["class_accuracy"], second["class_accuracy"] = [100, None, 50, 50, 50, 0], [50, None, 50, 50, 50, 100]
    records = [replace(record("mine", "ce", seed), diagnosis=found) for seed, found in enumerate((first, second))]
    (arm,) = groups_of(records, {})[0].arms
    ((_, counts, values),) = class_frequency._per_class([arm], "class_accuracy")
    assert counts.tolist() == [5, 10, 30, 60, 500]
    assert values.tolist() == [50, 50, 50, 50, 75]


@pytest.mark.parametrize("found", [diagnosis(None)])
def test_without_counts_there_is_no_section(found: dict) -> None:
    assert class_frequency.section(arms(found)) is None
