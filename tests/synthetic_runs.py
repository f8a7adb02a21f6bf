"""Finished runs that nobody trained: real diagnoses of random logits, in records as runs leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from encouraging.engine.records import Record
from encouraging.metrics import Reader, summary
from encouraging.recipes import Recipe, read_recipe

ENVIRONMENT = {"python": "3.11.7", "torch": "2.13.0", "encouraging": "0.1.0", "device": "a card", "threads": 1}


def diagnosis(scale: float = 4.0, seed: int = 0, *, classes: int = 10, examples: int = 600,
              outside: tuple[str, ...] = (), shots: bool = False) -> dict[str, Any]:
    """What a model of this scale knows: the larger, the larger its margins, and the more it has right."""
    random = torch.Generator().manual_seed(seed)
    label = torch.randint(classes, (examples,), generator=random)
    logits = torch.randn(examples, classes, generator=random)
    logits[torch.arange(examples), label] += 2.2 + 0.05 * scale
    reader = Reader(classes)
    reader.update(scale * logits, label)
    for name in outside:
        reader.update_outside(scale * torch.randn(examples, classes, generator=random), name)
    counts = torch.tensor([500, 60, 5] * classes)[:classes] if shots else None
    return reader.diagnosis(counts=counts)


def record(recipe: str, arm: str, seed: int, scale: float = 4.0, *, attacks: bool = False,
           config: dict[str, Any] | None = None, epochs: int = 6, **how: Any) -> Record:
    """One finished run."""
    found = diagnosis(scale, seed, **how)
    best = found["accuracy"] + 0.1 * (seed + 1)
    final = {"schema": 1, "accuracy": found["accuracy"], "best_accuracy": best, "train_accuracy": 100.0,
             "excess_risk": 100.0 - found["accuracy"], **summary(found)}
    if attacks:
        final["attacks"] = {"fgsm": {"0": best, "0.1": best / 2, "0.3": best / (4 + scale)}, "pgd": {"0.1": best / 3}}
    lines = [{"stage": 1, "epoch": e, "loss": scale / e, "grad_norm": 1 / e**2, "accuracy": best - 20 / e,
              "test_loss": 0.3 + 1 / e} for e in range(1, epochs + 1)]
    timing = {"seconds": 12.0 + seed, "peak_memory_mib": 900.0, "epochs": epochs, "samples": 100.0 * epochs,
              **ENVIRONMENT}
    config = config or {"recipe": recipe, "arm": arm, "seed": seed, "task": "image", "data": "mine", "model": "mine",
                        "options": {}, "objectives": [{"loss": "curve", "curve": "encouraging", "log_end": 0.5}],
                        "train": [{"epochs": epochs, "batch_size": 64, "optimizer": "sgd", "lr": 0.1}]}
    return Record(config, dict(ENVIRONMENT), final, timing, lines, found)


def shipped(name: str, seeds: int = 5, **how: Any) -> list[Record]:
    """Runs of a recipe that comes with the package; every arm has larger margins than the one before."""
    recipe = read_recipe(name)
    return [record(name, arm, seed, 3.0 * (1 + place), config=recipe.config(arm, seed), **how)
            for place, arm in enumerate(recipe.arms) for seed in range(seeds)]


SCORES = {"ce": [99.40, 99.42, 99.45, 99.41, 99.44], "el": [99.55, 99.58, 99.57, 99.60, 99.56]}


def write_mnist_runs(folder: Path) -> Path:
    """Run directories of ten finished runs of the MNIST recipe, with the files that a run leaves."""
    recipe = read_recipe("mnist")
    for arm, scores in SCORES.items():
        for seed, score in enumerate(scores):
            run = folder / "mnist" / arm / f"seed{seed}"
            run.mkdir(parents=True)
            files = {"config": {"schema": 1, "fingerprint": "x", "asked": recipe.config(arm, seed), "environment": {}},
                     "final": {"schema": 1, "accuracy": score - 0.05, "best_accuracy": score, "train_accuracy": 100.0,
                               "excess_risk": 0.5},
                     "timing": {"schema": 1, "seconds": 30.0, "device": "a card", "torch": "2.11", "epochs": 100,
                                "samples": 6e6, "peak_memory_mib": 900.0}}
            for name, content in files.items():
                (run / f"{name}.json").write_text(json.dumps(content))
    return folder


def made_up(number: int, seeds: int = 3) -> tuple[Recipe, list[Record]]:
    """A recipe that nobody wrote, with its runs: two arms and the claims of the MNIST recipe, of which every third is
    met, every third fails, and the others are undecided."""
    tree = read_recipe("mnist").model_dump(exclude_unset=True)
    tasks = ("mnist", "cifar10", "cifar100")
    recipe = Recipe(**{**tree, "name": f"made-up-{number}", "data": tasks[number % 3],
                       "paper": f"Table {number}, made up", "about": f"The made-up recipe number {number}."})
    runs = [record(recipe.name, arm, seed, 3.0 * (1 + place), config=recipe.config(arm, seed), epochs=40,
                   outside=("fashion_mnist",)) for place, arm in enumerate(recipe.arms) for seed in range(seeds)]
    for run in runs:
        side = (1, -1, 0)[number % 3] * (run.arm == "el")
        run.final["best_accuracy"] = 99.0 + 0.01 * run.seed + side * (0.5 + 0.01 * run.seed) + (
            0.02 * (-1) ** run.seed if run.arm == "el" else 0)
    return recipe, runs
