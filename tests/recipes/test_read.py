"""Recipes: what is wrong is named with file, key and the nearest right word."""

from __future__ import annotations

import re
from pathlib import PureWindowsPath

import pytest
import torch
from pydantic import ValidationError

from encouraging.data import Clock
from encouraging.errors import RecipeError
from encouraging.models.named import build_named
from encouraging.recipes import names, read_recipe
from encouraging.recipes import read as reading
from encouraging.recipes.grid import jobs_of
from encouraging.recipes.schema import Arm
from encouraging.tasks import Objective, ObjectiveConfig

GOOD = """
task = "image"
data = "digits"
model = "digits_mlp"
seeds = 2
train = { epochs = 3, lr = 0.1 }
[arms.ce]
curve = "cross_entropy"
[arms.el]
curve = "encouraging"
log_end = 0.5
[[claims]]
metric = "accuracy"
arm = "el"
beats = "ce"
"""


def read(tmp_path, text, overrides=()):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return read_recipe(path, overrides)


def test_a_recipe_is_utf_8_and_may_begin_with_a_mark(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf" + f'about = "größer"\n{GOOD}'.encode())
    assert read_recipe(path).about == "größer"


def test_a_file_whose_name_is_no_folder_s_is_answered_with_what_to_do(tmp_path):
    path = tmp_path / "my recipe.toml"
    path.write_text(GOOD)
    with pytest.raises(RecipeError, match=r"the recipe 'my recipe': expected letters, .* Rename its file, or"):
        read_recipe(path)
    path.write_text(f'name = "mine"\n{GOOD}')
    assert read_recipe(path).name == "mine"


def test_a_good_one_is_frozen_and_complete(tmp_path):
    recipe = read(tmp_path, GOOD)
    assert recipe.name == "mine"
    assert recipe.seeds == (0, 1)
    with pytest.raises(ValidationError, match="frozen"):
        recipe.task = "graph"
    assert [(job.arm, job.seed) for job in jobs_of(recipe, "out")] == [("ce", 0), ("el", 0), ("ce", 1), ("el", 1)]


def test_a_recipe_without_arms_is_answered_with_one(tmp_path):
    without = GOOD[: GOOD.index("[arms.ce]")]
    with pytest.raises(RecipeError, match=r"mine\.toml: arms: expected at least one arm, as in arms\.ce = { curve"):
        read(tmp_path, without + "[arms]")
    with pytest.raises(RecipeError, match=r"arms: this key is required and missing, and 'arm' is an unknown key\. Did "
                                          r"you mean 'arms'\?"):
        read(tmp_path, without + "[arm.ce]")


@pytest.mark.parametrize(("old", "new", "words"), [
    ("epochs = 3", "epoch = 3", ["mine.toml", "train.epoch", "Did you mean 'epochs'?"]),
    ("epochs = 3", "epochs = 'many'", ["mine.toml", "train.epochs = 'many'", "integer"]),
    ("epochs = 3", "epochs = 0", ["train.epochs = 0", "greater than 0"]),
    ("train = { epochs = 3, lr = 0.1 }", "stages = [{ train = { epochs = 0, lr = 0.1 } }]\n"
     "train = { epochs = 3, lr = 0.1 }", ["train.epochs = 0", "greater than 0"]),
    ("epochs = 3, ", "", ["train", "neither epochs nor max_steps"]),
    ("lr = 0.1", "lr = 0.1, milestones = [2, 1]", ["train", "increasing epochs"]),
    ("lr = 0.1", "lr = 0.1, schedule = 'cosine', milestones = [2]", ["train", "'multistep' needs milestones"]),
    ("lr = 0.1", "lr = 0.1, optimizer = 'sdg'", ["train.optimizer = 'sdg'", "'sgd'"]),
    ("lr = 0.1", "lr = 0.1, nesterov = true", ["train", "momentum above 0"]),
    ("log_end = 0.5", "log_ned = 0.5", ["mine.toml", "arms.el", "Did you mean 'log_end'?"]),
    ("log_end = 0.5", "label_smooting = 0.5", ["arms.el", "Did you mean 'label_smoothing'?"]),
    ("log_end = 0.5", "log_end = 2.0", ["arms.el", "log_end"]),
    ('"encouraging"', '"encouragin"', ["arms.el", "Did you mean 'encouraging'?"]),
    ("log_end = 0.5", "loss = 'mse'", ["arms.el", "loss = 'mse' with curve"]),
    ("log_end = 0.5", "train = { lrr = 1.0 }", ["arms.el.train.lrr", "Did you mean 'lr'?"]),
    ('task = "image"', 'tsk = "image"', ["task", "required and missing"]),
    ('task = "image"', 'tsk = "image"', ["task: this key is required and missing, and 'tsk' is an unknown key. "
                                         "Did you mean 'task'?"]),
    ("lr = 0.1", "lrr = 0.1", ["train.lr: this key is required and missing, and 'lrr' is an unknown key. "
                               "Did you mean 'lr'?"]),
    ('metric = "accuracy"', 'metrics = "accuracy"', ["claims.0.metric: this key is", "Did you mean 'metric'?"]),
    ('[arms.ce]', '[arm.ce]', ["mine.toml: arm: unknown key. Did you mean 'arms'?"]),
    ('[[claims]]', '[claims]', ["claims = {", "expected a list, as in claims = [...]. A list of tables is written "
                                "[[claims]]."]),
    ("train = { epochs = 3, lr = 0.1 }", "train = 3", ["train = 3: expected a table, as in train = { key = value }."]),
    ('[arms.ce]\ncurve =', '[arms]\nce =', ["arms.ce = 'cross_entropy': expected a table, as in ce = { key"]),
    ('task = "image"', 'task = "images"', ["no task is called 'images'", "Did you mean 'image'?"]),
    ('data = "digits"', 'data = "digit"', ["data", "Did you mean 'digits'?"]),
    ('model = "digits_mlp"', 'model = "digits_mpl"', ["model", "Did you mean 'digits_mlp'?"]),
    ('beats = "ce"', 'beats = "xe"', ["names the arm 'xe'", "ce, el"]),
    ('beats = "ce"', 'beats = "cee"', ["names the arm 'cee'", "Did you mean 'ce'?"]),
    ('beats = "ce"', 'beats = "ce"\nbeter = "lower"', ["claims.0.beter", "Did you mean 'better'?"]),
    ("seeds = 2", "seeds = [1, 1]", ["each only once"]),
    ("seeds = 2", "seeds = true", ["seeds: true: expected a number"]),
    ("log_end = 0.5", "label_smoothing = true", ["arms.el.label_smoothing: true: expected a number"]),
    ("log_end = 0.5", "train = { milestones = [true] }", ["arms.el.train.milestones: [true]: expected a number"]),
    ("lr = 0.1", 'lr = "0.1"', ["train.lr: '0.1': expected a number, without quotes"]),
    ("log_end = 0.5", 'train = { milestones = ["1"] }', ["arms.el.train.milestones: ['1']: expected a number"]),
    ("seeds = 2", "seeds = 2\noptions = { mixup = '0.2' }", ["options.mixup: '0.2': expected a number"]),
    ("lr = 0.1", f"lr = 0.1, batch_size = {2**63}", [f"train.batch_size: {2**63}: expected a number of 64 bits"]),
    ("seeds = 2", "seeds = 0", ["seeds: 0: expected a number of seeds"]),
    ("seeds = 2", "seeds = []", ["seeds: []: expected a number of seeds"]),
    *(("seeds = 2", f"seeds = [1, {seed}]", [f"the seed {seed}: expected a number from 0 to 2**63 - 1"])
      for seed in (-1, 2**63, 2**64)),
    ("seeds = 2", "seeds = 2\noptions = { augmentt = 'none' }", ["options.augmentt", "Did you mean 'augment'?"]),
    *(("seeds = 2", f"seeds = 2\noverlap = {value}",
       [f"overlap: {value}: expected the number of test examples over that of training examples", "at most 1"])
      for value in ("3", "12.5", "0", "-0.1", "nan", "inf")),
    ("seeds = 2", "seeds = ", ["mine.toml", "not valid TOML"]),
])
def test_what_is_wrong_is_named(tmp_path, old, new, words):
    assert old in GOOD
    with pytest.raises(RecipeError) as error:
        read(tmp_path, GOOD.replace(old, new, 1))
    for word in words:
        assert word in str(error.value), str(error.value)
    assert not re.search(r"[.?]\.($| )", str(error.value)), "a sentence ends once"


def test_overrides_reach_anything(tmp_path):
    recipe = read(tmp_path, GOOD, ["train.epochs=7", "arms.el.log_end=0.9", "seeds=[3,4]", "train.optimizer=adam",
                                   "options.validation=100", "arms.ce.train.lr=0.5"])
    assert recipe.stages_of("el")[0].train.epochs == 7
    assert recipe.stages_of("ce")[0].train.lr == 0.5
    assert recipe.stages_of("el")[0].train.lr == 0.1
    assert recipe.arms["el"].params == {"log_end": 0.9}
    assert recipe.seeds == (3, 4)
    for wrong in ("train.epochs", "=3", "task.name=3", "train.epoch=3"):
        with pytest.raises(RecipeError):
            read(tmp_path, GOOD, [wrong])


def test_an_unknown_recipe_is_answered_with_the_nearest():
    with pytest.raises(RecipeError, match="Did you mean 'digits'"):
        read_recipe("digit")
    with pytest.raises(RecipeError, match="there is no such file"):
        read_recipe("nowhere.toml")


@pytest.mark.parametrize("name", names())
def test_every_recipe_of_the_package_can_be_read(name):
    recipe = read_recipe(name)
    assert recipe.about
    assert len(recipe.seeds) >= 3
    assert recipe.claims
    for arm in recipe.arms:
        assert isinstance(recipe.stages_of(arm)[0].objective.at(Clock()), Objective)


def test_the_mnist_recipes_have_the_papers_settings():
    seeds = {"mnist": 8, "mnist-mse": 5, "mnist-label-smoothing": 5, "mnist-large-margin": 5}
    for name, count in seeds.items():
        recipe = read_recipe(name)
        train = recipe.train
        assert recipe.seeds == tuple(range(count))
        assert (train.epochs, train.batch_size, train.lr, train.momentum) == (100, 256, 0.1, 0.9)
        assert (train.milestones, train.gamma, train.weight_decay) == ((51, 65), 0.1, 0)


def test_the_recipes_of_attacks_have_the_authors_settings():
    for name, seeds in (("mnist-attack", 8), ("mnist-autoattack", 3), ("mnist-adversarial-training", 5)):
        recipe = read_recipe(name)
        assert len(recipe.seeds) == seeds
        assert (recipe.model, recipe.options) == ("attack_cnn", {"normalise": False})
        for arm in recipe.arms:
            (stage,) = recipe.stages_of(arm)
            train = stage.train
            assert (train.optimizer, train.lr, train.epochs, train.batch_size) == ("adam", 1e-3, 5, 128)
            assert (train.shuffle, train.precision, train.weight_decay) == (False, "fp32", 0)
            assert stage.objective.params == ({"log_end": 1.0} if arm.endswith("el") else {})
    trained = read_recipe("mnist-adversarial-training")
    assert {arm: trained.task_spec(arm).options["adversarial"] for arm in trained.arms} == {
        f"{attack}_{loss}": attack for attack in ("fgsm", "pgd", "pgd_l2") for loss in ("ce", "el")}


def test_claims_under_attack_name_attacks_and_epsilons_that_are_measured():
    from encouraging.commands.attack_plan import KNOWN, default_epsilons

    for name in ("mnist-attack", "mnist-autoattack", "mnist-adversarial-training", "mnist-large-margin-attack",
                 "cifar10-attack"):
        recipe = read_recipe(name)
        for claim in recipe.claims:
            if claim.metric.startswith("attacks."):
                _, attack, eps = claim.metric.split(".", 2)
                one = KNOWN[attack.replace("_scale_free", "_margin")]
                assert eps in {f"{value:g}" for value in default_epsilons(recipe.data)[one.attack.norm]}


def test_detection_starts_the_output_layer_as_the_authors_do():
    recipe = read_recipe("mnist-ood")
    assert recipe.model_options == {"head_init": "kaiming_normal"}
    assert recipe.arms["logit_norm"].logit_norm == 0.04
    assert [arm.label_smoothing for arm in recipe.arms.values()] == [0, 0, 0.1, 0.1, 0]


def test_the_output_layer_of_the_mnist_recipes_starts_as_the_authors_does():
    """Kaiming's normal, as their L-Softmax layer at every margin: a standard deviation of sqrt(2 / 256)."""
    for name in ("mnist", "mnist-mse", "mnist-label-smoothing", "mnist-large-margin"):
        recipe = read_recipe(name)
        spec = recipe.task_spec(next(iter(recipe.arms)))
        torch.manual_seed(0)
        head = build_named(spec.model, 10, 1, spec.stages[0].objective.margin, spec.model_options).head
        assert head.weight.std().item() == pytest.approx((2 / 256) ** 0.5, rel=0.05)
        assert getattr(head, "bias", None) is None
    plain = build_named("lsoftmax_cnn", 10, 1).head
    scaled = build_named("lsoftmax_cnn", 10, 1, options={"head_scale": 10.0}).head
    assert (scaled.weight.std() / plain.weight.std()).item() == pytest.approx(10, rel=0.1)


def test_an_arm_may_begin_its_bonus_and_its_class_weights_late(tmp_path):
    recipe = read(tmp_path, GOOD, ["arms.el.bonus_from_epoch=3", "arms.el.reweight_from_epoch=5"])
    arm = recipe.arms["el"]
    assert [arm.at(Clock(1, epoch)).curve.name for epoch in (2, 3)] == ["cross_entropy", "conservative"]
    assert [arm.at(Clock(1, epoch)).weighted for epoch in (4, 5)] == [False, True]


def test_what_a_run_depends_on_is_in_its_config(tmp_path):
    plain = read(tmp_path, GOOD).config("el", 0)
    assert read(tmp_path, GOOD, ["paper=elsewhere", "train.checkpoint_seconds=1"]).config("el", 0) == plain
    for change in ("train.lr=0.2", "arms.el.log_end=0.6", "options.validation=10", "model=resnet20"):
        assert read(tmp_path, GOOD, [change]).config("el", 0) != plain


def test_later_settings_of_a_loss_are_in_a_config_only_if_they_are_used():
    """So that runs that were made before there were such settings keep their fingerprints."""
    plain, used = ObjectiveConfig(), {"ignore_index": 0, "divisor": "tokens", "logit_scale": 2.0, "alpha": None,
                                      "changes": [{"from_epoch": 2, "label_smoothing": 0.1}]}
    assert plain.config().keys() == ObjectiveConfig.model_fields.keys() - ObjectiveConfig.LATER
    assert ObjectiveConfig.model_fields.keys() > ObjectiveConfig.LATER
    config = ObjectiveConfig(**used, curve="focal", gamma=1.0).config()
    assert config.keys() - plain.config().keys() == {"ignore_index", "divisor", "logit_scale", "changes", "gamma"}
    assert config["changes"] == [{"from_epoch": 2, "from_update": None, "label_smoothing": 0.1}]
    assert Arm(about="words", after="ce", train={"lr": 1.0}).config() == plain.config()


@pytest.mark.parametrize("name", ["../elsewhere", "", "a/b", ".hidden"])
def test_a_name_that_is_no_folder_is_refused(name):
    with pytest.raises(RecipeError, match="name"):
        read_recipe("digits", [f'name="{name}"'])


@pytest.mark.parametrize("value", ["2020-01-01", "07:32:00", "2020-01-01T07:32:00", "[1, 2020-01-01]",
                                   "{a = 07:32:00}"])
def test_a_date_is_refused_where_options_take_anything(tmp_path, value):
    text = GOOD.replace('"digits_mlp"', f'"timm/efficientnet_b0"\nmodel_options = {{ drop_rate = {value} }}')
    with pytest.raises(RecipeError, match=r"model_options\.drop_rate.* = .*: expected no date and no time"):
        read(tmp_path, text)
    with pytest.raises(RecipeError, match=r"model_options\.drop_rate.* = .*: expected no date and no time"):
        read(tmp_path, GOOD.replace("digits_mlp", "timm/efficientnet_b0"), [f"model_options.drop_rate={value}"])


def test_brackets_without_end_are_no_recipe(tmp_path):
    with pytest.raises(RecipeError, match="more brackets inside each other than can be read"):
        read(tmp_path, "about = " + "[" * 20_000)
    with pytest.raises(RecipeError, match="seeds = "):
        read(tmp_path, GOOD, ["seeds=" + "[" * 20_000])


def test_a_recipe_in_a_folder_is_the_users_with_backslashes_too(monkeypatch):
    """Modules of your own are searched beside it."""
    monkeypatch.setattr(reading, "Path", PureWindowsPath)
    assert reading._is_users("experiments\\mine.toml")
    assert reading._is_users("C:\\mine.toml")
    assert not reading._is_users("digits.toml")


@pytest.mark.parametrize(("text", "number"), [(".05", 0.05), ("1.", 1.0), ("+.5e-1", 0.05), ("02", 2)])
def test_a_number_may_be_set_as_people_write_it(text, number):
    assert read_recipe("digits", [f"train.lr={text}"]).train.lr == number
