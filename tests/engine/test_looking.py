"""What looks at a run does not change it: evaluations, probes, the trace of the first updates, the conclusion."""

from __future__ import annotations

import json
import signal

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import get_total_norm

from encouraging.data import Clock
from encouraging.engine import Conclusion, Interrupted, Metric, ParameterGroup, RunDir, Train, execute, load_weights
from encouraging.engine.random_state import seed_everything
from encouraging.errors import RunError
from toy_tasks import Blobs, run_spec


class Restless(Blobs):
    """Batch norm and dropout, which a careless look would disturb."""

    def build(self):
        body = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3))
        return nn.Sequential(body, nn.Linear(16, 3))

    def probes(self, clock):
        return {"plain": 0.0, "smooth": 0.5}


def weights(folder):
    return safetensors.torch.load_file(folder / "weights.safetensors")


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("settings", [{}, {"accumulate": 2, "ema": 0.9, "clip_norm": 0.5}, {"precision": "bf16"}])
def test_a_probe_leaves_no_trace(tmp_path, settings):
    for name, every in (("without", 0), ("with", 2)):
        train = Train(epochs=2, lr=0.1, momentum=0.9, batch_size=16, probe_every=every, **settings)
        execute(run_spec(tmp_path / name, Restless(), (train,)))
    assert_equal(weights(tmp_path / "with"), weights(tmp_path / "without"))
    looked, plain = (RunDir(tmp_path / name).metrics() for name in ("with", "without"))
    for line, expected in zip(looked, plain, strict=True):
        assert {name: value for name, value in line.items() if not name.startswith("probe_")} == expected


def test_a_probe_has_the_norms_of_both_gradients_on_the_batch_at_hand(tmp_path):
    final = execute(run_spec(tmp_path, Restless(), (Train(max_steps=1, lr=0.1, batch_size=16, probe_every=1),)))
    seed_everything(0)
    task, norms = Restless(), {}
    model = task.build().train()
    x, y = next(iter(task.batches(Clock(), 0, 0, 1)))
    state = torch.get_rng_state()
    for name, smoothing in (("own", 0.0), ("plain", 0.0), ("smooth", 0.5)):
        torch.set_rng_state(state)  # the same dropout for all
        loss = F.cross_entropy(model(x), y, label_smoothing=smoothing)
        norms[name] = get_total_norm(torch.autograd.grad(loss, list(model.parameters()))).item()
    line, = RunDir(tmp_path).metrics()
    for name, norm in norms.items():
        assert line[f"probe_{name}"] == pytest.approx(norm, rel=1e-5)
    assert final["gradient_norm_ratio"] == pytest.approx({"plain": 1.0, "smooth": norms["own"] / norms["smooth"]})


def test_a_stage_has_the_probes_of_its_own_updates(tmp_path):
    """The second stage teaches what the probe called plain asks about: its ratio is 1, whatever the first one's was."""
    class Later(Restless):
        def objective(self, clock):
            return 0.5 if clock.stage == 1 else 0.0

    for every in (1, 0):
        stages = (Train(max_steps=3, lr=0.1, batch_size=16, probe_every=1),
                  Train(max_steps=3, lr=0.1, batch_size=16, probe_every=every))
        final = execute(run_spec(tmp_path / f"every{every}", Later(), stages))
        assert final["stage1"]["gradient_norm_ratio"]["smooth"] == pytest.approx(1)
        assert final["stage1"]["gradient_norm_ratio"]["plain"] != pytest.approx(1, rel=1e-2)
        if every:
            assert final["gradient_norm_ratio"]["plain"] == pytest.approx(1)
        else:
            assert "gradient_norm_ratio" not in final


def test_a_resumed_run_has_the_probes_and_the_trace_of_an_unbroken_one(tmp_path):
    train = Train(epochs=2, lr=0.1, batch_size=16, probe_every=3, trace=9)

    class Stops(Restless):
        def batches(self, *where):
            for number, batch in enumerate(super().batches(*where)):
                if number == 4:
                    signal.raise_signal(signal.SIGTERM)
                yield batch

    with pytest.raises(Interrupted):
        execute(run_spec(tmp_path / "broken", Stops(), (train,)))
    for name in ("broken", "whole"):
        execute(run_spec(tmp_path / name, Restless(), (train,)))
    assert (tmp_path / "broken" / "final.json").read_bytes() == (tmp_path / "whole" / "final.json").read_bytes()


def test_the_trace_has_the_first_updates_one_by_one(tmp_path):
    """Three of seven: loss and gradient norm before each update, as a plain loop has them; the rest is not kept."""
    final = execute(run_spec(tmp_path, Blobs(dropout=0.0), (Train(epochs=1, lr=0.1, batch_size=16, trace=3),)))
    seed_everything(0)
    task, losses, norms = Blobs(dropout=0.0), [], []
    model = task.build()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in task.batches(Clock(), 0, 0, 1):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        losses.append(loss.item())
        norms.append(get_total_norm([param.grad for param in model.parameters()]).item())
        optimizer.step()
    assert final["trace"].keys() == {"loss", "grad_norm"}
    assert final["trace"]["loss"] == pytest.approx(losses[:3], rel=1e-5)
    assert final["trace"]["grad_norm"] == pytest.approx(norms[:3], rel=1e-5)
    assert final["first_updates"]["loss"] == pytest.approx(sum(losses[:3]) / 3, rel=1e-5)
    assert_equal(load_weights(tmp_path), model.state_dict())


class Scripted(Blobs):
    """Its metric rises and falls as written here; what is concluded says which weights it was about."""

    metrics = (Metric("score", "score", primary=True),)
    scores = (1.0, 3.0, 2.0, 2.5)

    def evaluate(self, predictions):
        self.count = getattr(self, "count", 0) + 1
        return {"score": self.scores[self.count - 1]}

    def conclude(self, predictions, last):
        return Conclusion({"mean_logit": self._logits(predictions).mean().item()})


@pytest.mark.parametrize("how", ["last", "best", "average"])
def test_the_numbers_of_the_end_are_about_the_model_that_is_asked_for(tmp_path, how):
    epochs: list[dict[str, torch.Tensor]] = []

    class Watched(Scripted):
        def predict(self, model, *how):
            epochs.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
            return super().predict(model, *how)

    train = Train(epochs=4, lr=0.1, batch_size=16, conclude_on=how, average_last=3)
    final = execute(run_spec(tmp_path, Watched(), (train,)))
    *epochs, _ = epochs  # the last look is the conclusion's
    mean = {name: torch.stack([epoch[name].double() for epoch in epochs[1:]]).mean(0).float() for name in epochs[0]}
    expected = {"last": epochs[3], "best": epochs[1], "average": mean}[how]
    assert_equal(weights(tmp_path), expected)
    model = Scripted().build().eval()
    model.load_state_dict(expected)
    assert final["mean_logit"] == pytest.approx(model(Scripted().x).mean().item(), rel=1e-5)
    assert (final["score"], final["best_score"], final["best_epoch"]) == (2.5, 3.0, 2)
    assert_equal(load_weights(tmp_path), epochs[3])  # training itself goes on from the last


def test_the_average_is_the_mean_of_the_files_of_the_last_epochs(tmp_path):
    execute(run_spec(tmp_path, stages=(Train(epochs=5, lr=0.1, conclude_on="average", average_last=2),)))
    files = sorted(tmp_path.glob("epoch-*.safetensors"))
    assert [path.name for path in files] == ["epoch-000004.safetensors", "epoch-000005.safetensors"]
    kept = [safetensors.torch.load_file(path) for path in files]
    for name, tensor in weights(tmp_path).items():
        assert torch.equal(tensor, ((kept[0][name].double() + kept[1][name].double()) / 2).float())


@pytest.mark.parametrize("final", [False, True])
def test_sigterm_during_an_evaluation_is_obeyed_after_the_piece_at_hand(tmp_path, final):
    """Of an epoch, and of the end; the checkpoint continues to the same bits."""
    class Long(Blobs):
        stops, made = False, 0

        def predict(self, model, last, rank, world):
            whole, = super().predict(model, last, rank, world)
            for number in range(50):
                self.made += 1
                if self.stops and number == 3 and last == final:
                    signal.raise_signal(signal.SIGTERM)
                    self.made = 0
                yield {"number": number, "logits": whole["logits"][2 * number : 2 * number + 2]}

        def _logits(self, predictions):
            return torch.cat([piece["logits"] for piece in predictions])

    train = (Train(epochs=2, lr=0.1, batch_size=16),)
    task = Long()
    task.stops = True
    words = "SIGTERM in the final evaluation" if final else "SIGTERM while evaluating epoch 1"
    with pytest.raises(Interrupted, match=words + ".*run the same command again"):
        execute(run_spec(tmp_path / "broken", task, train))
    assert task.made == 0, "it went on after the signal"
    assert list((tmp_path / "broken").glob("checkpoint-*.json"))
    for name in ("broken", "whole"):
        execute(run_spec(tmp_path / name, Long(), train))
    for file in ("final.json", "metrics.jsonl", "weights.safetensors"):
        assert (tmp_path / "broken" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert json.loads((tmp_path / "broken" / "timing.json").read_text())["resumed"] == 1


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "rmsprop"])
def test_parameter_groups_have_their_own_rate_and_decay(tmp_path, optimizer):
    class Grouped(Blobs):
        def groups(self, model):
            return [ParameterGroup(list(model[0].parameters()), lr_scale=0.1),
                    ParameterGroup(list(model[1].parameters()), weight_decay=0.0)]

    train = Train(epochs=2, lr=0.01, weight_decay=0.5, optimizer=optimizer, milestones=(2,), batch_size=16)
    execute(run_spec(tmp_path, Grouped(dropout=0.0), (train,)))
    seed_everything(0)
    task = Blobs(dropout=0.0)
    model = task.build()
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}[optimizer]
    more = {"rmsprop": {"alpha": 0.9}}.get(optimizer, {})
    taught = kind([{"params": model[0].parameters(), "lr": 0.001, "weight_decay": 0.5},
                   {"params": model[1].parameters(), "lr": 0.01, "weight_decay": 0.0}], lr=0.01, **more)
    for epoch in (1, 2):
        if epoch == 2:
            for group in taught.param_groups:
                group["lr"] *= 0.1
        for x, y in task.batches(Clock(1, epoch), 0, 0, 1):
            taught.zero_grad()
            F.cross_entropy(model(x), y).backward()
            taught.step()
    for name, tensor in load_weights(tmp_path).items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-5, atol=1e-7)


def test_numbers_of_numpy_and_torch_are_numbers(tmp_path):
    """A task of one's own need not know what JSON can hold."""
    class Careless(Blobs):
        def evaluate(self, predictions):
            logits = self._logits(predictions)
            right = (logits.argmax(1) == self.y).float().mean()
            return {"accuracy": right, "test_loss": logits.numpy().mean()}

    final = execute(run_spec(tmp_path, Careless(), (Train(epochs=1, lr=0.1),)))
    assert 0 < final["accuracy"] <= 1
    assert isinstance(final["test_loss"], float)


@pytest.mark.parametrize(("numbers", "words"), [
    ({"accuracy": 1.0, "loss": 2.0}, r"evaluate\(\) of the task returns 'loss', a name that the engine uses itself"),
    ({"accuracy": "high"}, r"evaluate\(\) of the task returns accuracy as a str: expected a number"),
    ({"precision": 1.0}, "train.monitor = 'accuracy': the task measures .*precision"),
])
def test_what_a_task_cannot_return_is_refused_in_words(tmp_path, numbers, words):
    class Wrong(Blobs):
        def evaluate(self, predictions):
            return numbers

    with pytest.raises(RunError, match=words):
        execute(run_spec(tmp_path, Wrong(), (Train(epochs=1, lr=0.1),)))
