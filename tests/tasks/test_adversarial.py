"""Adversarial training: what a step sees, that it resumes, and what it is good for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from encouraging.attacks import TRAINING_ATTACKS, Attack, adversarial_batch, fgsm
from encouraging.commands.run import run_recipe
from encouraging.data import Clock
from encouraging.engine.files import read_json
from encouraging.errors import RecipeError
from encouraging.models.normalised import Normalised
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task
from encouraging.tasks.image import ImageTask

QUICK = ("train.epochs=3", "train.milestones=[]", "train.schedule=constant")


def task(attack: str | None, *overrides: str, arm: str = "ce") -> ImageTask:
    own = [f"options.adversarial={attack}"] if attack else []
    found = build_task("image", read_recipe("digits", [*own, *overrides]).task_spec(arm))
    assert isinstance(found, ImageTask)
    return found


def batches(it: ImageTask, epoch: int = 1, start: int = 0) -> list[tuple[torch.Tensor, ...]]:
    return list(it.source(1).batches(Clock(1, epoch), start, 0, 1))


def run(out: Path, *overrides: str, arm: str = "ce", device: str = "cpu") -> Path:
    code = run_recipe("digits", arms=(arm,), seeds="1", overrides=[*QUICK, *overrides], device=device, threads=1,
                      jobs=1, out=out)
    assert code == 0
    return out / "digits" / arm / "seed0"


@pytest.mark.parametrize("attack", ["fgsm", "pgd", "pgd_l2"])
def test_a_step_learns_from_images_of_the_ball_with_the_papers_settings(attack: str) -> None:
    it = task(attack)
    model = it.build()
    index, noise = batches(it)[0]
    clean, target = it.unit(it.train[0][index]), it.train[1][index]
    seen = it._training_images(model, (index, noise), target)
    moved = (seen - it.shift) / it.unit_scale
    how, eps = TRAINING_ATTACKS[attack]
    length = (moved - clean).flatten(1).norm(dim=1) if attack == "pgd_l2" else (moved - clean).abs().flatten(1).amax(1)
    assert float(length.max()) <= eps + 1e-5
    assert float(length.min()) > 0
    assert float(moved.min()) > -1e-5
    assert float(moved.max()) < 1 + 1e-5
    expected = adversarial_batch(Normalised(model, it.unit_scale, it.shift), clean, target,
                                 Attack(attack, **how.settings), eps, index=noise)
    torch.testing.assert_close(seen, it.normalise(expected))
    loss = it.loss(model, (index, noise), it.objective(Clock()))
    torch.testing.assert_close(loss.mean, torch.nn.functional.cross_entropy(model(it.normalise(expected)), target))


def test_random_starts_differ_between_epochs_and_resume_anywhere() -> None:
    it = task("pgd")
    whole = batches(it, 2)
    rest = batches(it, 2, start=5)
    assert all(torch.equal(a, b) for one, two in zip(whole[5:], rest, strict=True)
               for a, b in zip(one, two, strict=True))
    again = {int(i): int(n) for index, noise in batches(it, 3) for i, n in zip(index, noise, strict=True)}
    assert all(again[int(i)] != int(n) for i, n in zip(*whole[0], strict=True))


def test_the_order_of_the_images_is_that_of_training_without_attacks() -> None:
    plain, attacked = task(None, "options.augment=crop_flip"), task("pgd", "options.augment=crop_flip")
    for one, two in zip(batches(plain), batches(attacked), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=False))
        assert len(two) == len(one) + 1


def test_the_final_attack_changes_the_pixels_of_the_data_also_where_they_are_enlarged() -> None:
    it = task("fgsm", "options.augment=resized_crop", "options.train_size=12", "model=resnet20")
    model = it.build().eval()
    logits = torch.cat([one["logits"] for one in it.predict(model, True, 0, 1) if one["set"] == "attacked"])
    x, y = it.attacked(it.test[0]), it.test[1]
    assert x.shape[2:] == (8, 8)
    unit = it.attacked_model(model)
    expected = unit(fgsm(unit, x, y, TRAINING_ATTACKS["fgsm"][1], loss="margin"))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def test_the_gradients_of_the_attack_do_not_reach_the_weights() -> None:
    it = task("pgd")
    model = it.build()
    batch = batches(it)[0]
    it._training_images(model, batch, it.train[1][batch[0]])
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training


def test_runs_are_reproduced_and_measured_under_attack(tmp_path: Path) -> None:
    one, two = (run(tmp_path / name, "options.adversarial=pgd") for name in ("one", "two"))
    assert (one / "final.json").read_bytes() == (two / "final.json").read_bytes()
    final, diagnosis = read_json(one / "final.json"), read_json(one / "diagnosis.json")
    assert final["attacked"]["accuracy"] <= final["accuracy"]
    assert final["attacked"]["margin"]["median"] < final["margin"]["median"]
    assert diagnosis["attacked"]["attack"] == "pgd_margin"
    assert diagnosis["attacked"]["eps"] == 0.3
    plain = read_json(run(tmp_path / "plain") / "final.json")
    assert "attacked" not in plain


def test_models_trained_on_attacks_resist_them_better(tmp_path: Path) -> None:
    eps = "options.adversarial={attack='pgd',eps=0.1,steps=5,step_size=0.04}"
    hardened = read_json(run(tmp_path / "hardened", eps) / "final.json")
    weak = "options.adversarial={attack='pgd',eps=0.1,steps=1,step_size=1e-6}"  # training images hardly change
    soft = read_json(run(tmp_path / "soft", weak) / "final.json")
    assert hardened["attacked"]["accuracy"] > soft["attacked"]["accuracy"] + 5


@pytest.mark.parametrize(("given", "words"), [
    ("options.adversarial=pdg", "'fgsm', 'pgd' or 'pgd_l2'"),
    ("options.adversarial={attack='pgd',step=3}", "options.adversarial.step: unknown key. Did you mean 'steps'?"),
    ("options.adversarial={attack='fgsm',steps=3}", "one step of length eps"),
    ("options.adversarial={attack='pgd',eps=0}", "greater than 0"),
    ("options.adversarial={attack='fgsm',eps=8}", "a change above 1 allows any image; divide sizes in grey"),
    ("arms.ce.options={augmentt='none'}", "Did you mean 'augment'?"),
])
def test_what_is_wrong_with_the_options_is_named(given: str, words: str) -> None:
    with pytest.raises(RecipeError, match="options") as error:
        read_recipe("digits", [given])
    assert words in str(error.value)


def test_an_arm_has_options_of_its_own_and_they_belong_to_its_config() -> None:
    recipe = read_recipe("digits", ["arms.el_1.options={adversarial='fgsm'}", "options={validation=10}"])
    assert recipe.config("el_1", 0)["options"] == {"validation": 10, "adversarial": "fgsm"}
    assert recipe.config("ce", 0)["options"] == {"validation": 10}
    assert [metric.path for metric in recipe.needs("el_1").metrics if metric.path.startswith("attacked")]
    assert "options" not in recipe.config("el_1", 0)["objectives"][0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("attack", ["fgsm", "pgd", "pgd_l2"])
def test_on_a_gpu_the_step_is_recorded_and_says_what_the_eager_one_does(tmp_path: Path, attack: str) -> None:
    own = f"options.adversarial={attack}"
    recorded, eager = (run(tmp_path / name, own, f"train.cuda_graph={name}", device="cuda")
                       for name in ("true", "false"))
    assert read_json(recorded / "timing.json")["cuda_graph"] == "recorded"
    losses = [read_json(folder / "final.json")["train_loss"] for folder in (recorded, eager)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
