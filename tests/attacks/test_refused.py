"""Arguments that cannot be used are refused in words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from encouraging.attacks import TRAINING_ATTACKS, Attack, adversarial_batch, autoattack, fgsm, pgd, pgd_l2
from encouraging.errors import ArgumentError, DtypeError, ShapeError, TargetError

X, Y = torch.full((2, 4), 0.5), torch.tensor([0, 2])
MODEL = nn.Linear(4, 3)
PLAIN: dict[str, Any] = {"model": MODEL, "x": X, "y": Y, "eps": 0.1}

REFUSED = {
    "eps below 0": ({"eps": -0.1}, ArgumentError, "eps=-0.1"),
    "eps that is not a number": ({"eps": float("nan")}, ArgumentError, "eps=nan"),
    "an infinite eps": ({"eps": float("inf")}, ArgumentError, "eps=inf"),
    "eps that float32 does not have": ({"eps": 1e39}, ArgumentError, r"eps=1e\+39.*from 0 to 1e\+18"),
    "eps as a word": ({"eps": "0.1"}, ArgumentError, "eps='0.1'"),
    "normalised images": ({"x": X - 1}, ArgumentError, "between -0.5 and -0.5, expected 0 to 1.*normalisation"),
    "images of 0 to 255": ({"x": 255 * X}, ArgumentError, "127.5"),
    "NaN among the images": ({"x": X / 0 * 0}, ArgumentError, "NaN"),
    "images of bytes": ({"x": X.byte()}, DtypeError, "uint8.*/ 255"),
    "images in half precision": ({"x": X.half()}, DtypeError, "float16"),
    "a list of images": ({"x": [[0.5]]}, DtypeError, "list"),
    "no batch": ({"x": X[0]}, ShapeError, r"\(4,\)"),
    "labels as floats": ({"y": Y.float()}, DtypeError, "float32"),
    "labels of another batch": ({"y": Y[:1]}, ShapeError, r"\(2,\).*\(1,\)"),
    "a negative label": ({"y": torch.tensor([0, -100])}, TargetError, "-100"),
    "a label of no class": ({"y": torch.tensor([0, 3])}, TargetError, "label 3.*0 to 2"),
    "labels elsewhere": ({"y": Y.to("meta")}, ArgumentError, "meta"),
    "a model without classes": ({"model": lambda x: x.sum(1)}, ShapeError, r"two classes or more, got \(.,\)"),
    "a model of one class": ({"model": nn.Linear(4, 1)}, ShapeError, "two classes"),
    "a model that returns a tuple": ({"model": lambda x: (x, x)}, ShapeError, "tuple"),
    "a model that returns labels": ({"model": lambda x: MODEL(x).long()}, DtypeError, "int64"),
    "a model without gradients": ({"model": lambda x: MODEL(x).detach()}, ArgumentError, "no gradient"),
    "an unknown loss": ({"loss": "margins"}, ArgumentError, "'margins'.*Did you mean 'margin'"),
    "a list of eps": ({"eps": [0.1, 0.2]}, ArgumentError, "For several use accuracy_over_eps"),
    "images that rounding took out of the box": ({"x": X + 0.5 + 1e-6}, ArgumentError, r"1\.0000009.*x\.clamp"),
    "images without pixels": ({"x": torch.rand(2, 0)}, ShapeError, r"\(2, 0\)"),
    "a model in another precision": ({"model": nn.Linear(4, 3).bfloat16()}, ArgumentError, "float32.*bfloat16"),
    "a model on another device": ({"model": nn.Linear(4, 3, device="meta")}, ArgumentError, r"cpu.*meta.*model\.to"),
    "a name instead of a model": ({"model": "resnet18"}, DtypeError, "function from inputs to logits.*'resnet18'"),
    "a class instead of a model": ({"model": nn.Linear}, DtypeError, "the class Linear"),
    "a model that was made in inference mode": ({"model": torch.inference_mode()(lambda: nn.Linear(4, 3))()},
                                                ArgumentError, "inference_mode"),
    "a batch size of 0": ({"batch_size": 0}, ArgumentError, "batch_size=0"),
}
OF_PGD = {
    "no steps": ({"steps": 0}, ArgumentError, "steps=0"),
    "half a step": ({"steps": 1.5}, ArgumentError, "steps=1.5"),
    "a step whose square overflows": ({"step_size": 1e30}, ArgumentError, r"step_size=1e\+30.*at most 1e\+18"),
    "a step of length 0": ({"step_size": 0.0}, ArgumentError, "step_size=0.0"),
    "no restart": ({"restarts": 0}, ArgumentError, "restarts=0"),
    "restarts that repeat the first": ({"restarts": 2, "random_start": False}, ArgumentError, "repeat the first"),
    "a word as random_start": ({"random_start": "yes"}, ArgumentError, "random_start='yes'"),
    "a negative seed": ({"seed": -1}, ArgumentError, "seed=-1"),
    "an index of another batch": ({"index": torch.arange(3)}, ShapeError, r"index.*\(3,\)"),
}


# It has its own losses, one of them without gradients, and freezes the model.
NOT_OF_AUTOATTACK = {"an unknown loss", "a model without gradients", "a model that was made in inference mode"}


@pytest.mark.parametrize(("attack", "what"), [
    *((attack, what) for attack in (fgsm, pgd, pgd_l2) for what in REFUSED),
    *((autoattack, what) for what in REFUSED if what not in NOT_OF_AUTOATTACK)])
def test_refused_by_every_attack(attack: Any, what: str) -> None:
    changed, kind, says = REFUSED[what]
    with pytest.raises(kind, match=re.compile(says, re.DOTALL)):
        attack(**PLAIN | changed)


@given(eps=st.floats(1, 1e18, exclude_min=True))
def test_a_change_above_1_is_refused_in_the_box_and_taken_elsewhere(eps: float) -> None:
    """8 in place of 8/255 is the usual slip: every attack would succeed, without a word."""
    for call in (lambda: fgsm(**PLAIN | {"eps": eps}), lambda: pgd(**PLAIN | {"eps": eps}),
                 lambda: autoattack(**PLAIN | {"eps": eps}), lambda: Attack("pgd", steps=1)(**PLAIN | {"eps": eps}),
                 lambda: adversarial_batch(MODEL, X, Y, Attack("fgsm"), eps)):
        with pytest.raises(ArgumentError, match=r"eps=.*allows any image.*\(8 / 255\)"):
            call()
    assert pgd_l2(**PLAIN | {"eps": eps, "steps": 1}).shape == X.shape
    assert fgsm(**PLAIN | {"eps": eps, "clip": False}).shape == X.shape
    assert adversarial_batch(MODEL, X, Y, Attack("fgsm", clip=False), eps).shape == X.shape


@pytest.mark.parametrize("what", OF_PGD)
@pytest.mark.parametrize("attack", [pgd, pgd_l2])
def test_refused_by_pgd(attack: Any, what: str) -> None:
    changed, kind, says = OF_PGD[what]
    with pytest.raises(kind, match=re.compile(says, re.DOTALL)):
        attack(**PLAIN | changed)


@pytest.mark.parametrize(("changed", "kind", "says"), [
    ({"norm": "l1"}, ArgumentError, "norm='l1'"),
    ({"parts": ["apgd"]}, ArgumentError, "'apgd'.*Did you mean 'apgd-t'"),
    ({"x": X.double(), "model": nn.Linear(4, 3).double()}, DtypeError, "float64"),
])
def test_refused_by_autoattack(changed: dict[str, Any], kind: type, says: str) -> None:
    with pytest.raises(kind, match=says):
        autoattack(**PLAIN | changed)


@pytest.mark.parametrize(("make", "says"), [
    (lambda: Attack("pdg"), "Did you mean 'pgd'"),
    (lambda: Attack("pgd", step=0.1), "'step'.*Did you mean 'steps'"),
    (lambda: Attack("pgd", seed=1), "'seed' is no setting"),
    (lambda: Attack("fgsm", steps=3), "'steps' is no setting of fgsm"),
    (lambda: Attack("pgd", loss="dlt"), "Did you mean 'dlr'"),
    (lambda: Attack("pgd", restarts=2, random_start=False), "repeat the first"),
    (lambda: Attack("autoattack", norm="Linf"), "Did you mean 'linf'"),
    (lambda: Attack("autoattack", parts=["sqare"]), "Did you mean 'square'"),
    (lambda: Attack("autoattack", parts="square"), "parts='square': expected a list"),
    (lambda: Attack("autoattack", parts=[]), r"parts=\[\]: expected a list"),
])
def test_an_attack_with_wrong_settings_is_refused_when_it_is_made(make: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        make()


def test_attacks_are_values() -> None:
    assert Attack("pgd", steps=3, loss="margin") == Attack("pgd", loss="margin", steps=3)
    assert len({Attack("pgd"), Attack("pgd"), Attack("pgd", steps=3)}) == 2
    assert eval(repr(Attack("pgd", steps=3, loss="dlr"))) == Attack("pgd", steps=3, loss="dlr")
    assert (Attack("pgd").norm, Attack("pgd_l2").norm, Attack("autoattack", norm="l2").norm) == ("linf", "l2", "l2")


@pytest.mark.parametrize("attack", [Attack("autoattack"), Attack("pgd", restarts=2)])
def test_training_refuses_attacks_that_wait_for_the_device(attack: Attack) -> None:
    with pytest.raises(ArgumentError, match="training step"):
        adversarial_batch(MODEL, X, Y, attack, 0.1)


def test_training_refuses_what_it_can_see_without_looking_at_values() -> None:
    attack, eps = TRAINING_ATTACKS["pgd"]
    with pytest.raises(DtypeError, match="uint8"):
        adversarial_batch(MODEL, X.byte(), Y, attack, eps)
    with pytest.raises(ShapeError, match="one label per example"):
        adversarial_batch(MODEL, X, Y[:1], attack, eps)
    with pytest.raises(ArgumentError, match="eps=-1"):
        adversarial_batch(MODEL, X, Y, attack, -1)
    with pytest.raises(DtypeError, match=r"'pgd'.*TRAINING_ATTACKS"):
        adversarial_batch(MODEL, X, Y, "pgd", eps)  # type: ignore[arg-type]


def test_an_epsilon_that_is_a_tensor_is_answered_by_its_shape() -> None:
    with pytest.raises(ArgumentError, match=r"to 1e\+18\. Pass eps\.item\(\)"):
        pgd(MODEL, X, Y, torch.tensor(0.1))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="For several use accuracy_over_eps"):
        pgd(MODEL, X, Y, torch.tensor([0.1]))  # type: ignore[arg-type]


def test_epsilons_of_numpy_are_numbers() -> None:
    found = pgd(MODEL, X, Y, np.float32(0.25))  # type: ignore[arg-type]
    assert torch.equal(found, pgd(MODEL, X, Y, 0.25))


def test_autoattack_refuses_a_state_that_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"no folder .*nowhere"):
        autoattack(MODEL, X, Y, 0.1, state_path=tmp_path / "nowhere" / "state")


def test_autoattack_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyautoattack", None)
    with pytest.raises(ImportError, match=r"pip install pyautoattack"):
        autoattack(MODEL, X, Y, 0.1)


def test_importing_the_attacks_does_not_import_autoattack() -> None:
    import subprocess
    import sys

    code = "import sys, encouraging.attacks; print('pyautoattack' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_model_that_is_not_differentiable_is_named() -> None:
    def steps(x: Tensor) -> Tensor:
        return MODEL(x).round().detach()

    with pytest.raises(ArgumentError, match="differentiable"):
        pgd(steps, X, Y, 0.1)
