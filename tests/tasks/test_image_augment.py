"""RandomResizedCrop and mixup in a task: what a batch holds, what a model sees, and that both resume anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import transforms
from torchvision.transforms import functional as T

from encouraging import curve_loss, curves
from encouraging.data import Clock
from encouraging.errors import RecipeError
from encouraging.recipes import check_recipe, read_recipe
from encouraging.tasks import build_task
from encouraging.tasks.image_augment import Mixed, MixedSource
from tiny_images import any_size, write_cifar


class Seen(nn.Module):
    """A model that keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 10)
        self.images = torch.empty(0)

    def forward(self, images: Tensor, target: Tensor | None = None) -> Tensor:
        self.images = images
        return self.head(images.mean((2, 3)))


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    write_cifar(tmp_path, train=50, test=20)
    monkeypatch.setenv("ENCOURAGING_DATA", str(tmp_path))

    def make(arm: dict[str, Any] | None = None, **options: Any) -> Any:
        tree = {"task": "image", "data": "cifar10", "model": "resnet20", "seeds": 1, "arms": {"a": arm or {}},
                "options": options, "train": {"epochs": 3, "lr": 0.1, "batch_size": 16}}
        return build_task("image", check_recipe(tree, "mine", "mine").task_spec("a"))
    with any_size():
        yield make


def batches(task: Any, epoch: int = 1, start: int = 0, rank: int = 0, world: int = 1) -> list[tuple[Tensor, ...]]:
    return list(task.source(1).batches(Clock(1, epoch), start, rank, world))


def same(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def as_model_sees(images: Tensor) -> Tensor:
    return T.normalize(images / 255, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


def test_a_training_batch_is_torchvision_s_resized_crop_of_the_boxes_that_were_drawn(make: Any) -> None:
    task, model = make(augment="resized_crop", train_size=48), Seen()
    index, boxes, flip = batches(task)[0]
    task.loss(model, (index, boxes, flip), task.objective(Clock()))
    for image, box, flipped, seen in zip(task.train[0][index], boxes.tolist(), flip, model.images, strict=True):
        cut = T.resized_crop(image, *box, [48, 48], antialias=True)
        expected = as_model_sees((T.hflip(cut) if flipped else cut).float())
        assert (seen - expected).abs().max() < 1.5 / 255 / 0.24  # a grey level
    assert boxes[:, 2:].float().mean() < 32
    assert 0 < int(flip.sum()) < len(flip)


def test_test_images_are_resized_and_cut_as_torchvision_does(make: Any) -> None:
    for size, resize in ((224, 256), (112, 128), (32, 37), (48, 60)):
        chosen = {"test_resize": resize} if size == 48 else {}
        task, model = make(augment="resized_crop", train_size=size, **chosen), Seen()
        pieces = list(task.predict(model, False, 0, 1))
        expected = transforms.Compose([transforms.Resize(resize), transforms.CenterCrop(size)])(task.test[0])
        assert len(pieces) == 1
        assert (model.images - as_model_sees(expected.float())).abs().max() < 1.5 / 255 / 0.24


def test_fewer_images_are_evaluated_at_once_where_they_are_large(make: Any) -> None:
    assert [make(augment="resized_crop", train_size=size).piece for size in (32, 64, 112, 224)] == [
        2000, 2000, 1000, 250]
    assert make().piece == 2000


def test_crops_differ_by_epoch_and_follow_from_seed_and_position(make: Any) -> None:
    task = make(augment="resized_crop", train_size=32)
    whole = batches(task, 2)
    assert all(same(*pair) for pair in zip(whole[2:], batches(task, 2, start=2), strict=True))
    assert not torch.equal(whole[0][1], batches(task, 3)[0][1])
    shares = [batches(task, 2, rank=rank, world=2) for rank in (0, 1)]
    for number, batch in enumerate(whole):
        assert same(tuple(column[1::2] for column in batch), shares[1][number])


def test_mixup_blends_images_and_labels_by_one_fraction_per_batch(make: Any) -> None:
    task, model = make({"curve": "encouraging", "log_end": 0.75}, mixup=0.4, augment="crop_flip"), Seen()
    batch = batches(task)[0]
    mixed = Mixed.of(batch)
    assert sorted(mixed.other[0].tolist()) == sorted(mixed.own[0].tolist())
    loss = task.loss(model, batch, task.objective(Clock()))
    own, other = (task._floats(task._cut(part)) for part in (mixed.own, mixed.other))
    share = float(mixed.fraction)
    torch.testing.assert_close(model.images, share * own + (1 - share) * other)
    labels, partners = (task.train[1][part[0]] for part in (mixed.own, mixed.other))
    logits = model.head(model.images.mean((2, 3)))
    curve = curves.conservative(0.75)
    # The loss of soft targets is linear in them: it is the mixture of the losses on the two labels.
    expected = share * curve_loss(logits, labels, curve) + (1 - share) * curve_loss(logits, partners, curve)
    torch.testing.assert_close(loss.mean, expected)
    right = [(logits.argmax(1) == label).float().sum() for label in (labels, partners)]
    torch.testing.assert_close(loss.sums["correct"], share * right[0] + (1 - share) * right[1])
    assert (loss.count, loss.sums["examples"]) == (16, 16)


def test_mixup_is_the_same_from_any_batch_on_and_on_any_number_of_ranks(make: Any) -> None:
    task = make(mixup=0.4, augment="resized_crop", train_size=32)
    whole = batches(task, 2)
    assert len(whole) == task.source(1).length(Clock(1, 2)) == 4
    assert all(same(*pair) for pair in zip(whole[1:], batches(task, 2, start=1), strict=True))
    for rank in (0, 1):
        for batch, part in zip(whole, batches(task, 2, rank=rank, world=2), strict=True):
            assert same(tuple(column[rank::2] for column in batch[:-1]), part[:-1])
            assert batch[-1] == part[-1]
    assert not torch.equal(whole[0][-1], batches(task, 3)[0][-1])


def test_the_fractions_are_of_the_beta_distribution(make: Any) -> None:
    class Long:
        seed, device = 0, torch.device("cpu")

        def length(self, clock: Clock) -> int:
            return 2000

        def batches(self, clock: Clock, start: int, rank: int, world: int) -> Any:
            return iter([(torch.zeros(1),)] * 2000)

    drawn = [float(batch[-1]) for batch in MixedSource(Long(), 0.3).batches(Clock(), 0, 0, 1)]  # type: ignore[arg-type]
    assert stats.kstest(drawn, stats.beta(0.3, 0.3).cdf).pvalue > 1e-3


def test_without_mixup_and_crops_a_batch_is_what_it_was(make: Any) -> None:
    assert [len(batch) for batch in batches(make())] == [1] * 4
    assert [len(batch) for batch in batches(make(augment="crop_flip"))] == [4] * 4
    task, model = make(), Seen()
    (index,) = batches(task)[0]
    loss = task.loss(model, (index,), task.objective(Clock())).mean
    torch.testing.assert_close(loss, F.cross_entropy(model(as_model_sees(task.train[0][index].float())),
                                                     task.train[1][index]))


def test_the_energy_of_a_class_on_its_own_examples_is_kept(make: Any) -> None:
    task = make(profiles=("cat", "dog"))
    with torch.no_grad():
        end = task.conclude(list(task.predict(task.build().eval(), True, 0, 1)), {})
    logits, labels = end.tensors["logits"], end.tensors["labels"]
    for name, number in (("cat", 3), ("dog", 5)):
        assert end.numbers["class_energy"][name] == pytest.approx(-logits[labels == number, number].mean().item())
    assert end.diagnosis["class_names"][3] == "cat"
    assert end.diagnosis["profiled"] == [3, 5]


@pytest.mark.parametrize(("arm", "options", "words"), [
    ({}, {"augment": "resized_crop"}, "'resized_crop' needs train_size, the side of the crops"),
    ({}, {"train_size": 32}, "'resized_crop' needs train_size, the side of the crops"),
    ({}, {"augment": "resized_crop", "train_size": 32, "test_resize": 31}, "at least train_size"),
    ({}, {"augment": "resize_crop"}, "options.augment"),
    ({}, {"mixup": -1.0}, "options.mixup"),
    ({}, {"mixup": 1e308}, "options.mixup"),
    ({"margin": 2}, {"mixup": 0.2}, "mixup = 0.2 with margin: a mixed image has two labels"),
    ({"reweight_from_epoch": 2}, {"mixup": 0.2}, "with reweight_from_epoch"),
    ({"loss": "mse"}, {"mixup": 0.2}, "with loss"),
    ({}, {"profiles": ["cta"]}, "no class called 'cta'.*Did you mean 'cat'"),
])
def test_options_that_cannot_be_are_refused_in_words(make: Any, arm: dict[str, Any], options: dict[str, Any],
                                                     words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        make(arm, **options)


@pytest.mark.parametrize(("network", "model", "batch", "lr"), [("resnet50", "torchvision/resnet50", 64, 0.025),
                                                               ("efficientnet-b0", "efficientnet_b0", 32, 0.0125)])
@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_the_recipes_have_the_paper_s_settings(data: str, network: str, model: str, batch: int, lr: float) -> None:
    recipe, quick = read_recipe(f"{data}-{network}"), read_recipe(f"{data}-{network}-quick")
    train = recipe.train
    assert (recipe.data, recipe.model, train.batch_size, train.lr) == (data, model, batch, lr)
    assert (train.epochs, train.milestones, train.gamma) == (90, (30, 60, 80), 0.1)
    assert (train.momentum, train.nesterov, train.weight_decay) == (0.9, True, 1e-4)
    assert (recipe.options["augment"], recipe.options["train_size"]) == ("resized_crop", 224)
    assert recipe.arms["el_075"].at(Clock()).curve == curves.conservative(0.75)
    changed = {key for key, value in quick.train.config().items() if value != train.config().get(key)}
    assert changed == {"epochs", "milestones", "probe_every", "evaluate_all_from"}
    assert (quick.train.epochs, quick.train.milestones) == (30, (10, 20, 27))
    for train in (recipe.train, quick.train):  # the best epoch, which is reported, comes after two falls of the rate
        assert train.evaluate_all_from == train.milestones[1]
    assert quick.options == recipe.options | {"train_size": 112}
    assert quick.model == model


@pytest.mark.parametrize("name", ["cifar10-learning-rate", "cifar100-learning-rate", "cifar10-representation",
                                  "cifar10-label-smoothing"])
def test_a_quick_twin_has_the_same_arms_and_optimiser_on_a_smaller_network(name: str) -> None:
    recipe, quick = read_recipe(name), read_recipe(f"{name}-quick")
    assert (quick.model, quick.options["train_size"], quick.train.epochs) == ("resnet18", 32, 30)
    assert quick.train.evaluate_all_from == quick.train.milestones[1]
    assert set(recipe.arms) <= set(quick.arms)
    for arm in recipe.arms:
        assert recipe.arms[arm].model_dump() == quick.arms[arm].model_dump()
    for key in ("lr", "batch_size", "momentum", "nesterov", "weight_decay", "gamma"):
        assert getattr(recipe.train, key) == getattr(quick.train, key)
    assert [claim.model_dump() for claim in recipe.claims] == [claim.model_dump() for claim in quick.claims]
