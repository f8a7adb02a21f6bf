"""Arms for long tails: margins, balanced softmax, weights that start late, the authors' divisors, a second stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import functional as F

from encouraging import LDAMLoss, curves
from encouraging.data import Clock
from encouraging.errors import RecipeError
from encouraging.imbalance import effective_weights
from encouraging.metrics import read, shot_accuracy
from encouraging.recipes import Recipe, check_recipe, read_recipe
from encouraging.tasks import ObjectiveConfig, build_task
from encouraging.tasks.class_shift import ClassShift
from task_laws import train
from tiny_images import IMBALANCE, any_size, write_cifar

COUNTS = torch.tensor([500, 60, 5])
CLASSES = 10


def batch(seed: int = 0, rows: int = 64) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, generator=draw) * 4, torch.randint(3, (rows,), generator=draw)


@pytest.fixture
def tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """CIFAR-10 with forty images, of which the long tail keeps four of the first class and one of the last."""
    write_cifar(tmp_path / "data", train=40, test=40)
    monkeypatch.setenv("ENCOURAGING_DATA", str(tmp_path / "data"))
    torch.set_num_threads(1)
    with any_size():
        yield tmp_path


def recipe(arms: dict[str, object], **more: object) -> Recipe:
    tree = {"task": "image", "data": "cifar10-lt", "model": "resnet20", "seeds": 1, "arms": arms,
            "options": {"imbalance": IMBALANCE, "shots": {"many": 3, "few": 2}},
            "train": {"epochs": 3, "lr": 0.05, "momentum": 0.9, "batch_size": 8}, **more}
    return check_recipe(tree, "mine", "mine")


@pytest.mark.parametrize("name", ["conservative", "normal", "aggressive"])
def test_the_authors_divisors_are_their_formula(name: str) -> None:
    r"""Cross-entropy is divided by the weights of the batch and the bonus by its examples:

    .. math:: \frac{\sum_i w_{y_i} (-\log p_i)}{\sum_i w_{y_i}} + \frac{1}{N} \sum_i w_{y_i} \, b(p_i)

    with the normal bonus b = log(max(1 - p, 1e-5)); its tangent from p = 0.5 on (conservative); and from p = 0.5 on,
    less log 0.5, where it is aggressive.
    """
    def bonus(p: Tensor) -> Tensor:
        log = (1 - p).clamp(min=1e-5).log()
        half = torch.tensor(0.5, dtype=p.dtype).log()
        return {"normal": log, "aggressive": torch.where(p >= 0.5, log - half, 0.0),
                "conservative": torch.where(p <= 0.5, log, half - (p - 0.5) / 0.5)}[name]

    keys = {"conservative": {"log_end": 0.5}, "normal": {}, "aggressive": {"start": 0.5}}[name]
    logits, target = batch()
    logits = logits.double().requires_grad_()
    weight = effective_weights(COUNTS).double()
    w, p = weight[target], logits.softmax(-1).gather(1, target[:, None])[:, 0]
    formula = (w * -p.log()).sum() / w.sum() + (w * bonus(p)).mean()
    arm = ObjectiveConfig(curve=name, reweight_from_epoch=5, bonus_from_epoch=5, bonus_divisor="examples", **keys)
    ours = arm.at(Clock(1, 5)).loss(logits, target, weight).mean
    torch.testing.assert_close(ours, formula)
    torch.testing.assert_close(torch.autograd.grad(ours, logits), torch.autograd.grad(formula, logits))
    # Before the switch there is neither weight nor bonus.
    torch.testing.assert_close(arm.at(Clock(1, 4)).loss(logits, target, weight).mean, F.cross_entropy(logits, target))


def test_on_a_long_tail_their_bonus_counts_for_a_fifth_of_ours() -> None:
    """Under the training frequencies of CIFAR-100-LT the mean weight, by which the two differ, is about 0.2."""
    from encouraging.imbalance import exponential_counts

    counts = exponential_counts(500, 100, 100)
    mean = float((effective_weights(counts) * counts / counts.sum()).sum())
    assert mean == pytest.approx(0.203, abs=0.001)


@pytest.mark.parametrize("key", [{"match_norm": True}, {"divisor": "examples"}, {"reweight_from_epoch": None}])
def test_their_divisors_need_class_weights_and_nothing_else(key: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="bonus_divisor = 'examples' is for class weights"):
        ObjectiveConfig(**{"curve": "normal", "reweight_from_epoch": 5, "bonus_divisor": "examples", **key})


def test_the_strength_of_weights_that_nobody_asks_for_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reweight_beta = 0\.9 without reweight_from_epoch"):
        ObjectiveConfig(curve="normal", reweight_beta=0.9)
    assert ObjectiveConfig(curve="normal", reweight_beta=0.9, reweight_from_epoch=1).reweight_beta == 0.9
    assert ObjectiveConfig(curve="normal", reweight_beta=0.9999)  # as configs of runs name the default


def test_weights_are_those_of_the_effective_number_and_start_when_the_arm_says(tail: Path) -> None:
    ours = recipe({"drw": {"reweight_from_epoch": 3}})
    task = build_task("image", ours.task_spec("drw"))
    model = task.build()
    (index,), *_ = task.source(1).batches(Clock(), 0, 0, 1)
    labels = task.train[1][index]
    logits = model(task._floats(task.train[0][index]))
    weight = effective_weights(torch.tensor([4, 3, 2, 2, 2, 1, 1, 1, 1, 1]))
    for epoch, expected in ((2, None), (3, weight)):
        loss = task.loss(model, (index,), task.objective(Clock(1, epoch))).mean
        torch.testing.assert_close(loss, F.cross_entropy(logits, labels, expected))


def test_ldam_is_the_module_s_and_evaluations_see_the_scale_alone() -> None:
    logits, target = batch()
    arm = ObjectiveConfig(ldam_margin=0.5, logit_scale=30.0)
    shift = ClassShift(arm, COUNTS)
    ours = arm.at(Clock()).loss(shift(logits, target), target).mean
    torch.testing.assert_close(ours, LDAMLoss(COUNTS, max_margin=0.5, scale=30.0)(logits, target))
    assert torch.equal(shift.evaluated(logits), 30 * logits)


def test_balanced_softmax_is_cross_entropy_with_the_prior_added_in_training_only() -> None:
    logits, target = batch()
    shift = ClassShift(ObjectiveConfig(balanced_softmax=True), COUNTS)
    prior = COUNTS / COUNTS.sum()
    weighted = prior * logits.exp()
    expected = -(weighted.gather(1, target[:, None])[:, 0] / weighted.sum(1)).log().mean()
    torch.testing.assert_close(F.cross_entropy(shift(logits, target), target), expected)
    assert torch.equal(shift.evaluated(logits), logits)


def test_an_arm_without_any_of_it_sees_its_own_logits() -> None:
    logits, target = batch()
    assert ClassShift(ObjectiveConfig(), torch.tensor([3, 0, 1]))(logits, target) is logits


def test_a_long_tail_is_measured_by_groups_and_with_adjusted_logits(tail: Path) -> None:
    folder = train(recipe({"ce": {}}), tail / "runs", "ce")
    final = json.loads((folder / "final.json").read_text())
    kept = safetensors.torch.load_file(folder / "logits.safetensors")
    counts = torch.tensor([4, 3, 2, 2, 2, 1, 1, 1, 1, 1])
    readings = read(kept["logits"], kept["labels"])
    assert {f"shots.{name}": value for name, value in shot_accuracy(readings, counts, 3, 2).items()} == {
        key: final[key] for key in ("shots.many", "shots.medium", "shots.few")}
    assert final["shots"] == shot_accuracy(readings, counts, 3, 2)
    adjusted = kept["logits"] - (counts / counts.sum()).log()
    assert final["adjusted"]["accuracy"] == pytest.approx(
        100 * (adjusted.argmax(1) == kept["labels"]).double().mean().item())
    assert set(final["adjusted"]["shots"]) == {"many", "medium", "few"}
    assert {"best_shots.many", "best_shots.medium", "best_shots.few"} <= final.keys()
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["shots.few"] == final["shots.few"]


def test_a_group_without_classes_has_no_number(tail: Path) -> None:
    ours = recipe({"ce": {}}, options={"imbalance": IMBALANCE, "shots": {"many": 0, "few": 0}})
    task = build_task("image", ours.task_spec("ce"))
    with torch.no_grad():
        numbers = task.evaluate(list(task.predict(task.build().eval(), False, 0, 1)))
    assert [key for key in numbers if key.startswith("shots")] == ["shots.many"]


def stage(**more: object) -> dict[str, object]:
    return {"train": {"epochs": 2, "lr": 0.2, "momentum": 0.9, "weight_decay": 1e-2, "batch_size": 20, **more},
            "sampling": {"kind": "class_balanced", "per_class": 2}, "reset": ["head"], "freeze": ["body"]}


def test_a_second_stage_leaves_the_features_as_they_are_bit_for_bit(tail: Path) -> None:
    ours = recipe({"ce": {}, "crt": {"after": "ce", "stages": [stage()]},
                   "moving": {"after": "ce", "stages": [stage(freeze_norm=False)]}})
    weights = {}
    for arm in ours.arms:
        weights[arm] = safetensors.torch.load_file(train(ours, tail / "runs", arm) / "weights.safetensors")
    body = [name for name in weights["ce"] if name.startswith("body.")]
    averages = [name for name in body if "running" in name or "tracked" in name]
    assert len(averages) == 3 * 19
    assert [name for name in body if not torch.equal(weights["crt"][name], weights["ce"][name])] == []
    # With the authors' moving statistics these are all that changes.
    changed = [name for name in body if not torch.equal(weights["moving"][name], weights["ce"][name])]
    assert changed == averages
    for arm in ("crt", "moving"):
        assert not torch.equal(weights[arm]["head.weight"], weights["ce"]["head.weight"])


def test_its_batches_have_every_class_equally_often(tail: Path) -> None:
    ours = recipe({"crt": {"stages": [stage()]}})
    task = build_task("image", ours.task_spec("crt"))
    batches = [task.train[1][index] for index, in task.source(1).batches(Clock(), 0, 0, 1)]
    assert sum(map(len, batches)) == len(task.train[1]) == 18
    counted = torch.bincount(torch.cat(batches), minlength=CLASSES)
    assert sorted(set(counted.tolist())) == [0, 2]  # 18 draws, two at a time: nine of the ten classes
    assert torch.equal(batches[0][::2], batches[0][1::2])


@pytest.mark.parametrize(("change", "words"), [
    ({"data": "cifar10"}, "only cifar10-lt, cifar100-lt are long-tailed"),
    ({"data": "folder:elsewhere"}, "expected a long-tailed dataset such as cifar100-lt"),
    ({"options": {"shots": {"many": 10, "few": 20}}}, "expected few to be at most many"),
    ({"options": {"shot": {}}}, "Did you mean 'shots'"),
    ({"options": {"imbalance": 0.5}}, "imbalance"),
    ({"options": {"imbalance": True}}, "options.imbalance: true: expected a number"),
    ({"options": {"imbalance": 5001}}, "imbalance=5001 for cifar10-lt: expected a number from 1 to 5000"),
    ({"data": "cifar100-lt", "options": {"imbalance": 1e9}}, "expected a number from 1 to 500"),
    ({"arms": {"a": {"ldam_margin": 0.5, "logit_scale": 30.0}}}, r"which those of resnet20 are not.*cosine = true"),
    ({"arms": {"a": {"ldam_margin": 0.5, "model_options": {"cosine": False}}}}, "needs logits that are cosines"),
    ({"arms": {"two": {"logit_scale": 30.0, "stages": [{}, {"objective": {"curve": "cross_entropy"}}]}}},
     "logit_scale differs between the stages"),
    ({"arms": {"a": {"curve": "normal", "reweight_from_epoch": 2, "bonus_divisor": "examples"}},
      "train": {"epochs": 1, "lr": 0.1, "accumulate": 2}}, "bonus_divisor with accumulate = 2"),
    ({"arms": {"a": {"link": "sigmoid", "balanced_softmax": True}}}, "takes no balanced_softmax"),
    ({"arms": {"a": {"loss": "mse", "ldam_margin": 0.5}}}, "ldam_margin"),
])
def test_what_does_not_go_together_is_refused_before_anything_is_read(change: dict[str, object], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        recipe(**{"arms": {"ce": {}}, **change})


def test_the_largest_possible_imbalance_leaves_one_image_in_the_rarest_class() -> None:
    assert recipe({"ce": {}}, options={"imbalance": 5000}).options == {"imbalance": 5000}


def test_margins_on_cosines_and_on_a_network_of_one_s_own_are_taken() -> None:
    recipe({"ldam": {"ldam_margin": 0.5, "logit_scale": 30.0, "model_options": {"cosine": True}}})
    recipe({"ldam": {"ldam_margin": 0.5, "logit_scale": 30.0}}, model=f"{__file__}:own_network")


def own_network(classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, classes))


@pytest.mark.parametrize("name", ["cifar100-lt", "cifar10-lt"])
def test_the_recipes_have_the_settings_of_the_literature(name: str) -> None:
    ours = read_recipe(name)
    train = ours.train
    assert (ours.model, train.epochs, train.batch_size, train.lr, train.momentum) == ("resnet32", 200, 128, 0.1, 0.9)
    assert (train.weight_decay, train.warmup_epochs, train.milestones, train.gamma) == (2e-4, 5, (161, 181), 0.01)
    assert ours.options == {"augment": "crop_flip", "imbalance": 100, "shots": {"many": 100, "few": 20}}
    for arm, own in ours.arms.items():
        if "drw" in arm:
            assert (own.reweight_from_epoch, own.reweight_beta) == (161, 0.9999)
        assert own.bonus_from_epoch == (161 if "late" in arm or "authors" in arm else 1)
        if "ldam" in arm:
            assert (own.ldam_margin, own.logit_scale, own.model_options) == (0.5, 30.0, {"cosine": True})
        if own.after is not None:
            (second,) = own.stages
            assert second.train is not None
            assert (second.train.epochs, second.train.lr, second.train.batch_size) == (30, 0.2, 512)
            assert (second.train.schedule, second.train.weight_decay) == ("cosine", 1e-4)
            assert (second.sampling.kind, second.sampling.per_class) == ("class_balanced", 4)
            assert (second.reset, second.freeze) == (("head",), ("body",))
            assert second.train.freeze_norm == ("moving" not in arm)
    assert ours.arms["aggressive"].at(Clock()).curve == curves.aggressive(0.5)
    assert ours.arms["conservative"].at(Clock()).curve == curves.conservative(0.5)
