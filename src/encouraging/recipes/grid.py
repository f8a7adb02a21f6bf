"""A recipe's grid of arms and seeds as jobs, and how one job is carried out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..engine import RunDir, RunSpec, execute
from ..engine.branches import Branch
from ..engine.distributed import World, join
from ..engine.environment import choose_device
from ..errors import RecipeError, RunError, did_you_mean
from ..tasks import Task, build_task
from .schema import Recipe
from .trunks import Trunk, trunks


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
    at_once: int = 1  # how many runs are trained side by side
    needs: frozenset[Path] = frozenset()  # the folders of jobs that must have ended before this one starts
    trunk: Trunk | None = None  # the arm from which it branches off, if that was trained
    leaves: frozenset[int] = frozenset()  # the epochs after which others branch off from this one

    @property
    def folder(self) -> Path:
        return self.folder_of(self.arm)

    def folder_of(self, arm: str) -> Path:
        """Where the run of another arm with the same seed is; ``RECIPE/ARM`` is one of another recipe."""
        return Path(self.out) / (arm if "/" in arm else f"{self.recipe.name}/{arm}") / f"seed{self.seed}"

    @property
    def name(self) -> str:
        return f"{self.arm} seed {self.seed}"

    def names(self) -> tuple[Path, frozenset[Path]]:
        """For a sweep: what this job is called, and what must have ended before it starts."""
        return self.folder, self.needs


def jobs_of(recipe: Recipe, out: str, *, arms: Sequence[str] = (), **how: Any) -> list[Job]:
    """The grid, seeds outermost: after a while every arm has been trained with the first seeds. An arm that starts from
    another one's weights, or branches off from it, comes after it and waits for it."""
    check_arms(recipe, arms)
    shared = trunks(recipe)
    chosen = tuple(dict.fromkeys(arms)) or tuple(recipe.arms)  # each once: two runs in one folder would collide

    def needed(arm: str) -> list[str]:
        return [name for name in (recipe.arms[arm].after, shared[arm].arm if arm in shared else None) if name]

    def depth(arm: str) -> int:
        return 1 + max((depth(name) for name in needed(arm) if name in recipe.arms), default=-1)

    # Also for arms that are not asked for now: they may be later.
    leaves = {arm: frozenset(trunk.epochs for trunk in shared.values() if trunk.arm == arm) for arm in chosen}
    jobs = [Job(recipe, arm, seed, out, **how, trunk=shared.get(arm), leaves=leaves[arm])
            for seed in recipe.seeds for arm in sorted(chosen, key=depth)]
    return [replace(job, needs=frozenset(map(job.folder_of, needed(job.arm)))) for job in jobs]


def check_arms(recipe: Recipe, arms: Sequence[str]) -> None:
    """Raise a RecipeError for an arm that the recipe does not have."""
    for arm in arms:
        if arm not in recipe.arms:
            raise RecipeError(f"--arm {arm}: {recipe.name} has the arms {', '.join(recipe.arms)}."
                              + did_you_mean(arm, recipe.arms))


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads(at_once: int) -> int:
    """Threads per run where nothing else is said: the cores divided among the runs, and at most ``OMP_NUM_THREADS``.

    torchrun sets that variable to 1 for its processes where the user has not, so it does not count there. It may be a
    list, one number per level of nesting; what is no number is ignored, as OpenMP does.
    """
    share = max(1, cores() // at_once)
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if "WORLD_SIZE" in os.environ or not first.isdecimal() or int(first) < 1:
        return share
    return min(share, int(first))


def train_job(job: Job, on_epoch: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Train one job, or continue it, or find it done; its final numbers. Where ``on_epoch`` has a method ``progress``,
    that is told how far an epoch is."""
    device = choose_device(job.device)
    world: World = join(device.type)
    if device.type == "cuda" and world.size > 1:
        device = torch.device("cuda", world.local)
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    recipe = job.recipe
    spec = recipe.task_spec(job.arm, job.seed, device, job.data)

    def make_task() -> Task[Any]:
        return build_task(recipe.task, spec)

    told: Callable[[dict[str, Any]], None] | None = getattr(on_epoch, "progress", None)
    return execute(RunSpec(make_task, spec.stages, RunDir(job.folder), recipe.config(job.arm, job.seed), job.seed,
                           device, world, on_epoch=on_epoch, tracker=job.tracker, about=recipe.about_runs(job.arm),
                           start_from=_start(job), at_once=job.at_once, on_progress=told, branch=_branch(job),
                           leaves=job.leaves))


def _branch(job: Job) -> Branch | None:
    if job.trunk is None:
        return None
    arm, epochs = job.trunk
    return Branch(job.folder_of(arm), job.recipe.config(arm, job.seed), epochs)


def _start(job: Job) -> Path | None:
    """The finished run whose weights this one starts with, where its arm has an ``after``."""
    after = job.recipe.arms[job.arm].after
    if after is None:
        return None
    folder = job.folder_of(after)
    if not RunDir(folder).done:
        other, _, arm = after.rpartition("/")
        raise RunError(f"{job.name} starts from the weights of {after}, and {folder} holds no finished run. Train "
                       f"{f'`encouraging run {other}` with ' if other else ''}--arm {arm} first.")
    return folder
