"""A recipe's grid of arms and seeds as jobs, and how one job is carried out."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..engine import Order, RunDir, execute
from ..engine.distributed import World, join
from ..engine.environment import choose_device
from ..errors import RecipeError
from ..tasks import Setting, build_task
from .schema import Recipe


@dataclass(frozen=True)
class Job:
    """One arm and one seed: everything another process needs to train it."""

    recipe: Recipe
    arm: str
    seed: int
    out: str
    device: str = "auto"
    data: str | None = None
    threads: int | None = None
    tracker: str | None = None

    @property
    def folder(self) -> Path:
        return Path(self.out) / self.recipe.name / self.arm / f"seed{self.seed}"

    @property
    def name(self) -> str:
        return f"{self.arm} seed {self.seed}"


def jobs_of(recipe: Recipe, out: str, *, arms: Sequence[str] = (), **how: Any) -> list[Job]:
    """The grid, seeds outermost: after a while every arm has been trained with the first seeds."""
    for arm in arms:
        if arm not in recipe.arms:
            near = difflib.get_close_matches(arm, recipe.arms, n=1)
            raise RecipeError(f"--arm {arm}: {recipe.name} has the arms {', '.join(recipe.arms)}."
                              + (f" Did you mean {near[0]!r}?" if near else ""))
    return [Job(recipe, arm, seed, out, **how) for seed in recipe.seeds for arm in arms or recipe.arms]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def work(job: Job, on_epoch: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Train one job, or continue it, or find it done; its final numbers."""
    device = choose_device(job.device)
    world: World = join(device.type)
    if device.type == "cuda" and world.size > 1:
        device = torch.device("cuda", world.local)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    recipe, plan = job.recipe, job.recipe.plan(job.arm)

    def make_task() -> Any:
        return build_task(recipe.task, Setting(recipe.data, recipe.model, recipe.objectives(job.arm), plan, job.seed,
                                               device, job.data, recipe.options))

    return execute(Order(make_task, plan, RunDir(job.folder), recipe.asked(job.arm, job.seed), job.seed, device, world,
                         on_epoch=on_epoch, tracker=job.tracker))
