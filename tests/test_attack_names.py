"""The one table of attacks agrees with the attacks themselves."""

from __future__ import annotations

import pytest

from encouraging.attack_names import DAMPED, LOSSES, METHODS, OTHERS
from encouraging.attacks import Attack
from encouraging.commands.attack_plan import GRID, JUDGES, KNOWN
from encouraging.judge.attack_names import attack_label
from encouraging.judge.scale_free import TWINS
from encouraging.report.sections.attack_rows import ordered


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", METHODS)
def test_names_and_norms_are_those_of_the_attacks(method, loss):
    attack = Attack(method, loss=loss)
    assert METHODS[method].by(loss) == attack.name
    assert METHODS[method].norm == attack.norm
    assert attack_label(attack.name) == f"{METHODS[method].words} {LOSSES[loss].words}"


def test_every_attack_of_the_command_has_words_and_a_place():
    assert set(KNOWN) == {*GRID, *OTHERS}
    assert all(attack_label(name) != name for name in (*KNOWN, *TWINS.values()))
    assert set(JUDGES) | set(DAMPED.values()) <= set(OTHERS)
    names = [*GRID, *TWINS.values(), *DAMPED.values()]
    assert ordered(reversed(names)) == [
        "fgsm", "fgsm_margin", "fgsm_dlr", "fgsm_scale_free", "pgd", "pgd_margin", "pgd_dlr", "pgd_scale_free",
        "pgd_l2", "pgd_l2_damped", "pgd_l2_margin", "pgd_l2_dlr", "pgd_l2_scale_free", "pgd_l2_scale_free"]


def test_scale_free_attacks_are_the_twins_of_those_by_cross_entropy():
    assert TWINS == {"fgsm": "fgsm_scale_free", "pgd": "pgd_scale_free", "pgd_l2": "pgd_l2_scale_free",
                     "pgd_l2_damped": "pgd_l2_scale_free"}
