"""Bring your own: data, model and task by name, from files beside the recipe; what is wrong with them is said."""

from __future__ import annotations

import io
import sys

import pytest
import torch
from PIL import Image
from rich.console import Console

from encouraging.commands.run import run_recipe
from encouraging.data.images import read_images
from encouraging.engine import RunDir
from encouraging.errors import DataError, RecipeError
from encouraging.models.named import build_named
from encouraging.plugins import load_object
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task
from task_laws import train

RECIPE = """
task = "image"
data = "{data}"
model = "{model}"
seeds = 1
train = {{ epochs = 1, lr = 0.1, batch_size = 16 }}
{more}
arms.ce = {{}}
"""

MINE = """
import numpy as np
from torch import nn

WIDTH = 4

def images():
    draw = np.random.default_rng(0)
    labels = np.arange(48) % 3
    pixels = draw.integers(0, 60, (48, 8, 8), dtype=np.uint8)
    pixels[np.arange(48), labels] = 255
    return {"train": (pixels[:30], labels[:30]), "test": (pixels[30:], labels[30:])}

def network(classes, channels, width=WIDTH):
    return nn.Sequential(nn.Flatten(), nn.Linear(64 * channels, width), nn.ReLU(), nn.Linear(width, classes))

def headless(classes):
    return nn.Flatten()

def needy(classes, depth):
    return nn.Linear(depth, classes)

class Half:
    pass
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Write a recipe with my own files beside it; elsewhere is the current folder."""
    (tmp_path / "recipes").mkdir()
    name = f"mine_{abs(hash(tmp_path))}"  # a module is imported once per process
    (tmp_path / "recipes" / f"{name}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(data="mine:images", model="mine:network", more="", **other):
        text = RECIPE.format(data=data, model=model, more=more)
        for key, value in other.items():
            text = text.replace(f'{key} = "image"', f'{key} = "{value}"')
        path = tmp_path / "recipes" / "own.toml"
        path.write_text(text.replace("mine:", f"{name}:").replace("mine.py", f"{name}.py"))
        return path
    return write


@pytest.mark.parametrize("names", [{"data": "mine:images", "model": "mine:network"},
                                   {"data": "mine.py:images", "model": "mine.py:network"}], ids=["module", "file"])
def test_my_images_and_my_network_are_trained(recipe, tmp_path, names):
    folder = train(read_recipe(recipe(**names), ["train.epochs=20"]), tmp_path, "ce")
    assert RunDir(folder).final()["best_accuracy"] > 90


def test_the_options_of_the_model_reach_it(recipe):
    wide = read_recipe(recipe(), ["model_options.width=32", "arms.ce.model_options.head_scale=1e-9"])
    model = build_task("image", wide.task_spec("ce")).build()
    assert model.head.weight.shape == (3, 32)
    assert model.head.weight.abs().max() < 1e-8
    assert wide.config("ce", 0)["model_options"] == {"width": 32, "head_scale": 1e-9}


@pytest.mark.parametrize(("change", "words"), [
    ({"task": "imag"}, ["task: no task is called 'imag'", "Did you mean 'image'?"]),
    ({"task": "mine.py:Hafl"}, ["task: ", "has no 'Hafl'", "Did you mean 'Half'?"]),
    ({"task": "mine.py:Half"}, ["task: ", "is not a class of tasks", "encouraging.tasks.BaseTask"]),
    ({"task": "nowhere.py:Half"}, ["task: ", "there is no file nowhere.py in "]),
    ({"task": "nowhere:Half"}, ["task: ", "there is no module 'nowhere' in ", "nor installed"]),
    ({"task": ":Half"}, ["task: ':Half' names no module: expected module:name or file.py:name"]),
    ({"data": ".relative:images"}, ["data: ", "names no module"]),
    ({"data": "mine:image"}, ["data: ", "Did you mean 'images'?"]),
    ({"data": "mine:WIDTH"}, ["data: ", "has the type int: expected a function"]),
    ({"data": "digit"}, ["data: no dataset is called 'digit'", "Did you mean 'digits'?", "folder:PATH"]),
    ({"model": "mine:netwrok"}, ["model: ", "Did you mean 'network'?"]),
    ({"model": "digits_mpl"}, ["model: no model is called 'digits_mpl'", "Did you mean 'digits_mlp'?", "timm/NAME"]),
    ({"model": "mine:needy"}, ["model_options: ", "needs the argument 'depth'"]),
    ({"more": "model_options = { widht = 3 }"}, ["model_options: widht", "Did you mean 'width'?"]),
    ({"more": "options = { ood = ['mnits'] }"}, ["options.ood: ", "Did you mean 'mnist'?"]),
    ({"more": "arms.l = { margin = 2 }"}, ["model: margin = 2 needs a network of this package"]),
    ({"model": "timm/resnet18", "more": "model_options = { cosine = 3 }"}, ["model_options: cosine = 3: expected"]),
])
def test_a_wrong_name_is_answered_with_file_key_and_nearest_word(recipe, change, words):
    path = recipe(**change)
    with pytest.raises(RecipeError) as error:
        read_recipe(path)
    for word in [str(path), *words]:
        assert word in str(error.value), str(error.value)


def test_a_file_is_itself_whatever_else_has_its_name(tmp_path, monkeypatch):
    """Two recipes with a task.py each, and a file called like a module that is installed."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "task.py").write_text(f"where = {folder!r}")
        (tmp_path / folder / "json.py").write_text(f"where = {folder!r}")
    for name in ("task.py", "json.py"):
        for folder in ("a", "b"):
            assert load_object(f"{name}:where", str(tmp_path / folder)) == folder
    assert load_object("json:dumps")([]) == "[]"


def test_an_error_inside_my_file_is_my_own(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_inside.py").write_text("import no_such_package")
    for reference in ("broken_inside:x", "broken_inside.py:x"):
        with pytest.raises(ModuleNotFoundError, match="no_such_package"):
            load_object(reference, str(tmp_path))


@pytest.mark.parametrize(("returned", "words"), [
    ("3", "returned a int: expected a dict with train and test"),
    ("{'train': (x, y)}", "expected a dict with train and test"),
    ("{'train': 3, 'test': 3}", "train is a int: expected a pair of images and labels"),
    ("{'train': (x / 2, y), 'test': (x, y)}", "images of torch.float64 .* expected uint8"),
    ("{'train': (x, y[1:]), 'test': (x, y)}", r"labels \(9,\)"),
    ("{'train': (x, y / 2), 'test': (x, y)}", "labels of train are torch.float64"),
    ("{'train': (x, y - 1), 'test': (x, y)}", "from -1: expected integers from 0"),
    ("{'train': (x, y), 'test': (x[:, :5], y)}", r"test has images of \(1, 5, 8\).*expected one shape"),
    ("{'train': (x, y), 'test': (x, y + 1)}", "test has the class 2, which the training part does not have"),
    ("{'train': (x, y + 1), 'test': (x, y + 1)}", "the labels of train begin at 1: expected integers"),
    ("{'train': (x, 0 * y), 'test': (x, 0 * y)}", "all labels of train are 0: expected two classes or more"),
    ("{'train': (x[:0], y[:0]), 'test': (x, y)}", "for one image or more"),
    ("{'train': (n, y), 'test': (n, y)}", r"expected the channels before height and width, \(10, 3, 8, 8\)"),
])
def test_what_a_function_of_images_may_not_return_is_said(tmp_path, monkeypatch, returned, words):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "wrong.py").write_text(
        "import numpy as np\nx, y = np.zeros((10, 8, 8), np.uint8), np.arange(10) % 2\n"
        f"n = np.zeros((10, 8, 8, 3), np.uint8)\ndef images():\n    return {returned}\n")
    with pytest.raises(DataError, match=words):
        read_images("wrong.py:images", folder=str(tmp_path))


def test_a_folder_of_my_images_is_trained_on(recipe, tmp_path):
    for split in ("train", "test"):
        for shade, name in ((50, "ant"), (200, "bee")):
            (tmp_path / "images" / split / name).mkdir(parents=True)
            Image.new("L", (8, 8), shade).save(tmp_path / "images" / split / name / "0.png")
    path = recipe(data="folder:images")  # looked for in the current folder
    assert RunDir(train(read_recipe(path), tmp_path / "runs", "ce")).done


def test_runs_that_fail_with_the_same_words_share_a_line(recipe, tmp_path):
    (tmp_path / "half.py").write_text("def images():\n    return {'train': ([], [])}\n")
    said = io.StringIO()
    assert run_recipe(str(recipe(data="half.py:images")), seeds="4", out=tmp_path / "runs", device="cpu", threads=1,
                      jobs=1, console=Console(file=said, width=200)) == 1
    words = "failed: half.py:images returned a dict with train: expected a dict with train and test, each a pair"
    assert said.getvalue().count("failed: ") == 1
    assert f"ce seed 0, ce seed 1 and 2 more {words}" in said.getvalue()


def test_the_lines_of_a_traceback_stay_whole_in_a_narrow_terminal(recipe, tmp_path):
    line = f"    raise RuntimeError('{'long words ' * 9}')"
    (tmp_path / "bad.py").write_text(f"def images():\n{line}\n")
    said = io.StringIO()
    assert run_recipe(str(recipe(data="bad.py:images")), out=tmp_path / "runs", device="cpu", threads=1, jobs=1,
                      console=Console(file=said, width=60)) == 1
    assert line in said.getvalue().splitlines()
    assert "no finished run" in " ".join(said.getvalue().split())


def test_torchvision_has_models_with_options(recipe, tmp_path):
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    model = build_named("torchvision/resnet18", 5, 3, options={"zero_init_residual": True})
    assert model.head.out_features == 5
    assert model.body.layer1[0].bn2.weight.abs().max() == 0
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    for wrong, words in (({"name": "torchvision/resnet81"}, r"no model 'resnet81' .* Did you mean 'resnet18'\?"),
                         ({"name": "torchvision/resnet18", "channels": 1}, "takes images of 3 channels"),
                         ({"name": "torchvision/resnet18", "options": {"depth": 3}}, "does not take these options: "),
                         ({"name": "torchvision/retinanet_resnet50_fpn"}, "no model .* for image classification"),
                         ({"name": "torchvision/googlenet", "options": {"init_weights": False}}, "one output in"),
                         ({"name": "torchvision/squeezenet1_1"}, "last linear layer was expected")):
        with pytest.raises(RecipeError, match=words):
            build_named(**{"classes": 5, "channels": 3, **wrong})


def test_timm_has_models_with_options_for_any_number_of_channels(recipe, tmp_path):
    pytest.importorskip("timm", reason="timm is not installed: pip install timm")
    path = recipe(model="timm/resnet10t", more="model_options = { drop_rate = 0.3, head_scale = 1e-9 }")
    spec = read_recipe(path).task_spec("ce")
    model = build_task("image", spec).build()
    assert model.body.drop_rate == 0.3
    assert model.head.weight.abs().max() < 1e-8
    train(read_recipe(path), tmp_path / "runs", "ce")
    for wrong, words in (({"name": "timm/deit_tiny_distilled_patch16_224"}, "has several output layers"),
                         ({"name": "timm/resnet81"}, r"timm has no model 'resnet81'. Did you mean 'resnet18'\?"),
                         ({"name": "timm/resnet18", "options": {"depht": 3}}, "does not take these options: ")):
        with pytest.raises(RecipeError, match=words):
            build_named(**{"classes": 5, "channels": 3, **wrong})


def test_a_model_without_an_output_layer_is_refused(recipe, tmp_path):
    with pytest.raises(RecipeError, match=r"headless: its last linear layer was expected to be the output layer, with "
                                          r"3 outputs; found none. Return an encouraging.models.Classifier"):
        train(read_recipe(recipe(model="mine:headless")), tmp_path / "runs", "ce")


def test_a_model_whose_library_does_not_import_is_refused_before_any_run_starts(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    (tmp_path / "mine.toml").write_text(RECIPE.format(data="digits", model="timm/resnet10t", more=""))
    said = io.StringIO()
    with pytest.raises(RecipeError, match="mine needs the package timm: pip install timm"):
        run_recipe(str(tmp_path / "mine.toml"), device="cpu", jobs=1, out=tmp_path / "runs",
                   console=Console(file=said, width=200))
    assert "started" not in said.getvalue()
    assert not (tmp_path / "runs").exists()
