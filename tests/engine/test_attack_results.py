"""``attacks.json``: what survived, kept per image, compared on the images that attacks share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encouraging.attacks import Attack
from encouraging.engine.attack_results import AttackResults, Measured, _hex, _mask, load_results, read_attacks
from encouraging.errors import RunError


def mask(*bits: int) -> torch.Tensor:
    return torch.tensor(bits, dtype=torch.bool)


def measured(method: str, loss: str, survived: dict[float, torch.Tensor]) -> Measured:
    return Measured(Attack(method, loss=loss), survived=survived)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "weights.safetensors").write_bytes(b"some weights")
    return tmp_path


@given(bits=st.lists(st.booleans(), max_size=300))
def test_a_mask_is_written_and_read(bits: list[bool]) -> None:
    assert _mask(_hex(torch.tensor(bits, dtype=torch.bool))).tolist() == bits


def test_what_was_written_is_read_and_not_measured_again(folder: Path) -> None:
    results = load_results(folder)
    one = measured("pgd", "ce", {0.0: mask(1, 1, 0), 0.3: mask(0, 1, 0)})
    assert results.missing("pgd", one, [0.0, 0.3], 3) == [0.0, 0.3]
    results.add("pgd", one)
    results.write(folder)
    again = load_results(folder)
    assert again.measured["pgd"].attack == one.attack
    assert again.measured["pgd"].survived[0.3].tolist() == [False, True, False]
    assert again.missing("pgd", one, [0.0, 0.3, 0.1], 3) == [0.1]
    assert again.missing("pgd", one, [0.3], 4) == [0.3]  # on more images
    assert again.missing("pgd", measured("pgd", "dlr", {}), [0.3], 3) == [0.3]  # with other settings


def test_numbers_of_images_that_differ_by_epsilon_are_written_down() -> None:
    results = AttackResults("w")
    results.add("fgsm", Measured(Attack("fgsm"), survived={0.1: torch.ones(2).bool(), 0.3: torch.ones(4).bool()}))
    assert results.tables()["fgsm"] == {"examples": 2, "examples_at": {"0.1": 2, "0.3": 4},
                                        "accuracy": {"0.1": 100.0, "0.3": 100.0}}


def test_epsilons_are_added_and_other_settings_replace(folder: Path) -> None:
    results = load_results(folder)
    results.add("pgd", measured("pgd", "ce", {0.3: mask(1)}))
    results.add("pgd", measured("pgd", "ce", {0.1: mask(0)}))
    assert list(results.measured["pgd"].survived) == [0.1, 0.3]
    results.add("pgd", Measured(Attack("pgd", loss="ce", steps=3), survived={0.2: mask(1)}))
    assert list(results.measured["pgd"].survived) == [0.2]


def test_results_of_another_seed_are_kept_beside_and_found_again(folder: Path) -> None:
    for seed, bit in ((0, 1), (1, 0), (0, 0)):
        results = load_results(folder, seed)
        results.add(f"pgd{bit}", measured("pgd", "ce", {0.3: mask(bit)}))
        results.write(folder)
    assert set(load_results(folder, 0).measured) == {"pgd1", "pgd0"}
    assert set(load_results(folder, 1).measured) == {"pgd0"}
    assert sorted(path.name for path in folder.glob("*.json")) == ["attacks-seed1.json", "attacks.json"]
    found = read_attacks(folder)
    assert found is not None
    assert found["seed"] == 0
    (folder / "weights.safetensors").write_bytes(b"other weights")
    assert load_results(folder, 1).measured == {}


def test_other_weights_or_another_seed_begin_anew(folder: Path) -> None:
    results = load_results(folder)
    results.add("pgd", measured("pgd", "ce", {0.3: mask(1)}))
    results.write(folder)
    assert load_results(folder, seed=1).measured == {}
    (folder / "weights.safetensors").write_bytes(b"other weights")
    assert load_results(folder).measured == {}


def test_scale_free_attacks_are_counted_together() -> None:
    results = AttackResults("")
    results.add("pgd_margin", measured("pgd", "margin", {0.3: mask(1, 1, 0, 0)}))
    assert "pgd_scale_free" not in results.tables()
    results.add("pgd_dlr", measured("pgd", "dlr", {0.3: mask(1, 0, 1, 0), 0.1: mask(1, 1, 1, 1)}))
    results.add("pgd", measured("pgd", "ce", {0.3: mask(1, 1, 1, 1)}))
    row = results.tables()["pgd_scale_free"]
    assert row == {"examples": 4, "accuracy": {"0.3": 25.0}}


def test_verdicts_compare_on_the_images_that_attacks_share(folder: Path) -> None:
    results = load_results(folder)
    results.add("pgd", measured("pgd", "ce", {0.3: mask(*[1] * 20)}))
    results.add("pgd_margin", measured("pgd", "margin", {0.3: mask(*[1] * 20)}))
    ((count, verdict),) = results.verdicts()
    assert (count, verdict.flattered) == (20, False)
    results.add("autoattack", Measured(Attack("autoattack", norm="linf"), survived={0.3: mask(*[0, 1] * 5)}))
    ((count, verdict),) = results.verdicts()
    assert (count, verdict.flattered, verdict.accuracy, verdict.robust) == (10, True, 100.0, 50.0)
    assert verdict.compared_with == ("pgd_margin", "autoattack")
    results.write(folder)
    kept = read_attacks(folder)
    assert kept is not None
    assert [one["robust"] for one in kept["verdicts"]] == [50.0]


def test_attacks_in_other_units_are_never_compared() -> None:
    results = AttackResults("")
    results.add("fgsm", measured("fgsm", "ce", {0.3: mask(1, 1)}))
    results.add("fgsm_normalised", Measured(Attack("fgsm", loss="label_logit", clip=False), "normalised",
                                            {0.3: mask(0, 0)}))
    assert results.verdicts() == []


def test_records_have_the_numbers_without_the_single_images(folder: Path) -> None:
    assert read_attacks(folder) is None
    results = load_results(folder)
    results.add("fgsm", measured("fgsm", "ce", {0.05: mask(1, 0)}))
    results.write(folder)
    kept = read_attacks(folder)
    assert kept is not None
    assert kept["attacks"]["fgsm"] == {"examples": 2, "accuracy": {"0.05": 50.0}, "method": "fgsm",
                                       "settings": {"loss": "ce"}, "units": "pixels"}
    assert "survived" not in json.dumps(kept)


@pytest.mark.parametrize("content", ['{"schema": 1}', '{"schema": 9, "attacks": {}}', "[]",
                                     '{"schema": 1, "seed": null, "attacks": {}}'])
def test_a_damaged_file_is_refused_in_words(folder: Path, content: str) -> None:
    (folder / "attacks.json").write_text(content)
    with pytest.raises(RunError, match=r"attacks\.json"):
        load_results(folder)


@pytest.mark.parametrize("damage", [{"method": "gfsm"}, {"survived": ["4"]}, {"survived": {"0.05": "x"}}, None])
def test_a_damaged_entry_is_named(folder: Path, damage: dict[str, Any] | None) -> None:
    results = load_results(folder)
    results.add("fgsm", measured("fgsm", "ce", {0.05: mask(1, 0)}))
    results.write(folder)
    content = json.loads((folder / "attacks.json").read_text())
    content["attacks"]["fgsm"] = damage and content["attacks"]["fgsm"] | damage
    (folder / "attacks.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match="fgsm cannot be read"):
        load_results(folder)


def test_a_run_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"no weights\.safetensors"):
        load_results(tmp_path)
