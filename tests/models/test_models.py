"""The paper's networks, layer by layer where the paper says how."""

from __future__ import annotations

import re
import sys
from importlib import metadata

import pytest
import torch
from torch import nn

from encouraging import LSoftmaxLinear
from encouraging.data.picture_transforms import evaluation_transform
from encouraging.errors import DataError, RecipeError, install_words
from encouraging.models import MODELS, build_model
from encouraging.models.detection import build_detector
from encouraging.models.named import build_named
from encouraging.recipes import read_recipe
from encouraging.recipes.requirements import check_packages


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("margin", [None, 2])
def test_every_model_has_a_body_and_a_head(name, margin):
    channels, side = {"lsoftmax_cnn": (1, 28), "attack_cnn": (1, 28), "digits_mlp": (1, 8)}.get(name, (3, 32))
    model = build_model(name, 10, channels, margin)
    x, y = torch.randn(4, channels, side, side), torch.tensor([0, 1, 2, 3])
    assert model(x, y).shape == (4, 10)
    assert isinstance(model.head, LSoftmaxLinear if margin else nn.Linear)
    model.eval()
    assert torch.equal(model(x), model.head(model.body(x)))


def test_the_mnist_network_is_the_papers():
    model = build_model("lsoftmax_cnn", 10, 1)
    kinds = [type(layer).__name__ for layer in model.body]
    conv = ["Conv2d", "PReLU", "BatchNorm2d"]
    assert kinds == ["BatchNorm2d", *conv, *conv * 3, "MaxPool2d", *conv * 4, "MaxPool2d", *conv * 3, "MaxPool2d",
                     "Flatten", "Linear", "BatchNorm1d"]
    convolutions = [layer for layer in model.body if isinstance(layer, nn.Conv2d)]
    assert [layer.padding[0] for layer in convolutions] == [0] + [1] * 10
    assert all(layer.kernel_size == (3, 3) and layer.out_channels == 64 for layer in convolutions)
    assert model.head.bias is None
    assert (model.head.in_features, model.head.out_features) == (256, 10)


def test_he_networks_have_their_published_sizes():
    assert sum(p.numel() for p in build_model("resnet20", 10, 3).parameters()) == pytest.approx(0.27e6, rel=0.01)
    assert sum(p.numel() for p in build_model("resnet32", 10, 3).parameters()) == pytest.approx(0.46e6, rel=0.01)


def test_an_unknown_model_is_answered_with_the_nearest():
    with pytest.raises(RecipeError, match="Did you mean 'resnet18'"):
        build_model("resnet8", 10, 3)


def test_logits_keep_their_precision_under_autocast():
    model = build_model("digits_mlp", 10, 1)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.body(torch.randn(2, 1, 8, 8)).dtype == torch.bfloat16
        assert model(torch.randn(2, 1, 8, 8)).dtype == torch.float32


class Unusable:
    """Finds no module of a library that was built for another torch."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torchvision", "timm"):
            raise RuntimeError("operator torchvision::nms does not exist")


@pytest.mark.parametrize("use", [
    lambda: build_named("torchvision/resnet18", 10, 3),
    lambda: build_named("timm/resnet18", 10, 3),
    lambda: build_named("efficientnet_b0", 10, 3),
    lambda: check_packages(read_recipe("digits", ["model=torchvision/resnet18"])),
    lambda: check_packages(read_recipe("digits", ["model=timm/resnet18"])),
    lambda: build_detector("retinanet_resnet50_fpn", 3),
    lambda: evaluation_transform(40, 32, "bicubic"),
])
def test_a_library_that_was_built_for_another_torch_is_refused_in_words(use, monkeypatch):
    for name in [name for name in sys.modules if re.match(r"(torchvision|timm)\b", name)
                 or name == "encouraging.integrations.torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Unusable(), *sys.meta_path])
    found = {"torch": "2.13.0+cpu", "torchvision": "0.28.1", "timm": "1.0"}
    monkeypatch.setattr(metadata, "version", found.__getitem__)
    words = (r"torchvision 0\.28\.1 does not work with torch 2\.13\.0\+cpu .*nms does not exist.*: pip install "
             r"--force-reinstall torch==2\.13\.0 torchvision --index-url https://download\.pytorch\.org/whl/cpu$")
    with pytest.raises((RecipeError, DataError), match=words):
        use()


def test_what_else_a_library_lacks_is_named():
    lacks = ModuleNotFoundError("No module named 'torchvision'", name="torchvision")
    assert install_words("timm", lacks) == "the package timm, which needs torchvision: pip install torchvision."
    part = ModuleNotFoundError("No module named 'torchvision._C'", name="torchvision._C")
    assert "does not work with torch" in install_words("torchvision", part)
