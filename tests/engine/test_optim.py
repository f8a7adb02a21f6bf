"""The optimisers of the engine, and its learning rates."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from encouraging.engine import Train
from encouraging.engine.optim import CapturableSGD, RMSpropTF, build_optimizer, set_rate
from encouraging.engine.schedule import learning_rate
from encouraging.engine.task import ParameterGroup


@pytest.mark.parametrize("layout", ["channels_last", "odd gradient", "two types"])
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True},
                                      {"momentum": 0.9, "weight_decay": 0.1}])
def test_the_capturable_sgd_is_torchs(settings, layout):
    """In one kernel, and one operation after the other where that kernel cannot be had."""
    theirs, ours = ([nn.Parameter(tensor.clone()) for tensor in start]
                    for start in [[torch.linspace(-1, 1, 72).view(4, 2, 3, 3).to(memory_format=torch.channels_last),
                                   torch.ones(3, dtype=torch.float64 if layout == "two types" else torch.float32),
                                   torch.ones(2)]] * 2)
    optimizers = [torch.optim.SGD(theirs, 0.1, **settings), CapturableSGD(ours, torch.tensor(0.1), **settings)]
    for _ in range(5):
        for own, other in zip(theirs[:2], ours[:2], strict=True):  # the last one gets no gradient
            own.grad = torch.randn_like(own)
            other.grad = own.grad.clone(memory_format=torch.contiguous_format if layout == "odd gradient"
                                        else torch.preserve_format)
        for optimizer in optimizers:
            optimizer.step()
    for own, other in zip(theirs, ours, strict=True):
        torch.testing.assert_close(own, other)
    assert theirs[2].eq(1).all()


def test_a_plain_step_is_one_kernel_and_a_frozen_group_none(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "_fused_sgd_", lambda *given, **_: calls.append(len(given[0])))
    params = [nn.Parameter(torch.ones(2)) for _ in range(3)]
    params[0].grad, params[1].grad = torch.ones(2), torch.ones(2)
    CapturableSGD([{"params": params[:2]}, {"params": params[2:]}], torch.tensor(0.1), momentum=0.9).step()
    assert calls == [2]


@pytest.mark.parametrize("capturable", [False, True])
def test_every_group_has_its_own_rate(capturable):
    """On a GPU the rate is a tensor: groups that shared one would have the last one's."""
    params = [nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups = [ParameterGroup(params[:1]), ParameterGroup(params[1:], lr_scale=10.0)]
    optimizer = build_optimizer(Train(epochs=1, lr=0.1), groups, torch.device("cpu"), capturable)
    set_rate(optimizer, 0.5)
    for param in params:
        param.grad = torch.ones(1)
    optimizer.step()
    assert [param.item() for param in params] == [-0.5, -5.0]


def test_rmsprop_of_tensorflow_by_hand():
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = RMSpropTF([weight], 0.1, alpha=0.9, eps=1e-3, momentum=0.5)
    expected, square, buffer = 1.0, 1.0, 0.0
    for slope in (0.5, -0.2, 0.3):
        weight.grad = torch.tensor([slope])
        optimizer.step()
        square = 0.9 * square + 0.1 * slope**2
        buffer = 0.5 * buffer + 0.1 * slope / math.sqrt(square + 1e-3)
        expected -= buffer
    assert weight.item() == pytest.approx(expected, rel=1e-6)


def test_schedules_at_their_corners():
    def rate(epoch, step, steps=10, **settings):
        return learning_rate(Train(**{"epochs": 10, "lr": 1.0, **settings}), epoch, step, steps)

    assert rate(3, 25) == 1.0
    assert rate(4, 30, every=3) == pytest.approx(0.1)
    assert rate(3, 20, every=2.4, gamma=0.97) == 1.0
    assert rate(4, 30, every=2.4, gamma=0.97) == pytest.approx(0.97)
    assert rate(1, 0, schedule="cosine") == 1.0
    assert rate(6, 50, schedule="cosine") == pytest.approx(0.5)
    assert rate(10, 99, schedule="cosine") < 1e-3
    assert rate(1, 0, schedule="inverse_sqrt", warmup_steps=4) == pytest.approx(0.25)
    assert rate(1, 3, schedule="inverse_sqrt", warmup_steps=4) == pytest.approx(1.0)
    assert rate(2, 15, schedule="inverse_sqrt", warmup_steps=4) == pytest.approx(0.5)
    assert rate(1, 4, warmup_epochs=1, warmup_from=0.5) == pytest.approx(0.75)
