"""Stages of a recipe and of an arm, arms that start from another one's weights, and objectives that change."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch

from encouraging import curve_loss, curves
from encouraging.data import Clock
from encouraging.engine.random_state import seed_everything
from encouraging.errors import RecipeError, RunError
from encouraging.imbalance import effective_weights
from encouraging.recipes import read_recipe
from encouraging.recipes.grid import jobs_of
from encouraging.tasks import build_task
from task_laws import assert_same_bits, call, train, train_with_kills

RECIPE = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 1
train = { epochs = 2, lr = 0.1, momentum = 0.9, weight_decay = 1e-3, batch_size = 128 }
"""
DECOUPLED = RECIPE + """
[arms.crt]
after = "ce"
[[arms.crt.stages]]
train = { epochs = 1, lr = 0.05, momentum = 0.9 }
sampling = "class_balanced"
reset = ["head"]
freeze = ["body"]

[arms.ce]
curve = "cross_entropy"

[[arms.both.stages]]
[[arms.both.stages]]
train = { epochs = 1, lr = 0.05 }
objective = { curve = "focal", gamma = 1.0 }
reset = ["head"]
freeze = ["body"]
"""


@pytest.fixture
def read(tmp_path):
    def read(text, *overrides):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return read_recipe(path, overrides)
    return read


def weights(folder):
    return safetensors.torch.load_file(folder / "weights.safetensors")


def parts(folder):
    """The tensors of a model by its parts."""
    found = weights(folder)
    return {part: {name: found[name] for name in found if name.startswith(part)} for part in ("body", "head")}


def same(ours, theirs):
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_an_arm_starts_from_the_finished_weights_of_another(read, tmp_path):
    """Whatever their order in the file; frozen parts stay as they are, bit for bit, weight decay or not."""
    recipe = read(DECOUPLED)
    assert [job.arm for job in jobs_of(recipe, "out")] == ["ce", "both", "crt"]
    printed = call("run", tmp_path / "mine.toml", "--out", tmp_path / "runs", "--device", "cpu", "--jobs", "1")
    assert "crt seed 0: accuracy" in printed
    runs = {arm: tmp_path / "runs" / "mine" / arm / "seed0" for arm in recipe.arms}
    ce, crt, both = (parts(runs[arm]) for arm in ("ce", "crt", "both"))
    assert same(crt["body"], ce["body"])
    assert not same(crt["head"], ce["head"])
    # An arm of two stages: its first is the training of ce, its second another output layer on the same features.
    finals = {arm: json.loads((runs[arm] / "final.json").read_text()) for arm in runs}
    assert same(both["body"], ce["body"])
    assert finals["both"]["stage1"]["accuracy"] == finals["ce"]["accuracy"]
    assert finals["both"]["steps"] == finals["ce"]["steps"] + 1200 // 128 + 1
    assert "stage1" not in finals["crt"]


@pytest.mark.parametrize("which", ["best", "average"])
def test_the_final_weights_of_another_are_those_that_it_concludes_on(read, tmp_path, which):
    recipe = read(RECIPE + f"""
[arms.a]
train = {{ epochs = 4, lr = 0.2, momentum = 0.0, conclude_on = "{which}" }}
[arms.b]
after = "a"
train = {{ epochs = 0 }}
""")
    a, b = (train(recipe, tmp_path, arm) for arm in ("a", "b"))
    assert same(weights(b), weights(a))
    ours, theirs = (json.loads((folder / "final.json").read_text()) for folder in (b, a))
    assert (ours["nll"], ours["margin"]) == (theirs["nll"], theirs["margin"])


def test_a_finished_run_without_weights_cannot_be_started_from(read, tmp_path):
    recipe = read(DECOUPLED)
    path = train(recipe, tmp_path, "ce") / "weights.safetensors"
    path.unlink()
    with pytest.raises(RunError, match=r"ce/seed0/weights\.safetensors: the weights cannot be read .* Train the run"):
        train(recipe, tmp_path, "crt")


@pytest.mark.parametrize("which", ["last", "best", "average"])
def test_a_later_stage_without_epochs_only_evaluates(read, tmp_path, which):
    recipe = read(RECIPE + f"""
[arms.a]
train = {{ conclude_on = "{which}" }}
[arms.b]
train = {{ conclude_on = "{which}", checkpoint_seconds = 0 }}
[[arms.b.stages]]
[[arms.b.stages]]
train = {{ epochs = 0, lr = 0.1, conclude_on = "{which}" }}
""")
    a, b = (train(recipe, tmp_path, arm) for arm in ("a", "b"))
    ours, theirs = (json.loads((folder / "final.json").read_text()) for folder in (b, a))
    last = theirs if which == "last" else json.loads((a / "metrics.jsonl").read_text().splitlines()[-1])
    assert ours["accuracy"] == ours["stage1"]["accuracy"] == last["accuracy"]
    assert (ours["epochs"], ours["best_epoch"], ours["steps"]) == (0, 0, theirs["steps"])
    assert_same_bits(train_with_kills([recipe], [6], tmp_path / "broken", "b"), b)


@pytest.mark.parametrize(("monitor", "better"), [("loss", "lower"), ("batch_accuracy", "higher")])
def test_an_evaluation_alone_needs_no_number_of_training_that_chooses_the_best_epoch(read, tmp_path, monitor, better):
    recipe = read(RECIPE + f"""
[arms.a]
train = {{ monitor = "{monitor}", better = "{better}" }}
[arms.b]
after = "a"
train = {{ epochs = 0, monitor = "{monitor}", better = "{better}", conclude_on = "best" }}
""")
    a, b = (train(recipe, tmp_path, arm) for arm in ("a", "b"))
    ours, theirs = (json.loads((folder / "final.json").read_text()) for folder in (b, a))
    assert ours["best_accuracy"] == ours["accuracy"] == theirs["accuracy"]


def test_without_it_the_first_is_asked_for(read, tmp_path):
    recipe = read(DECOUPLED)
    with pytest.raises(RunError, match=r"crt seed 0 starts from the weights of ce, but .* holds no finished run. Train "
                                       "--arm ce first"):
        train(recipe, tmp_path, "crt")
    printed = call("run", tmp_path / "mine.toml", "--out", tmp_path / "runs", "--arm", "crt", "--jobs", "1", code=1)
    assert "Train --arm ce first" in " ".join(printed.split())


def test_killed_it_still_starts_from_the_other_one(read, tmp_path):
    """A resumed run continues from its own checkpoint and not from the other arm's weights."""
    recipe = read(DECOUPLED, "train.checkpoint_seconds=0", "arms.crt.stages=[{ train = { epochs = 1, lr = 0.05, "
                  "batch_size = 300, checkpoint_seconds = 0 }, reset = ['head'], freeze = ['body'] }]")
    for out in ("broken", "whole"):
        train(recipe, tmp_path / out, "ce")
    folder = train_with_kills([recipe], [6], tmp_path / "broken", "crt")
    assert_same_bits(folder, train(recipe, tmp_path / "whole", "crt"))


def test_a_part_that_is_reset_starts_as_a_fresh_one_does(read, tmp_path):
    """The rate is too small to move anything: what is left is how the head was drawn."""
    recipe = read(RECIPE + "arms.ce.stages = [{}, { train = { epochs = 1, lr = 1e-30 }, reset = ['head'] }]")
    folder = train(recipe, tmp_path, "ce")
    seed_everything(0)
    model = build_task("image", recipe.task_spec("ce")).build()
    model.head.reset_parameters()
    assert same(parts(folder)["head"], {f"head.{name}": tensor for name, tensor in model.head.state_dict().items()})


def test_the_stages_of_a_recipe_are_those_of_all_arms_but_for_arms_with_their_own(read):
    recipe = read("stages = [{}, { train = { epochs = 5, lr = 0.2 }, freeze = ['body'] }]" + RECIPE
                  + "arms.a = {}\narms.b = { stages = [{}], train = { lr = 0.7 } }")
    assert [stage.train.lr for stage in recipe.stages_of("a")] == [0.1, 0.2]
    assert [list(stage.freeze) for stage in recipe.stages_of("a")] == [[], ["body"]]
    assert [stage.train.lr for stage in recipe.stages_of("b")] == [0.7]
    assert recipe.config("a", 0)["stages"][1]["freeze"] == ["body"]
    assert "stages" not in recipe.config("b", 0)


def test_an_override_reaches_an_entry_of_a_list(read):
    text = "stages = [{}, { train = { epochs = 5, lr = 0.2 } }]" + RECIPE + "arms.a = {}"
    assert read(text, "stages.1.train.lr=0.4").stages_of("a")[1].train.lr == 0.4
    for wrong, words in (("stages.2.train.lr=0.4", "stages is a list of 2: expected a number from 0 to 1"),
                         ("stages.first.train.lr=0.4", "expected a number from 0 to 1"),
                         ("train.lr.x=3", "lr is 0.1, not a table that could hold x")):
        with pytest.raises(RecipeError, match=words):
            read(text, wrong)


@pytest.mark.parametrize(("text", "words"), [
    ("arms.a = { after = 'c' }", ["arm a starts after 'c'; there are a"]),
    ("arms.a = { after = 'b' }\narms.b = { after = 'a' }", ["a, b start after each other"]),
    ("arms.a = { stages = [{ trian = {} }] }", ["arms.a.stages.0.trian", "Did you mean 'train'?"]),
    ("arms.a = { stages = [{ sampling = 'class_balance' }] }", ["arms.a.stages.0.sampling.kind = 'class_balance'",
                                                               "'class_balanced'"]),
    ("arms.a = { stages = [{ sampling = { knd = 'shuffled' } }] }", ["sampling.knd", "Did you mean 'kind'?"]),
    ("arms.a = { stages = [{ objective = { gama = 1, curve = 'focal' } }] }", ["arms.a.stages.0.objective",
                                                                              "Did you mean 'gamma'?"]),
    ("arms.a = { changes = [{ log_end = 0.5 }] }", ["arms.a.changes.0", "either from_epoch (counted from 1) or"]),
    ("arms.a = { curve = 'encouraging', changes = [{ from_epoch = 2, log_ned = 0.5 }] }",
     ["arms.a", "'log_ned'", "Did you mean 'log_end'?"]),
    ("arms.a = { changes = [{ from_epoch = 2, label_smoothing = 2.0 }] }", ["label_smoothing = 2.0 in a change"]),
    ("arms.a = { divisor = 'token' }", ["arms.a.divisor: 'token'", "Did you mean 'tokens'?"]),
    ("arms.a = { divisor = -1 }", ["arms.a.divisor: -1", "or a positive number"]),
    ("arms.a = { link = 'sigmoid', ignore_index = 0 }", ["arms.a", "takes no label_smoothing", "ignore_index"]),
])
def test_what_is_wrong_with_a_stage_or_a_change_is_named(read, text, words):
    with pytest.raises(RecipeError) as error:
        read(RECIPE + text)
    for word in ["mine.toml", *words]:
        assert word in str(error.value), str(error.value)


def test_a_part_that_the_model_has_not_is_refused_with_the_nearest_word(read, tmp_path):
    with pytest.raises(RunError, match=r"the part 'haed'; the model has head, body. Did you mean 'head'\?"):
        train(read(RECIPE + "arms.a.stages = [{ reset = ['haed'] }]"), tmp_path, "a")


@pytest.mark.parametrize("per_class", [1, 4])
def test_class_balanced_batches_have_all_classes_equally_often(read, per_class):
    sampling = f"sampling = {{ kind = 'class_balanced', per_class = {per_class} }}"
    recipe = read(RECIPE + f"arms.a.stages = [{{ {sampling}, train = {{ epochs = 1, lr = 0.1, batch_size = 40 }} }}]")
    task = build_task("image", recipe.task_spec("a"))
    source, labels = task.source(1), task.train[1]
    drawn = [batch[0] for batch in source.batches(Clock(1, 1), 0, 0, 1)]
    assert len(drawn) == source.length(Clock(1, 1)) == len(labels) // 40
    for batch in drawn:  # ten classes, 40 examples
        assert torch.bincount(labels[batch]).tolist() == [4] * 10
        runs = labels[batch].view(-1, per_class)
        assert (runs == runs[:, :1]).all()
    resumed = [batch[0] for batch in source.batches(Clock(1, 1), 7, 0, 1)]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(resumed, drawn[7:], strict=True))
    shares = [[batch[0] for batch in source.batches(Clock(1, 1), 0, rank, 2)] for rank in (0, 1)]
    assert all(sorted([*a.tolist(), *b.tolist()]) == sorted(whole.tolist())
               for a, b, whole in zip(*shares, drawn, strict=True))


CHANGES = """
[arms.a]
curve = "encouraging"
log_end = 0.9
bonus_from_epoch = 2
reweight_from_epoch = 3
reweight_beta = 0.99
changes = [{ from_update = 13, log_end = 0.5 }, { from_epoch = 3, label_smoothing = 0.1 }]
"""


def test_a_change_of_the_objective_keeps_momentum_and_schedule(read, tmp_path):
    """By epoch and by update: the run is the plain loop that changes its loss on the way and nothing else."""
    recipe = read(RECIPE + CHANGES, "train.epochs=3", "train.schedule=cosine")
    folder = train(recipe, tmp_path, "a")
    seed_everything(0)
    task = build_task("image", recipe.task_spec("a"))
    model, images, labels = task.build().train(), task.train[0], task.train[1]
    weight = effective_weights(torch.bincount(labels), 0.99)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-3)
    updates = task.source(1).length(Clock())
    done = 0
    for epoch in (1, 2, 3):
        for index, in task.source(1).batches(Clock(1, epoch), 0, 0, 1):
            curve = curves.cross_entropy() if epoch == 1 else curves.encouraging(0.9 if done < 13 else 0.5)
            optimizer.param_groups[0]["lr"] = 0.05 * (1 + torch.tensor(torch.pi * done / (3 * updates),
                                                                       dtype=torch.float64).cos().item())
            optimizer.zero_grad()
            curve_loss(model((images[index].float() / 16 - 0.305) / 0.376), labels[index], curve,
                       weight if epoch == 3 else None, label_smoothing=0.1 if epoch == 3 else 0.0).backward()
            optimizer.step()
            done += 1
    for name, tensor in weights(folder).items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-4, atol=1e-6)


def test_a_stage_has_its_own_class_weights(read):
    recipe = read(RECIPE + """
[arms.a]
stages = [{ objective = { reweight_from_epoch = 1, reweight_beta = 0.9 } },
          { objective = { reweight_from_epoch = 1, reweight_beta = 0.5 } }, { objective = {} }]
""")
    task = build_task("image", recipe.task_spec("a"))
    first, second, third = task.weights
    counts = torch.bincount(task.train[1])
    torch.testing.assert_close(first, effective_weights(counts, 0.9))
    torch.testing.assert_close(second, effective_weights(counts, 0.5))
    assert third is None
