"""Which gains under attack survive attacks that do not depend on the scale of the logits."""

from __future__ import annotations

import pytest

from encouraging.engine import Metric
from encouraging.judge.claims import judge_claims
from encouraging.judge.metric_book import MetricBook
from encouraging.judge.scale_free import TWINS, Gain, gains_under_attack
from encouraging.recipes import read_recipe
from encouraging.recipes.claim import Claim
from encouraging.report.numbers import PLAIN
from encouraging.report.sections.gains import gain_rows, gain_table, gain_words

BOOK = MetricBook([Metric("accuracy", "accuracy", primary=True)])
NOISE = (-0.2, 0.1, 0.0, 0.15, -0.05)


def gains(ours: dict[str, float], *, claimed: bool = True, attack: str = "pgd") -> list[Gain]:
    """Two arms over five seeds; ``ours`` has by how much the one beats the other under each attack of size 0.3."""
    metrics = [f"attacks.{name}.0.3" for name in ours]
    finals = {arm: {seed: {"attacks": {name: {"0.3": 20 + (gain + noise if arm == "el" else 0)}
                                       for name, gain in ours.items()}} for seed, noise in enumerate(NOISE)}
              for arm in ("ce", "el")}
    claims = [Claim(metric=metric, arm="el", beats="ce", expected=10.0,
                    **({"paper": {"ce": 0.5, "el": 11.2}} if metric == f"attacks.{attack}.0.3" else {}))
              for metric in metrics if claimed or not metric.endswith("scale_free.0.3")]
    return gains_under_attack(judge_claims(claims, finals, BOOK), finals)


@pytest.mark.parametrize(("by_ce", "scale_free", "answer"), [
    (10.0, 4.0, "survives"), (10.0, 0.0, "does not survive"), (10.0, -5.0, "does not survive"),
    (0.0, 4.0, "not established"), (-5.0, 4.0, "not established")])
def test_a_gain_survives_where_scale_free_attacks_leave_one(by_ce: float, scale_free: float, answer: str) -> None:
    (gain,) = gains({"pgd": by_ce, "pgd_scale_free": scale_free})
    assert gain.answer == answer
    assert gain.difference == pytest.approx(scale_free)
    assert gain_rows([gain], PLAIN) == [["PGD by cross-entropy", "0.3", "el beats ce", "+10.7",
                                         f"{by_ce:+.1f}".replace("+0.0", "0.0"),
                                         f"{scale_free:+.1f}".replace("+0.0", "0.0"), answer]]
    (table,) = gain_table([gain])
    assert table.rows[0][-1].main == answer


def test_without_a_claim_on_the_other_attack_the_numbers_are_shown_and_nothing_is_judged() -> None:
    (gain,) = gains({"pgd": 10.0, "pgd_scale_free": 4.0}, claimed=False)
    assert (gain.answer, gain.difference) == ("not judged", pytest.approx(4.0))
    assert gain_words([gain]) == ("Of 1 gain that is established under attacks by cross-entropy, scale-free attacks "
                                  "confirm none: 1 is not judged.")
    assert gain_rows([gain], PLAIN)[0][-3:] == ["+10.0", "+4.0", "not judged"]


def test_the_paper_s_damped_attack_has_its_twin_and_scale_free_ones_need_none() -> None:
    (gain,) = gains({"pgd_l2_damped": 60.0, "pgd_l2_scale_free": 0.0}, attack="pgd_l2_damped")
    assert gain.answer == "does not survive"
    assert gain_rows([gain], PLAIN) == [["PGD in L2 by cross-entropy, damped", "0.3", "el beats ce", "+10.7", "+60.0",
                                         "0.0", "does not survive"]]
    assert gains({"autoattack": 10.0, "fgsm_normalised": 10.0}) == []
    assert gains({"pgd": 10.0}) == []  # nothing to compare with


def test_words_count_every_answer() -> None:
    lost = gains({"pgd": 10.0, "pgd_scale_free": 0.0, "fgsm": 8.0, "fgsm_scale_free": 5.0, "pgd_l2": 0.0,
                  "pgd_l2_scale_free": 0.0})
    assert gain_words(lost) == ("Of 2 gains that are established under attacks by cross-entropy, scale-free attacks "
                                "confirm 1; 1 does not survive. 1 more is not established.")
    assert [row[-3:] for row in gain_rows(lost, PLAIN)] == [
        ["+10.0", "0.0", "does not survive"], ["+8.0", "+5.0", "survives"], ["0.0", "0.0", "not established"]]
    both = gains({"pgd": 10.0, "pgd_scale_free": 9.0, "fgsm": 8.0, "fgsm_scale_free": 5.0})
    assert gain_words(both) == ("Of 2 gains that are established under attacks by cross-entropy, scale-free attacks "
                                "confirm all.")
    assert gain_words(both[:1]).endswith("cross-entropy, scale-free attacks confirm 1.")
    (none,) = gains({"pgd": 0.0, "pgd_scale_free": 0.0})
    assert gain_words([none]).startswith("No gain under attacks by cross-entropy is established here (1 claim)")
    assert gain_words([]) == ""
    assert gain_table([]) == []


@pytest.mark.parametrize("name", ["mnist-attack", "mnist-adversarial-training"])
def test_shipped_claims_look_for_the_papers_gain_so_that_a_lost_one_can_be_told(name: str) -> None:
    """Without an expected difference a claim is never *no difference*, and no gain could be said not to survive."""
    claims = {(claim.metric, claim.arm): claim for claim in read_recipe(name).claims}
    twins = 0
    for (metric, arm), claim in claims.items():
        _, attack, size = (*metric.split(".", 2), "", "")[:3]
        twin = claims.get((f"attacks.{TWINS.get(attack)}.{size}", arm))
        if claim.paper_difference is not None and twin is not None:
            assert twin.expected == pytest.approx(claim.paper_difference)
            twins += 1
    assert twins >= 3
