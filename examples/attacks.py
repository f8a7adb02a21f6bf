"""How robust is a classifier? It depends on what drives the attack.

Networks are trained on the handwritten digits that ship with scikit-learn, with cross-entropy and with encouraging
loss, and attacked by PGD. Beside them stand the cross-entropy networks with their logits multiplied by 8 and 32: the
same decisions, so the same robustness. Attacks that follow the gradient of cross-entropy say otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from encouraging import EncouragingLoss
from encouraging.attacks import Attack, accuracy_over_eps, masked_gradients
from encouraging.metrics import margin

SEEDS = 3
EPOCHS = 30
BATCH = 64
EPSILON = 0.1  # of the range from black to white

ATTACKS = {"PGD ce": Attack("pgd"), "PGD margin": Attack("pgd", loss="margin"), "PGD dlr": Attack("pgd", loss="dlr")}
LOSSES: dict[str, Callable[[], nn.Module]] = {
    "CE": nn.CrossEntropyLoss,
    "EL 0.75": lambda: EncouragingLoss(log_end=0.75),
    "EL 1": lambda: EncouragingLoss(log_end=1.0),
}
COLUMNS = ("clean %", "margin", "zero gradient %", *(f"{name} %" for name in ATTACKS))


class Scaled(nn.Module):
    """The same decisions, with larger logits."""

    def __init__(self, model: nn.Module, scale: float) -> None:
        super().__init__()
        self.model, self.scale = model, scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.model(x)


def main() -> None:
    torch.set_num_threads(1)  # the network is too small to share
    console = Console()
    began = time.perf_counter()
    rows, warning = measure()
    out = Table(title=f"Accuracy under attack, PGD with 40 steps at epsilon {EPSILON}",
                caption=f"Means over {SEEDS} seeds. margin: median over test images. zero gradient: test images\n"
                        "whose gradient of cross-entropy is exactly 0 everywhere. EL x: encouraging loss\n"
                        "whose log ends at p = x.")
    out.add_column("model", no_wrap=True)
    for name in COLUMNS:
        out.add_column(name, justify="right")
    for name, values in rows.items():
        out.add_row(name, *(f"{value:.1f}" for value in values))
    console.print(out)
    console.print(f"[bold]CE x 32, first seed.[/bold] {warning}", highlight=False)
    console.print(f"{time.perf_counter() - began:.0f} s", style="dim")


def measure() -> tuple[dict[str, list[float]], str]:
    """One row of numbers per model, and what the verdict says of the most flattered one."""
    train, test = load()
    runs: dict[str, list[list[float]]] = {}
    warnings = []
    for seed in range(SEEDS):
        models = {name: fit(train, loss(), seed) for name, loss in LOSSES.items()}
        models |= {f"CE x {scale}": Scaled(models["CE"], scale) for scale in (8, 32)}
        for name, model in models.items():
            result = accuracy_over_eps(model, *test, ATTACKS, [EPSILON])
            runs.setdefault(name, []).append([*about(model, *test), *(result.accuracy(a, EPSILON) for a in ATTACKS)])
            if name == "CE x 32":
                warnings += [verdict.words for verdict in masked_gradients(result)]
    return {name: torch.tensor(values).mean(0).tolist() for name, values in runs.items()}, warnings[0]


def about(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float, float]:
    """Accuracy, the median margin, and the percentage of images without any gradient of cross-entropy."""
    x = x.clone().requires_grad_()
    logits = model(x)
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(logits, y, reduction="sum"), x)
    margins = margin(logits.detach(), y)
    return (100 * (margins > 0).float().mean().item(), margins.median().item(),
            100 * (gradient == 0).all(1).float().mean().item())


def load() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16, labels, test_size=0.5, stratify=labels, random_state=0)
    x, x_test, y, y_test = (torch.from_numpy(part) for part in parts)
    return (x.float(), y.long()), (x_test.float(), y_test.long())


def fit(train: tuple[Tensor, Tensor], loss: nn.Module, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    order = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(train[1]), generator=order).split(BATCH):
            optimizer.zero_grad()
            loss(model(train[0][rows]), train[1][rows]).backward()
            optimizer.step()
    return model


if __name__ == "__main__":
    main()
