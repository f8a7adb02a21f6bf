"""What torch's own training parts, and models written for cross-entropy, make of the loss."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from encouraging import EncouragingLoss, encouraging_loss

CLASSES = 5


@pytest.mark.parametrize(("mode", "lowered"), [("rel", False), ("abs", True)])
def test_a_plateau_below_zero_is_seen_by_absolute_thresholds_alone(mode, lowered):
    """What the documentation warns of: relative thresholds, the default, take a constant loss for progress."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3, threshold_mode=mode)
    for _ in range(20):
        scheduler.step(-1.0)
    assert (optimizer.param_groups[0]["lr"] < 1.0) == lowered


@pytest.mark.parametrize("log_end", [0.0, 0.5, 1.0])
def test_log_probabilities_serve_as_logits(log_end):
    """Models that end in ``log_softmax``, as many for graphs do, need not change."""
    logits = 6 * torch.linspace(-9, 9, 9 * CLASSES, dtype=torch.float64).sin().view(9, CLASSES)
    labels = torch.arange(9) % CLASSES
    torch.testing.assert_close(encouraging_loss(F.log_softmax(logits, 1), labels, log_end=log_end),
                               encouraging_loss(logits, labels, log_end=log_end))


@pytest.mark.parametrize("weight", [None, torch.ones(CLASSES)])
def test_a_checkpoint_of_a_model_with_cross_entropy_loads_into_one_with_el(weight):
    class Model(nn.Module):
        def __init__(self, loss: nn.Module) -> None:
            super().__init__()
            self.body, self.loss = nn.Linear(3, CLASSES), loss

    saved = Model(nn.CrossEntropyLoss(weight=weight)).state_dict()
    model = Model(EncouragingLoss(log_end=0.5, weight=weight))
    model.load_state_dict(saved)  # strict: no key is missing or left over
    assert torch.equal(model.body.weight, saved["body.weight"])


def test_a_scaled_step_below_zero_is_the_unscaled_one():
    """GradScaler takes no offence at a negative loss."""
    inputs, labels = torch.eye(CLASSES), torch.arange(CLASSES)
    weights = []
    for enabled in (True, False):
        model = nn.Linear(CLASSES, CLASSES)
        model.load_state_dict({"weight": 9 * torch.eye(CLASSES), "bias": torch.zeros(CLASSES)})
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", enabled=enabled)
        loss = EncouragingLoss(log_end=0.5)(model(inputs), labels)
        assert loss < 0
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        weights.append(model.weight.detach())
    torch.testing.assert_close(*weights)
