"""EfficientNet-B0 of the paper's CIFAR experiments: where it differs from timm's."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from encouraging.errors import RecipeError
from encouraging.models import build_model
from encouraging.models.named import build_named, packages_of

pytest.importorskip("timm", reason="timm is in the extra 'vision'")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return build_model("efficientnet_b0", 10, 3)


def test_it_has_the_published_size(model):
    assert sum(p.numel() for p in model.body.parameters()) + 1280 * 1000 + 1000 == 5_288_548


def test_every_residual_branch_is_dropped_with_the_same_probability(model):
    blocks = [block for stage in model.body.blocks for block in stage if block.has_skip]
    assert len(blocks) == 9
    assert [block.drop_path.drop_prob for block in blocks] == [0.2] * 9
    assert model.body.drop_rate == 0.2


def test_convolutions_start_from_a_fan_out_that_counts_all_groups(model):
    depthwise = 0
    for module in model.body.modules():
        if isinstance(module, nn.Conv2d):
            depthwise += module.groups > 1
            fan_out = module.out_channels * module.kernel_size[0] ** 2
            assert float(module.weight.detach().std()) == pytest.approx(math.sqrt(2 / fan_out), rel=0.2)
    assert depthwise == 16


def test_the_output_layer_starts_uniform_between_the_inverse_roots_of_the_classes(model):
    weight = model.head.weight.detach()
    assert weight.abs().max() <= 10 ** -0.5
    assert float(weight.std()) == pytest.approx((10 * 3) ** -0.5, rel=0.03)
    assert not model.head.bias.any()


@pytest.mark.parametrize("path", ["conv_stem", "blocks.1.0.conv_dw", "blocks.2.0.conv_dw"])
def test_images_are_padded_at_their_far_ends_first(model, path):
    """TensorFlow's padding where the stride is 2: kernel - 2 pixels in all, the odd one on the right and below."""
    layer = model.body.get_submodule(path)
    images = torch.randn(2, layer.in_channels, 8, 8)
    near = (layer.kernel_size[0] - 2) // 2
    far = layer.kernel_size[0] - 2 - near
    expected = F.conv2d(F.pad(images, (near, far, near, far)), layer.weight, stride=2, groups=layer.groups)
    torch.testing.assert_close(layer(images), expected)


def test_without_timm_it_is_refused_in_words(monkeypatch):
    assert packages_of("efficientnet_b0") == ("timm",)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(RecipeError, match="efficientnet_b0 needs the package timm"):
        build_named("efficientnet_b0", 10, 3)
