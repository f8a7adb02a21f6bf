"""ResNet-32 and the cosine head of the long-tail literature, written down a second time here."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encouraging import LDAMLoss
from encouraging.errors import RecipeError
from encouraging.models import MODELS, CosineLinear, build_model
from encouraging.models.named import build_named, check_named
from encouraging.models.resnet import Block


def plain_forward(body: nn.Sequential, x: Tensor) -> Tensor:
    """He's network from its parameters alone; option A: every second pixel, zeros on both sides of the channels."""
    conv, norm = body[0], body[1]

    def normed(layer: nn.BatchNorm2d, values: Tensor) -> Tensor:
        return F.batch_norm(values, None, None, layer.weight, layer.bias, training=True)

    x = F.relu(normed(norm, F.conv2d(x, conv.weight, padding=1)))
    width = 16
    for stage in range(3):
        for block in range(5):
            layer = body[3 + 5 * stage + block]
            stride = 2 if stage and not block else 1
            out = F.relu(normed(layer.norm1, F.conv2d(x, layer.conv1.weight, stride=stride, padding=1)))
            out = normed(layer.norm2, F.conv2d(out, layer.conv2.weight, padding=1))
            if stride == 2:
                width *= 2
                x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, width // 4, width // 4))
            x = F.relu(out + x)
    return F.avg_pool2d(x, x.shape[-1]).flatten(1)


def test_resnet32_is_the_literature_s() -> None:
    torch.manual_seed(0)
    model = build_model("resnet32", 100, 3)
    assert sum(p.numel() for p in model.body.parameters()) == 463_504
    assert sum(p.numel() for p in build_model("resnet32", 10, 3).parameters()) == 464_154
    assert all(block.short is None for block in model.modules() if isinstance(block, Block))
    assert sum(isinstance(module, nn.Conv2d | nn.Linear) for module in model.modules()) == 32
    x = torch.randn(8, 3, 32, 32)
    torch.testing.assert_close(model.body(x), plain_forward(model.body, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet20", "resnet32"])
def test_all_weights_start_from_kaiming_s_normal(name: str) -> None:
    torch.manual_seed(0)
    for module in build_model(name, 100, 3).modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            assert float(module.weight.detach().std()) == pytest.approx(math.sqrt(2 / fan_in), rel=0.12)


def test_cosine_logits_do_not_depend_on_any_length() -> None:
    torch.manual_seed(0)
    layer, x = CosineLinear(64, 10), torch.randn(5, 64)
    assert layer.weight.detach().norm(dim=1).tolist() == pytest.approx([1.0] * 10)
    logits = layer(x)
    assert bool((logits.abs() <= 1).all())
    for row in range(5):
        for c in range(10):
            cosine = x[row] @ layer.weight[c] / (x[row].norm() * layer.weight[c].norm())
            assert logits[row, c].item() == pytest.approx(cosine.item(), abs=1e-6)
    with torch.no_grad():
        layer.weight.mul_(7)
    torch.testing.assert_close(layer(30 * x), logits)
    assert torch.isfinite(layer(torch.zeros(1, 64))).all()


@pytest.mark.parametrize("name", MODELS)
def test_every_network_can_have_a_cosine_head_and_learns_through_ldam(name: str) -> None:
    channels, side = {"lsoftmax_cnn": (1, 28), "attack_cnn": (1, 28), "digits_mlp": (1, 8)}.get(name, (3, 32))
    model = build_model(name, 10, channels, cosine=True)
    assert isinstance(model.head, CosineLinear)
    loss = LDAMLoss(torch.arange(1, 11))
    loss(model(torch.randn(4, channels, side, side)), torch.tensor([0, 1, 2, 9])).backward()
    assert model.head.weight.grad is not None
    assert model.head.weight.grad.abs().sum() > 0
    with pytest.raises(RecipeError, match="leave one of the two out"):
        build_model(name, 10, channels, margin=2, cosine=True)


def test_a_recipe_s_model_options_choose_the_cosine_head() -> None:
    check_named("resnet32", {"cosine": True})
    assert isinstance(build_named("resnet32", 10, 3, options={"cosine": True}).head, CosineLinear)
    assert isinstance(build_named("resnet32", 10, 3, options={"cosine": False}).head, nn.Linear)
    with pytest.raises(RecipeError, match="expected true or false"):
        check_named("resnet32", {"cosine": 1})
    with pytest.raises(RecipeError, match="leave one of the two out"):
        check_named("resnet32", {"cosine": True}, margin=2)
    with pytest.raises(RecipeError, match="takes no options but head_init, head_scale, cosine"):
        check_named("resnet32", {"cosin": True})
