"""The section of translations: which runs the paired bootstrap compares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import synthetic_runs as synthetic
from encouraging.report.arms import groups_of
from encouraging.report.sections import translations


def arms_of(seeds: dict[str, range]):
    """Arms with counts of random translations of the same twenty sentences."""
    records = []
    for number, (arm, numbers) in enumerate(seeds.items()):
        for seed in numbers:
            draw = np.random.default_rng([number, seed])
            counts = [[9, 9, *sorted(draw.integers(0, 7, 4).tolist(), reverse=True)] for _ in range(20)]
            found = {"translation": {"counts": counts, "signature": "nrefs:1"}}
            records.append(replace(synthetic.record("mine", arm, seed), diagnosis=found))
    (group,) = groups_of(records, {})
    return group.arms


def compared(section) -> dict[str, list[tuple[str, str]]]:
    """Arms and seeds by the arm that they are compared with, as the tables have them."""
    return {table.head[2].removeprefix("BLEU beside "): [(row[0].main, row[1].main) for row in table.rows]
            for table in section.tables}


def test_arms_are_compared_as_the_claims_compare_them_with_all_seeds_of_both():
    arms = arms_of({"ce": range(2), "ce_ls": range(3), "el_ls": range(3), "poly": range(1)})
    claimed = [("el_ls", "ce_ls"), ("ce_ls", "ce"), ("el_ls", "ce_ls"), ("el", "ce")]
    assert compared(translations.section(arms, claimed)) == {
        "ce": [("ce_ls", "0"), ("ce_ls", "1"), ("poly", "0")],
        "ce_ls": [("el_ls", "0"), ("el_ls", "1"), ("el_ls", "2")]}


def test_equal_translations_have_no_probability():
    (arm,) = arms_of({"ce": range(1)})
    (table,) = translations.section([arm, replace(arm, name="el")]).tables
    assert [cell.main for cell in table.rows[0]] == ["el", "0", "0.00", "0.00 to 0.00", "–"]


def test_without_claims_every_arm_is_compared_with_the_first():
    arms = arms_of({"ce": range(2), "el": range(2), "poly": range(1)})
    assert compared(translations.section(arms)) == {"ce": [("el", "0"), ("el", "1"), ("poly", "0")]}
