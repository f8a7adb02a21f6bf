"""timm's four losses are the cross-entropy curve on the same targets, and EL takes these targets as they are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

timm_loss = pytest.importorskip("timm.loss", reason="needs the package timm (pip install timm)")

from timm.data.mixup import mixup_target  # noqa: E402

from encouraging import CurveLoss, EncouragingLoss, SigmoidCurveLoss, curves  # noqa: E402
from strategies import generator  # noqa: E402

SIZE, CLASSES, END = 12, 5, 0.5
CROSS_ENTROPY = curves.cross_entropy()


def logits_and_labels() -> tuple[Tensor, Tensor]:
    g = generator(0)
    return 4 * torch.randn(SIZE, CLASSES, generator=g), torch.randint(CLASSES, (SIZE,), generator=g)


def mixed() -> Tensor:
    return mixup_target(logits_and_labels()[1], CLASSES, lam=0.7, smoothing=0.1)


def test_soft_targets():
    logits, _ = logits_and_labels()
    torch.testing.assert_close(CurveLoss(CROSS_ENTROPY)(logits, mixed()),
                               timm_loss.SoftTargetCrossEntropy()(logits, mixed()))


def test_smoothing():
    logits, labels = logits_and_labels()
    torch.testing.assert_close(CurveLoss(CROSS_ENTROPY, label_smoothing=0.1)(logits, labels),
                               timm_loss.LabelSmoothingCrossEntropy(0.1)(logits, labels))


@pytest.mark.parametrize("soft", [False, True])
def test_binary_losses(soft):
    logits, labels = logits_and_labels()
    target = mixed() if soft else labels
    torch.testing.assert_close(SigmoidCurveLoss(CROSS_ENTROPY)(logits, target),
                               timm_loss.BinaryCrossEntropy(smoothing=0.0)(logits, target))


def test_el_on_mixed_targets_is_the_papers_formula():
    logits, _ = logits_and_labels()
    p = logits.double().softmax(1)
    tangent = torch.log(torch.tensor(1 - END)) - (p - END) / (1 - END)
    phi = -p.log() + torch.where(p <= END, torch.log1p(-p), tangent)
    torch.testing.assert_close(EncouragingLoss(log_end=END)(logits, mixed()).double(),
                               (mixed() * phi).sum(1).mean(), rtol=1e-5, atol=1e-6)
