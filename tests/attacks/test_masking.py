"""A model whose logits are only scaled makes the same decisions. Attacks and verdicts must say so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from encouraging.attacks import (
    Attack,
    RobustAccuracy,
    Verdict,
    accuracy_over_eps,
    autoattack,
    fgsm,
    masked_gradients,
    pgd,
    pgd_l2,
)
from encouraging.attacks._masking import sign_test
from encouraging.errors import ArgumentError

SCALES = (1, 8, 32)
EPSILONS = (0.05, 0.1, 0.2)
PAIR = [Attack("pgd"), Attack("pgd", loss="margin"), Attack("pgd", loss="dlr")]


@pytest.fixture(scope="module")
def measured(digits: Any) -> dict[int, RobustAccuracy]:
    return {scale: accuracy_over_eps(digits.scaled(scale), digits.x, digits.y, PAIR, EPSILONS) for scale in SCALES}


def test_the_scaled_models_decide_alike(digits: Any) -> None:
    logits = digits.model(digits.x)
    for scale in SCALES:
        assert torch.equal(digits.scaled(scale)(digits.x), scale * logits)


@pytest.mark.parametrize("loss", ["margin", "dlr", "label_logit"])
@pytest.mark.parametrize("scale", SCALES[1:])
def test_scale_free_attacks_find_the_same_images_bit_for_bit(digits: Any, loss: str, scale: int) -> None:
    x, y = digits.first(100)
    scaled = digits.scaled(scale)
    assert torch.equal(fgsm(scaled, x, y, 0.1, loss=loss), fgsm(digits.model, x, y, 0.1, loss=loss))
    assert torch.equal(pgd(scaled, x, y, 0.1, loss=loss, restarts=2),
                       pgd(digits.model, x, y, 0.1, loss=loss, restarts=2))
    assert torch.equal(pgd_l2(scaled, x, y, 1.0, loss=loss), pgd_l2(digits.model, x, y, 1.0, loss=loss))


def test_the_cross_entropy_attack_calls_a_scaled_model_robust(measured: dict[int, RobustAccuracy]) -> None:
    plain, mild, strong = (measured[scale].accuracy("pgd", 0.2) for scale in SCALES)
    assert plain <= mild < strong
    assert plain < 10
    assert strong > 50


def test_the_verdict_on_robustness_does_not_change_with_the_scale(measured: dict[int, RobustAccuracy]) -> None:
    for name in ("pgd_margin", "pgd_dlr"):
        for eps in EPSILONS:
            for scale in SCALES[1:]:
                assert torch.equal(measured[scale].survived[name][eps], measured[1].survived[name][eps])
    robust = {scale: [verdict.robust for verdict in masked_gradients(result)] for scale, result in measured.items()}
    assert robust[1] == robust[8] == robust[32]


def test_the_warning_comes_where_cross_entropy_flatters(measured: dict[int, RobustAccuracy]) -> None:
    honest, flattered = ({v.eps: v for v in masked_gradients(measured[scale])}[0.2] for scale in (1, 32))
    assert not honest.flattered
    assert "No sign of masked gradients" in honest.words
    assert flattered.flattered
    assert flattered.accuracy - flattered.robust > 50
    assert f"Report {flattered.robust:.1f}%, not {flattered.accuracy:.1f}%." in flattered.words
    assert "masks the gradient of cross-entropy" in flattered.words


def test_autoattacks_cross_entropy_part_is_deceived_and_the_whole_is_not(digits: Any) -> None:
    x, y = digits.first(50)

    def left(scale: int, **settings: Any) -> float:
        model = digits.scaled(scale)
        found = autoattack(model, x, y, 0.2, **settings)
        return 100 * (model(found).argmax(1) == y).double().mean().item()

    alone = [left(scale, parts=["apgd-ce"]) for scale in (1, 32)]
    assert alone[0] < 5
    assert alone[1] > 50
    together = {left(scale, parts=["apgd-ce", "apgd-t", "fab-t"]) for scale in SCALES}
    assert len(together) == 1
    assert together.pop() <= alone[0]


def result(times: int = 5, **survived: str) -> RobustAccuracy:
    """Survivors as words of 0 and 1, each ``times`` times, at epsilon 0.1."""
    kinds = {"pgd": Attack("pgd"), "margin": Attack("pgd", loss="margin"), "fgsm": Attack("fgsm"),
             "fgsm_margin": Attack("fgsm", loss="margin"), "autoattack": Attack("autoattack"),
             "autoattack_l2": Attack("autoattack", norm="l2")}
    masks = {name: torch.tensor([bit == "1" for bit in bits * times]) for name, bits in survived.items()}
    return RobustAccuracy({name: kinds[name] for name in survived}, {name: {0.1: mask} for name, mask in masks.items()})


def only(verdicts: list[Verdict]) -> Verdict:
    (verdict,) = verdicts
    return verdict


def test_robust_examples_survive_all_attacks_together() -> None:
    verdict = only(masked_gradients(result(pgd="1111", margin="1100", autoattack="0110")))
    assert (verdict.accuracy, verdict.robust, verdict.flattered) == (100, 25, True)
    assert verdict.compared_with == ("margin", "autoattack")
    assert "25.0% under all of these together" in verdict.words


def test_what_only_autoattack_finds_is_not_blamed_on_the_loss() -> None:
    verdict = only(masked_gradients(result(pgd="1111", margin="1111", autoattack="0000")))
    assert verdict.flattered
    assert "AutoAttack finds more" in verdict.words
    assert "masks the gradient" not in verdict.words


def test_fgsm_is_compared_with_fgsm_alone_and_norms_do_not_mix() -> None:
    verdict = only(masked_gradients(result(fgsm="1111", fgsm_margin="1111", autoattack="0000", margin="0000")))
    assert not verdict.flattered
    with pytest.raises(ArgumentError, match="nothing to compare"):
        masked_gradients(result(pgd="1111", autoattack_l2="0000"))
    with pytest.raises(ArgumentError, match="nothing to compare"):
        masked_gradients(result(margin="1111", autoattack="0000"))


def test_a_difference_within_the_tolerance_is_none() -> None:
    found = result(pgd="1111", margin="1110")
    assert only(masked_gradients(found)).flattered
    assert not only(masked_gradients(found, tolerance=25)).flattered


def test_a_difference_that_may_be_chance_is_no_warning() -> None:
    """One image of a hundred that margin breaks and cross-entropy does not, or four more than the other way round."""
    few = only(masked_gradients(result(1, pgd="1" * 100, margin="1" * 98 + "00")))
    assert (few.accuracy - few.robust, few.flattered) == (2, False)
    assert "On 100 examples such a difference is no sign of masked gradients" in few.words
    assert only(masked_gradients(result(1, pgd="1" * 100, margin="1" * 98 + "00"), level=0.3)).flattered
    both = result(1, pgd="1" * 90 + "0" * 3 + "1" * 7, margin="1" * 93 + "0" * 7)
    assert not only(masked_gradients(both)).flattered
    many = result(10, pgd="1" * 90 + "0" * 3 + "1" * 7, margin="1" * 93 + "0" * 7)
    assert only(masked_gradients(many)).flattered


@given(st.integers(0, 1500), st.integers(0, 1500))
def test_the_sign_test_is_scipy_s(more: int, less: int) -> None:
    expected = binomtest(more, more + less, alternative="greater").pvalue if more + less else 1.0
    exact = more + less <= 1000
    assert sign_test(more, less) == pytest.approx(expected, rel=1e-9 if exact else 0, abs=1e-12 if exact else 1e-4)
