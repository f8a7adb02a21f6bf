"""What a constant of 1e-10 does to an attack: PGD in L2 with and without it, on a model of cross-entropy and one of the
encouraging loss.

    python benchmarks/damped_l2.py        # scikit-learn's digits, a small network, a minute on one core

The paper's attack adds the constant to the length by which it divides the gradient of a batch's mean loss. Where a
model is confident, that gradient is shorter still.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from encouraging import EncouragingLoss
from encouraging.attacks import DAMPING, pgd_l2
from encouraging.data import load

EPSILONS = (0.3, 1.0, 3.0)
EXAMPLES = 512


def images(part: str) -> tuple[Tensor, Tensor]:
    pixels, labels = load("digits", part)
    return (pixels.float() / 16).reshape(-1, 1, 8, 8), labels


def trained(loss: nn.Module, x: Tensor, y: Tensor) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(),
                          nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(60):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    x, y = images("train")
    test, labels = (part[:EXAMPLES] for part in images("test"))
    print(f"{'accuracy under PGD in L2, %':<45s}" + "".join(f"{eps:>8g}" for eps in EPSILONS))
    for name, loss in (("cross-entropy", nn.CrossEntropyLoss()), ("encouraging, LE 1", EncouragingLoss(log_end=1.0))):
        model = trained(loss, x, y)
        for words, settings in (("damped, as in the paper", {"damping": DAMPING}), ("not damped", {}),
                                ("driven by the margin", {"loss": "margin"})):
            left = [100 * (model(pgd_l2(model, test, labels, eps, **settings)).argmax(1) == labels).double().mean()
                    for eps in EPSILONS]
            print(f"{name + ', ' + words:<45s}"[:45] + "".join(f"{value:>8.1f}" for value in left), flush=True)


if __name__ == "__main__":
    main()
