"""The sections of attacks and of out-of-distribution detection: numbers, warnings, near and far."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import synthetic_runs as synthetic
from encouraging.engine.records import Record, read_records
from encouraging.metrics import Reader, summary
from encouraging.recipes import read_recipe
from encouraging.report.arms import groups_of
from encouraging.report.page import build_report
from encouraging.report.results import results_page
from encouraging.report.sections import attacks, out_of_distribution
from encouraging.report.sections.attack_rows import AttackRow, image_words


def attacked(arm: str, seed: int, by_ce: float, scale_free: float) -> Record:
    """A run whose PGD by cross-entropy leaves another accuracy than those by margin and DLR together."""
    def row(value: float) -> dict[str, Any]:
        return {"examples": 100, "accuracy": {"0": 99.0, "0.3": value}}

    names = {"pgd": by_ce, "pgd_margin": scale_free + 1, "pgd_dlr": scale_free + 2, "pgd_scale_free": scale_free,
             "autoattack": scale_free}
    verdict = {"attack": "pgd", "eps": 0.3, "accuracy": by_ce, "robust": scale_free, "examples": 100, "words": "",
               "compared_with": ["pgd_margin", "pgd_dlr"], "flattered": by_ce - scale_free > 1}
    found = {"seed": 0, "attacks": {name: row(value) for name, value in names.items()}, "verdicts": [verdict]}
    return replace(synthetic.record("mine", arm, seed), attacks=found)


def section(records: list[Record]) -> Any:
    (group,) = groups_of(records, {})
    found = attacks.section(group.arms)
    assert found is not None
    return found


@pytest.mark.usefixtures("without_figures")
def test_a_flattering_attack_is_warned_of_before_its_numbers() -> None:
    records = [attacked("ce", seed, 5.0, 4.5) for seed in range(3)]
    records += [attacked("el", seed, 11.0 + seed, 0.5) for seed in range(3)]
    found = section(records)
    (warning,) = found.lead
    (flattering, _) = found.tables
    assert flattering.caption.startswith("Overestimates: attacks by cross-entropy that leave an accuracy")
    assert [cell.main for cell in flattering.rows[0]] == ["PGD by cross-entropy", "el", "0.3", "12.0", "0.5", "3 of 3"]
    assert warning == ("Warning: PGD by cross-entropy makes el look more robust than it is. At epsilon 0.3 it leaves "
                       "12.0% of the test images classified correctly, but PGD by margin and PGD by DLR together leave "
                       "0.5%: report that number. Seen in 3 of 3 runs; the numbers are means over all of them.")
    assert warning in build_report(records)


@pytest.mark.usefixtures("without_figures")
def test_pages_say_which_gains_survive(tmp_path: Path) -> None:
    """A gain under PGD that scale-free attacks leave, in a recipe that has claims on both at one of two sizes."""
    recipe = read_recipe("mnist-attack", ["seeds=3"])
    noise = {"ce": (0.0, 0.1, 0.05), "el": (0.0, 0.0, -0.05)}
    for arm, by_ce, scale_free in (("ce", 1.0, 0.5), ("el", 12.1, 9.1)):
        for seed in range(3):
            one = attacked(arm, seed, by_ce + noise[arm][seed], scale_free + noise[arm][seed])
            assert one.attacks is not None
            for row in one.attacks["attacks"].values():
                row["accuracy"] = {"0.25": row["accuracy"]["0.3"], **row["accuracy"]}
            parts = {"schema": 1, "asked": recipe.config(arm, seed), "environment": one.environment, "final": one.final,
                     "timing": one.timing, "epochs": one.epochs, "attacks": one.attacks}
            (tmp_path / f"{arm}-seed{seed}.json").write_text(json.dumps(parts))
    words = ("Of 2 gains that are established under attacks by cross-entropy, scale-free attacks confirm 1; 1 is not "
             "judged.")
    page = results_page(tmp_path)
    assert page.index(f"[mnist-attack](#mnist-attack): {words}") < page.index("### Claims of the paper")
    assert "Accuracy under attack is that on the first 100 test images." in page
    assert "| attack | size | claim | paper | by cross-entropy | scale-free | the gain |" in page
    assert "| PGD by cross-entropy | 0.3 | el beats ce | +10.7 | +11.0 | +8.5 | survives |" in page
    assert "| PGD by cross-entropy | 0.25 | el beats ce | +15.2 | +11.0 | +8.5 | not judged |" in page
    report = build_report(read_records(tmp_path)).replace("&#43;", "+")
    assert words in report
    for text in (page, report):
        assert "Not judged: no claim of the recipe is about the scale-free attack of that size." in text


def with_images(record: Record, **images: int) -> Record:
    """The run with other numbers of test images of some attacks."""
    assert record.attacks is not None
    rows = {name: {**row, "examples": images.get(name, row["examples"])}
            for name, row in record.attacks["attacks"].items()}
    return replace(record, attacks={**record.attacks, "attacks": rows})


@pytest.mark.usefixtures("without_figures")
def test_pages_say_of_every_attack_on_how_many_images_it_was(tmp_path: Path) -> None:
    recipe = read_recipe("mnist-attack", ["seeds=1"])
    records = [with_images(replace(attacked(arm, 0, 5.0, 4.5), config=recipe.config(arm, 0)), autoattack=40)
               for arm in recipe.arms]
    for one in records:
        parts = {"schema": 1, "asked": one.config, "environment": one.environment, "final": one.final,
                 "timing": one.timing, "epochs": one.epochs, "attacks": one.attacks}
        (tmp_path / f"{one.arm}-seed0.json").write_text(json.dumps(parts))
    words = "the first 100 test images (AutoAttack: the first 40)"
    assert f"Accuracy under attack is that on {words}." in results_page(tmp_path)
    page = build_report(read_records(tmp_path))
    assert f"On {words}, mean over 1 seed." in page
    for text in (page, results_page(tmp_path)):
        assert "40 to 100" not in text


@pytest.mark.parametrize(("rows", "words"), [
    ([("pgd", "el", None, 0.1)], ""),
    ([("pgd", "el", 20, 0.1), ("pgd", "ce", 20, 0.1), ("fgsm", "el", 20, 0.1)], "the first 20 test images"),
    ([("pgd", "el", 600, 0.0), ("pgd", "el", 20, 8 / 255)],
     "the first 600 test images (PGD by cross-entropy at 8/255: the first 20)"),
    ([("pgd", "el", 600, 0.1), ("pgd", "ce", 20, 0.1)],
     "the first 600 test images (PGD by cross-entropy of ce: the first 20)"),
    ([("pgd", "el", 600, 0.1), ("pgd", "el", 20, 0.1)],
     "the first 600 test images (PGD by cross-entropy in some runs: the first 20)"),
    ([("fgsm", "el", 9, 0.1), ("pgd", "el", 9, 0.1), ("autoattack", "el", 5, 0.1), ("autoattack_l2", "el", 5, 1.0),
      ("pgd_l2", "el", 7, 1.0), ("pgd_margin", "el", 9, 0.1)],
     "the first 9 test images (PGD in L2 by cross-entropy: the first 7; AutoAttack and AutoAttack in L2: the first 5)"),
])
def test_the_number_of_images_is_said_per_attack(rows: list[tuple[str, str, int | None, float]], words: str) -> None:
    assert image_words(AttackRow(name, arm, images, {eps: [5.0]}) for name, arm, images, eps in rows) == words


def test_without_a_difference_it_says_so_and_without_comparison_too() -> None:
    assert section([attacked("ce", 0, 5.0, 5.0)]).lead[0].startswith("No sign of masked gradients")
    alone = [synthetic.record("mine", "ce", 0, attacks=True)]
    assert "no other attack here to compare them with" in section(alone).lead[0]


def test_the_table_has_every_attack_and_the_picture_counts_scale_free_ones_together() -> None:
    found = section([attacked(arm, seed, 10.0 + seed, 2.0) for arm in ("ce", "el") for seed in range(2)])
    _, table = found.tables
    assert "on the first 100 test images" in table.caption
    rows = {(row[0].main, row[1].main): [cell.main for cell in row[2:]] for row in table.rows}
    assert rows["PGD by cross-entropy", "ce"] == ["99.0 ± 0.0", "10.5 ± 0.7"]
    assert rows["PGD by margin", "el"] == ["99.0 ± 0.0", "3.0 ± 0.0"]
    titles = [panel.title for panel in found.pictures[0].panels]
    assert titles == ["PGD by cross-entropy", "PGD scale-free", "AutoAttack"]
    assert "under PGD scale-free of size 0.3, ce keeps 2.00%" in found.pictures[0].alt


@pytest.mark.parametrize(("name", "words"), [("fgsm", "FGSM by cross-entropy"),
                                             ("pgd_l2", "PGD in L2 by cross-entropy"),
                                             ("pgd_l2_damped", "PGD in L2 by cross-entropy, damped"),
                                             ("pgd_l2_dlr", "PGD in L2 by DLR"), ("autoattack_l2", "AutoAttack in L2"),
                                             ("fgsm_normalised", "FGSM on the label’s logit, normalised")])
def test_attacks_have_names_for_readers(name: str, words: str) -> None:
    assert attacks.attack_label(name) == words


def test_margins_of_hardened_models_are_drawn_clean_and_under_attack() -> None:
    record = synthetic.record("mine", "ce", 0)
    assert record.diagnosis is not None
    under = synthetic.diagnosis(1.0, 1)["margin"]
    whole = {**record.diagnosis, "attacked": {"attack": "pgd_margin", "eps": 0.3, "accuracy": 5.0, "margin": under}}
    (group,) = groups_of([replace(record, diagnosis=whole)], {})
    picture = attacks.margin_picture(group.arms)
    assert picture is not None
    assert "under attack" in picture.alt
    (plain,) = groups_of([record], {})
    assert attacks.margin_picture(plain.arms) is None


def diagnosed(seed: int) -> Record:
    random = torch.Generator().manual_seed(seed)
    reader = Reader(5)
    reader.update(3 * torch.randn(80, 5, generator=random), torch.randint(5, (80,), generator=random))
    for name in ("letters", "clothes", "photos"):
        reader.update_outside(torch.randn(60, 5, generator=random), name)
    diagnosis = reader.diagnosis(groups={"letters": "near", "clothes": "near", "photos": "far"})
    record = synthetic.record("mine", "ce", seed)
    return replace(record, diagnosis=diagnosis, final={**record.final, **summary(diagnosis)})


def test_sets_have_openoods_columns_and_groups_their_means() -> None:
    records = [diagnosed(seed) for seed in range(2)]
    (group,) = groups_of(records, {})
    found = out_of_distribution.sections(group.arms)
    assert [one.key for one in found] == ["out-of-distribution-1", "out-of-distribution-2", "out-of-distribution-3",
                                          "out-of-distribution-groups"]
    own, usual = found[0].tables
    assert own.caption.startswith("Detection by four scores")
    assert usual.head[2:] == ["FPR@95", "AUROC", "AUPR_IN", "AUPR_OUT"]
    assert [row[1].main for row in usual.rows] == ["MSP", "MaxLogit", "Energy", "log-odds of the top class"]
    (means,) = found[-1].tables
    near = next(row for row in means.rows if (row[0].main, row[2].main) == ("nearood", "MSP"))
    value = sum(record.final["ood"][name]["msp"]["openood"]["AUROC"] for record in records
                for name in ("letters", "clothes")) / 4
    assert near[4].main == f"{value:.2f}"
    assert "near means letters and clothes" in found[-1].lead[0]


def test_older_records_have_three_scores_and_no_columns_of_openood() -> None:
    record = diagnosed(0)
    assert record.diagnosis is not None
    for one in record.diagnosis["ood"].values():
        one.pop("group")
        one["scores"].pop("msp")
        for score in one["scores"].values():
            score.pop("openood")
    (group,) = groups_of([record], {})
    found = out_of_distribution.sections(group.arms)
    assert len(found) == 3
    (table,) = found[0].tables
    assert table.caption.startswith("Detection by three scores")
