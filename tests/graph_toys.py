"""Small graphs for tests: as data of a recipe, as files of the TU collection, and how two ranks train on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from encouraging.data import Graphs, generator
from encouraging.engine import RunDir, RunSpec, execute
from encouraging.engine.distributed import World
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task

RECIPE = f"""
about = "Stars and rings."
task = "graph"
data = "{__file__}:stars_and_rings"
model = "sagpool_gcn"
model_options = {{ hidden = 16, dropout = 0.2 }}
options = {{ train = 0.5, validation = 0.25 }}
overlap = 0.5
seeds = 3
threads = 1
train = {{ epochs = 6, batch_size = 4, optimizer = "adam", lr = 0.01, weight_decay = 1e-4, monitor = "val_accuracy", patience = 3, conclude_on = "best" }}
arms.ce = {{ curve = "cross_entropy" }}
arms.el = {{ curve = "encouraging", log_end = 0.5 }}
arms.el_late = {{ curve = "encouraging", log_end = 0.5, bonus_from_epoch = 3 }}

[[claims]]
metric = "best_accuracy"
arm = "el_late"
beats = "ce"

[[claims]]
metric = "nll"
arm = "el"
beats = "ce"
better = "lower"
paper = {{ ce = 0.6, el = 0.5999 }}
"""  # noqa: E501


def edges_of(kind: int, size: int) -> list[tuple[int, int]]:
    """Both directions of a star (kind 0) or a ring (kind 1)."""
    pairs = [(0, i) for i in range(1, size)] if kind == 0 else [(i, (i + 1) % size) for i in range(size)]
    return sorted({pair for a, b in pairs for pair in ((a, b), (b, a)) if a != b})


def stars_and_rings(count: int = 60, features: int = 3) -> Graphs:
    """Graphs of 3 to 9 nodes with random features."""
    draw = generator(5)
    sizes = torch.randint(3, 10, (count,), generator=draw)
    x = torch.rand(int(sizes.sum()), features, generator=draw)
    return joined(x, [(number % 2, int(size)) for number, size in enumerate(sizes)])


def joined(x: Tensor, kinds: list[tuple[int, int]]) -> Graphs:
    start, pairs, edges = 0, [], []
    for kind, size in kinds:
        own = edges_of(kind, size)
        pairs += [(a + start, b + start) for a, b in own]
        edges.append(len(own))
        start += size
    return Graphs(x, torch.tensor(pairs).T.contiguous(), torch.tensor([size for _, size in kinds]),
                  torch.tensor(edges), torch.tensor([kind for kind, _ in kinds]), 2)


def write_tu(folder: Path, name: str = "TOY", **files: str | None) -> Path:
    """Two graphs in the TU layout: a triangle of the class -1 and a path of two nodes of the class 1. Files may be
    given other contents, or None to leave them out."""
    contents = {
        "A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n3, 3\n1, 2\n4, 5\n5, 4\n",  # with a loop, and an edge twice
        "graph_indicator": "1\n1\n1\n2\n2\n", "graph_labels": "-1\n1\n", "node_labels": "7\n5\n7\n6\n5\n", **files,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in contents.items():
        if text is not None:
            (folder / f"{name}_{part}.txt").write_text(text)
    return folder


def train_on(world: World, recipe: Path, folder: Path, *overrides: str) -> dict[str, Any]:
    """One arm and seed, on as many ranks as there are."""
    read = read_recipe(recipe, overrides)
    spec = read.task_spec("el")
    return execute(RunSpec(lambda: build_task("graph", spec), spec.stages, RunDir(folder), read.config("el", 0), 0,
                           spec.device, world, about=read.about_runs("el")))
