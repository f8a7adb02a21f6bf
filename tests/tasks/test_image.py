"""Images that live on the device: batches, augmentation, and what is measured."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from encouraging.data import Clock, load
from encouraging.engine import RunDir, Train
from encouraging.errors import CurveError, DataError
from encouraging.recipes import read_recipe
from encouraging.recipes.grid import jobs_of, train_job
from encouraging.tasks import ObjectiveConfig, StageSpec, TaskSpec, build_task
from encouraging.tasks.image_options import Options, metrics_of

CPU = torch.device("cpu")


def task(objective=None, **options):
    train = Train(epochs=1, lr=0.1, batch_size=256, shuffle=options.pop("shuffle", True))
    stage = StageSpec(train, objective=objective or ObjectiveConfig())
    return build_task("image", TaskSpec("digits", "digits_mlp", (stage,), 0, CPU, options=options))


def batches(it, epoch=1, start=0):
    return list(it.source(1).batches(Clock(1, epoch), start, 0, 1))


def predictions(it, model, final=False):
    with torch.no_grad():
        return list(it.predict(model.eval(), final, 0, 1))


def test_an_epoch_shows_every_example_once_and_resumes_anywhere():
    it = task()
    whole = batches(it, 3)
    assert len(whole) == it.source(1).length(Clock(1, 3)) == 5
    assert sorted(torch.cat([index for index, in whole]).tolist()) == list(range(1200))
    rest = batches(it, 3, start=2)
    assert all(torch.equal(a, b) for (a,), (b,) in zip(whole[2:], rest, strict=True))
    assert not torch.equal(whole[0][0], batches(it, 4)[0][0])
    assert batches(task(shuffle=False), 3)[0][0].tolist() == list(range(256))


def test_crop_and_flip_are_what_they_say():
    it = task(augment="crop_flip")
    index = torch.tensor([3, 4, 5])
    images = it.train[0][index]
    straight, middle = torch.zeros(3, dtype=torch.long), torch.full((3,), 4)
    assert torch.equal(it._cut((index, middle, middle, straight)), images)
    assert torch.equal(it._cut((index, middle, middle, straight + 1)), images.flip(3))
    shifted = it._cut((index, middle + 2, middle, straight))
    assert torch.equal(shifted[:, :, :-2], images[:, :, 2:])
    assert shifted[:, :, -2:].sum() == 0
    batch = batches(it)[0]
    assert [int(column.max()) for column in batch[1:]] == [8, 8, 1]


def test_without_a_bonus_the_loss_is_cross_entropy():
    it = task()
    model = it.build()
    batch = batches(it)[0]
    loss = it.loss(model, batch, it.objective(Clock()))
    images, labels = it.train[0][batch[0]], it.train[1][batch[0]]
    torch.testing.assert_close(loss.mean, F.cross_entropy(model((images.float() / 16 - 0.305) / 0.376), labels))
    assert loss.count == loss.sums["examples"] == 256


@pytest.mark.parametrize("settings", [{"loss": "mse", "link": "sigmoid", "bonus": True}, {"margin": 2},
                                      {"curve": "encouraging", "label_smoothing": 0.1},
                                      {"curve": "encouraging", "log_end": 1.0, "match_norm": True},
                                      {"curve": "focal", "gamma": 1.0, "reweight_from_epoch": 1}])
def test_every_kind_of_arm_has_a_finite_loss_and_gradient(settings):
    it = task(ObjectiveConfig(**settings))
    model = it.build()
    loss = it.loss(model, batches(it)[0], it.objective(Clock())).mean
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_epoch_chosen_on_validation_data_stands_beside_the_best_test_epoch(tmp_path):
    """The run's own lines say which epoch that is; the table names both."""
    recipe = read_recipe("digits", ["options={validation=300}", "train.epochs=6", "train.milestones=[]",
                                    "train.schedule=constant", "seeds=1"])
    job = jobs_of(recipe, str(tmp_path), arms=["ce"], device="cpu")[0]
    train_job(job, lambda line: None)
    run = RunDir(job.folder)
    lines, final = run.metrics(), run.final()
    best = max(line["val_accuracy"] for line in lines)
    first = next(line for line in lines if line["val_accuracy"] == best)
    assert final["chosen"] == {"accuracy": first["accuracy"], "epoch": first["epoch"]}
    assert final["best_accuracy"] >= final["chosen"]["accuracy"]
    shown = [metric.path for metric in metrics_of(Options(validation=300)) if metric.shown]
    assert shown[:4] == ["accuracy", "val_accuracy", "chosen.accuracy", "best_accuracy"]


def test_what_is_measured_is_the_whole_test_set():
    it = task(validation=200)
    model = it.build().eval()
    images, labels = load("digits", "test")
    logits = model((images.float() / 16 - 0.305) / 0.376)
    numbers = it.evaluate(predictions(it, model))
    assert numbers["accuracy"] == pytest.approx(100 * (logits.argmax(1) == labels).float().mean().item())
    assert numbers["test_loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)
    assert "val_accuracy" in numbers
    assert len(it.train[0]) == 1000
    last = {"batch_accuracy": 90.0, "lines": [{"epoch": 1, **numbers}]}
    found = it.conclude(predictions(it, model, final=True), last)
    more, kept = found.numbers, found.tensors
    torch.testing.assert_close(kept["logits"], logits)
    assert more["excess_risk"] == pytest.approx(more["train_accuracy"] - numbers["accuracy"])
    right = kept["logits"].topk(2).values
    positive = (kept["logits"].argmax(1) == labels)
    assert torch.allclose(torch.tensor(more["margin"]["mean"]), _margins(kept["logits"], labels).mean())
    assert ((_margins(kept["logits"], labels) > 0) == positive).all()
    assert right.shape == (597, 2)


def _margins(logits, labels):
    return torch.stack([row[label] - torch.cat([row[:label], row[label + 1 :]]).max()
                        for row, label in zip(logits, labels.tolist(), strict=True)])


def test_a_wrong_curve_is_refused_before_anything_is_trained():
    with pytest.raises((ValueError, CurveError), match="no curve is called"):
        ObjectiveConfig(curve="nothing")


def test_near_and_far_sets_are_named_and_made_to_fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far_images.py").write_text(
        "import numpy\n\n\ndef photos():\n"
        "    return {'test': (numpy.full((6, 3, 20, 30), 255, dtype=numpy.uint8), numpy.zeros(6, dtype=int))}\n")
    it = task(ood_near=("digits",), ood_far=("far_images.py:photos",))
    assert torch.equal(it.ood["digits"], it.test[0])
    assert it.ood["far_images.py:photos"].shape == (6, 1, 8, 8)
    assert it.ood["far_images.py:photos"].unique().tolist() == [16]  # white, as the digits' bytes have it
    found = it.conclude(predictions(it, it.build(), final=True), {"batch_accuracy": 90.0}).numbers["ood"]
    assert found["digits"]["msp"]["auroc"] == pytest.approx(50, abs=0.1)
    assert found["nearood"] == found["digits"]
    assert found["farood"] == found["far_images.py:photos"]
    assert "ood.digits.min_energy.auroc" in [metric.path for metric in it.metrics]


def test_logit_norm_is_cross_entropy_on_logits_of_one_length():
    it = task(ObjectiveConfig(logit_norm=0.5))
    model = it.build()
    batch = batches(it)[0]
    logits = model(it._floats(it.train[0][batch[0]]))
    expected = F.cross_entropy(logits / logits.norm(dim=1, keepdim=True) / 0.5, it.train[1][batch[0]])
    torch.testing.assert_close(it.loss(model, batch, it.objective(Clock())).mean, expected)
    assert it.objective(Clock()) != task().objective(Clock())


@pytest.mark.parametrize("held", [1200, 5000])
def test_validation_data_leaves_something_to_train_on(held):
    with pytest.raises(DataError, match=rf"options.validation = {held}: digits has 1200 training images"):
        task(validation=held)
    assert len(task(validation=1199).train[1]) == 1


@pytest.mark.parametrize("ood", [(), ("digits",)])
def test_the_size_of_what_is_kept_is_known_before(ood):
    it = task(ood=ood)
    kept = it.conclude(predictions(it, it.build(), final=True), {"lines": []}).tensors
    assert it.kept_bytes() == sum(tensor.nbytes for tensor in kept.values())
