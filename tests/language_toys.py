"""A text that is easy to predict, and a recipe that learns it, for tests of language models."""

from __future__ import annotations

from pathlib import Path

from encouraging.engine import RunDir, RunSpec, execute
from encouraging.engine.distributed import World
from encouraging.recipes import read_recipe
from encouraging.tasks import build_task

LINE = "abcdefghijklm nopqrstuvwxyz.\n"  # a character says which one follows

RECIPE = f"""
about = "A line that is repeated."
task = "language"
data = "{__file__}:lines"
model = "gpt"
model_options = {{ layers = 1, width = 16, heads = 2, dropout = 0.1 }}
options = {{ context = 16, validation = 0.1, test = 0.1 }}
seeds = 2
threads = 1
train = {{ epochs = 3, batch_size = 8, optimizer = "adamw", lr = 0.02, weight_decay = 0.1, monitor = "val_loss", better = "lower", probe_every = 2 }}
arms.ce = {{ curve = "cross_entropy" }}
arms.el = {{ curve = "encouraging", log_end = 0.75 }}
arms.el_1 = {{ curve = "encouraging", log_end = 1.0, match_norm = true, label_smoothing = 0.1 }}

[[claims]]
metric = "bits"
arm = "el"
beats = "ce"
better = "lower"
"""  # noqa: E501


def lines() -> str:
    return 60 * LINE


def train_on(world: World, recipe: Path, folder: Path, *overrides: str) -> dict[str, object]:
    """One arm and seed, on as many ranks as there are."""
    read = read_recipe(recipe, overrides)
    spec = read.task_spec("el")
    return execute(RunSpec(lambda: build_task("language", spec), spec.stages, RunDir(folder),
                           read.config("el", 0), 0, spec.device, world, about=read.about_runs("el")))
