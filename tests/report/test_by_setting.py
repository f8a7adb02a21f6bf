"""Arms that differ in one number: the report draws every metric over it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from encouraging.recipes import read_recipe, read_runs
from encouraging.report.arms import groups_of
from encouraging.report.sections import by_setting

RESULTS = Path(__file__).parents[2] / "results"


def group(name, records=None):
    records = read_runs(RESULTS / name) if records is None else records
    found, = groups_of(records, {name: read_recipe(name)})
    return found


@pytest.fixture(scope="module")
def rates():
    """Three seeds of the arms that the tests speak of: more records under results/ change nothing here."""
    arms = ("ce", "ce_2x", "ce_4x", "el_075", "el_1", "el_1_half", "el_1_matched")
    return [record for record in read_runs(RESULTS / "cifar100-learning-rate-quick")
            if record.arm in arms and record.seed < 3]


def lines(sweep):
    return {base: [values[0] for values, _ in sweep.points(base)] for base in sweep.bases}


def test_rates_are_lines_and_what_a_claim_compares_with_them_is_a_point(rates):
    sweep = by_setting.sweep_over(group("cifar100-learning-rate-quick", rates), "train.lr")
    found = lines(sweep)
    assert found["ce"] == [0.025, 0.05, 0.1]
    assert found["el_1"] == [0.0125, 0.025]
    assert found["el_075"] == found["el_1_matched"] == [0.025]
    assert sweep.references == []


def test_an_arm_without_the_setting_is_a_line_across(rates):
    sweep = by_setting.sweep_over(group("cifar100-learning-rate-quick", rates), "log_end")
    assert lines(sweep)["el"][-2:] == [0.75, 1.0]
    assert "ce" in [arm.name for arm in sweep.references]


def test_a_section_is_drawn_where_one_line_has_three_values(rates):
    section = next(section for section in by_setting.sections(group("cifar100-learning-rate-quick", rates))
                   if section.title == "What lr changes")
    assert "ce at lr = 0.05" in section.lead[0]
    assert "el_075 at" not in section.lead[0]
    assert "With one value alone: el_075 65.41" in section.lead[0]
    assert "el_075 has 0.025" in section.pictures[0].alt
    assert b"<svg" in section.pictures[0].svg()
    few = [record for record in rates if record.arm in ("ce", "ce_2x", "el_1", "el_1_half")]
    assert by_setting.sections(group("cifar100-learning-rate-quick", few)) == []
    scales, = by_setting.sections(group("mnist-initialisation"))
    assert scales.title == "What head_scale changes"


def test_a_number_that_differs_between_the_seeds_of_an_arm_tells_nothing(rates):
    mixed = [replace(record, config={**record.config, "train": [{**record.config["train"][0], "lr": 7.0}]})
             if (record.arm, record.seed) == ("ce", 1) else record for record in rates]
    titles = [section.title for section in by_setting.sections(group("cifar100-learning-rate-quick", mixed))]
    assert "What lr changes" not in titles


def test_lines_whose_names_begin_alike_stay_apart(rates):
    """Both lines would be called ce; two arms of one line would seem to have the same value."""
    names = {"ce": "ce_1_a", "ce_2x": "ce_2_a", "el_1": "ce_1_b", "el_1_half": "ce_2_b"}
    renamed = [replace(record, config={**record.config, "arm": names[record.arm]}) for record in rates
               if record.arm in names]
    without_recipe = replace(group("cifar100-learning-rate-quick", renamed), recipe=None)
    found = lines(by_setting.sweep_over(without_recipe, "train.lr"))
    assert sorted(found.values()) == [[0.0125, 0.025], [0.025, 0.05]]


def test_a_line_is_not_called_like_another_ones_first_arm(rates):
    """Numbered arms: the stems are a, a and a_1, and the first arm of the first line is a_1."""
    names = {"ce": "a_1", "ce_2x": "a_2", "el_1": "a_3", "el_1_half": "a_4"}
    renamed = [replace(record, config={**record.config, "arm": names[record.arm]}) for record in rates
               if record.arm in names]
    third = [replace(record, config={**record.config, "arm": f"a_1{number}", "options": {"other": 1},
                                     "train": [{**record.config["train"][0], "lr": 0.1 * (1 + number)}]})
             for record in rates if record.arm == "ce" for number in range(4)]
    made = replace(group("cifar100-learning-rate-quick", renamed + third), recipe=None)
    assert sorted(map(len, lines(by_setting.sweep_over(made, "train.lr")).values())) == [2, 2, 4]


def test_an_arm_whose_setting_is_none_is_a_line_across(rates):
    values = {"ce": 0.1, "ce_2x": 0.2, "ce_4x": 0.3, "el_075": None}
    records = [replace(record, config={**record.config, "objectives": [], "train": [{"clip_norm": values[record.arm]}]})
               for record in rates if record.arm in values]
    made = replace(group("cifar100-learning-rate-quick", records), recipe=None)
    sweep = by_setting.sweep_over(made, "train.clip_norm")
    assert lines(sweep) == {"ce": [0.1, 0.2, 0.3]}
    assert [arm.name for arm in sweep.references] == ["el_075"]
    assert len(by_setting.sections(made)) == 1


def test_arms_that_differ_in_their_names_alone_make_no_line(rates):
    values = {"ce": 1, "ce_2x": 1.0, "ce_4x": 2}
    records = [replace(record, config={**record.config, "objectives": [], "train": [{"lr": values[record.arm]}]})
               for record in rates if record.arm in values]
    assert by_setting.sections(replace(group("cifar100-learning-rate-quick", records), recipe=None)) == []
