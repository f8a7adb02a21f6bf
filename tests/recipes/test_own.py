"""Bring your own: data, model and task by name, from files beside the recipe; what is wrong with them is said."""

from __future__ import annotations

import io
import random
import sys
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from encouraging.commands.run import run_recipe
from encouraging.data.class_folders import list_class_folders
from encouraging.data.images import folder_path, read_images
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


def draw(path, mode="L", size=(8, 8), value=100):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new(mode, size, value if mode in ("L", "I;16") else (value, 0, 0, 255)[: len(mode)])
    picture.save(path)


@pytest.fixture
def folder(tmp_path):
    for split, count in (("train", 4), ("test", 2)):
        for label, name in enumerate(("ant", "bee")):
            for number in range(count):
                draw(tmp_path / "images" / split / name / f"{number}.png", value=50 + 150 * label + number)
    return tmp_path / "images"


def read(folder, **how):
    return read_images(f"folder:{folder}", **how)


def test_a_folder_per_class_is_a_dataset(folder, recipe, tmp_path):
    images = read(folder)
    assert (images.names, images.classes, images.channels) == (("ant", "bee"), 2, 1)
    x, y = images.splits["train"]
    assert (x.shape, x.dtype, y.tolist()) == ((8, 1, 8, 8), torch.uint8, [0, 0, 0, 0, 1, 1, 1, 1])
    assert x[:, 0, 0, 0].tolist() == [50, 51, 52, 53, 200, 201, 202, 203]
    assert images.mean[0] == pytest.approx(x.double().mean().item() / 255)
    assert images.std[0] == pytest.approx((x.double() / 255).std(unbiased=False).item())
    path = recipe(data=f"folder:{folder.name}", model="mine:network")  # looked for in the current folder
    train(read_recipe(path), tmp_path / "runs", "ce")


def test_grey_images_become_coloured_where_one_is(folder):
    """Also where the coloured one is in the other split."""
    draw(folder / "test" / "bee" / "red.png", "RGB", value=255)
    images = read(folder)
    assert images.channels == 3
    assert images.splits["train"][0].shape[1:] == images.splits["test"][0].shape[1:] == (3, 8, 8)
    assert images.splits["train"][0][0, :, 0, 0].tolist() == [50, 50, 50]
    draw(folder / "train" / "ant" / "clear.png", "RGBA", value=200)
    assert read(folder).splits["train"][0][4, :, 0, 0].tolist() == [200, 0, 0]


def test_mixed_sizes_need_a_size(folder):
    draw(folder / "train" / "ant" / "wide.png", size=(16, 8))
    with pytest.raises(DataError, match=r"images of 2 sizes \(8 x 8, 16 x 8.*options.size"):
        read(folder)
    assert read(folder, size=6).splits["train"][0].shape == (9, 1, 6, 6)
    (folder / "train" / "ant" / "wide.png").unlink()
    for path in folder.glob("test/*/*.png"):
        draw(path, size=(9, 9))
    with pytest.raises(DataError, match=r"train has images of \(1, 8, 8\) and test has images of \(1, 9, 9\)"):
        read(folder)


def test_the_middle_of_a_resized_image_is_kept(folder):
    striped = np.zeros((8, 24), np.uint8)
    striped[:, 8:16] = 255
    Image.fromarray(striped).save(folder / "train" / "ant" / "a.png")
    images = read(folder, size=8).splits["train"][0]
    assert (images[4] == 255).all()  # after the digits in alphabetical order


def test_sixteen_bits_keep_their_shades_and_thirty_two_are_refused(folder):
    for number, value in enumerate((0, 257 * 30, 257 * 255)):
        draw(folder / "train" / "ant" / f"deep{number}.png", "I;16", value=value)
    assert read(folder).splits["train"][0][4:7, 0, 0, 0].tolist() == [0, 30, 255]
    (folder / "train" / "ant" / "deep3.pgm").write_bytes(b"P5 8 8 65535\n" + (257 * 40).to_bytes(2, "big") * 64)
    assert read(folder).splits["train"][0][7, 0, 0, 0] == 40
    Image.new("F", (8, 8), 0.5).save(folder / "train" / "ant" / "float.tiff")
    with pytest.raises(DataError, match=r"float.tiff: .*32 bits per pixel"):
        read(folder)


def test_a_palette_with_transparent_colours_is_read_without_a_warning(folder):
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, 200, 100, 50])
    picture.save(folder / "train" / "ant" / "palette.png", transparency=bytes([0, 128]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = read(folder).splits["train"][0]
    assert images[4, :, 0, 0].tolist() == [200, 100, 50]


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "bmp"])
def test_a_broken_file_is_named_whatever_is_wrong_with_it(folder, ending):
    """Cut off or changed at any byte it is either read or refused in words."""
    path = folder / "train" / "ant" / f"broken.{ending}"
    draw = np.random.default_rng(0)
    Image.fromarray(draw.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    whole, choose, refused = path.read_bytes(), random.Random(0), 0
    cuts = [whole[:at] for at in choose.sample(range(len(whole)), 25)]
    flips = [bytes(whole[:at]) + bytes([whole[at] ^ (1 << choose.randrange(8))]) + bytes(whole[at + 1 :])
             for at in choose.sample(range(len(whole)), 40)]
    for content in (*cuts, *flips):
        path.write_bytes(content)
        said = refusal(folder)
        refused += said is not None
        assert said is None or str(path) in said
    assert refused >= 5


def refusal(folder):
    try:
        read(folder, size=8)
    except DataError as error:
        return str(error)
    return None


def test_a_class_without_training_images_is_refused_and_one_without_test_images_is_not(folder):
    (folder / "train" / "cat" / "nested").mkdir(parents=True)
    with pytest.raises(DataError, match=r"cat: no images; expected files ending in \.png"):
        read(folder)
    draw(folder / "train" / "cat" / "nested" / "0.png")
    assert read(folder).classes == 3


@pytest.mark.parametrize(("name", "advised"), [("ant", True), ("test", False)])
def test_classes_that_are_not_divided_into_two_parts_are_noticed(tmp_path, name, advised):
    for kind in (name, "bee"):
        draw(tmp_path / kind / "0.png")
    with pytest.raises(DataError, match="expected a folder train in it") as error:
        read(tmp_path)
    assert ("between two folders, here train/ant and test/ant" in str(error.value)) == advised


def test_images_of_folders_are_those_that_are_listed_for_the_task_of_files(folder):
    """In folders within a class too; none is left out unnoticed."""
    for name in ("ant", "bee"):
        draw(folder / "train" / name / "sub" / "1.png", value=77)
    images, labels = read(folder).splits["train"]
    listed = list_class_folders(folder, "train")
    assert len(images) == len(listed)
    assert labels.tolist() == listed.labels.tolist()
    assert int((images == 77).all(3).all(2).all(1).sum()) == 2
    draw(folder / "train" / "loose.png")
    with pytest.raises(DataError, match=r"train/loose\.png: outside of the folders of classes"):
        read(folder)


def test_hidden_files_and_folders_are_neither_images_nor_classes(folder):
    before = [len(labels) for _, labels in read(folder).splits.values()]
    for split in ("train", "test"):
        (folder / split / "ant" / "._0.png").write_bytes(b"\0\5\x16\7")  # as macOS leaves them on other systems' disks
        draw(folder / split / ".ipynb_checkpoints" / "0.png")
    images = read(folder)
    assert [len(labels) for _, labels in images.splits.values()] == before
    assert images.names == ("ant", "bee")


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


def test_what_is_missing_in_a_folder_is_said(folder, tmp_path, monkeypatch):
    draw(folder / "test" / "cat" / "0.png")
    with pytest.raises(DataError, match="test has the class 'cat', which the training part does not have"):
        read(folder)
    with pytest.raises(DataError, match=r"no such folder; looked for .*nowhere"):
        read(tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:  # the folder of the recipe is the current one
        folder_path("folder:nowhere", tmp_path / "data", str(tmp_path))
    assert str(caught.value).count("nowhere") == 3  # the name itself and two places
    for name in ("0", "1"):
        (folder / "test" / "cat" / f"{name}.png").unlink(missing_ok=True)
    for path in folder.glob("test/*/*.png"):
        path.unlink()
    (folder / "test" / "cat").rmdir()
    with pytest.raises(DataError, match=r"test/ant.*: no images; expected files ending in .png"):
        read(folder)
    (folder / "only" / "train" / "ant").mkdir(parents=True)
    with pytest.raises(DataError, match="one folder per class, two or more; found 1"):
        read(folder / "only")
    (folder / "only" / "train" / "bee").mkdir()
    with pytest.raises(DataError, match="expected a folder test or val in it"):
        read(folder / "only", splits=("test",))


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
