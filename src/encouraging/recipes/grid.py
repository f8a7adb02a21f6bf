"""The arms and seeds of a recipe as jobs, and how a job is trained."""

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
from ..engine.environment import cores as cores
from ..errors import RecipeError, RunError, did_you_mean
from ..tasks import Task, build_task
from .own_code import code_digests
from .schema import Recipe
from .trunks import Trunk, trunks


@dataclass(frozen=True)
class Job:
    """One arm and one seed: everything that another process needs to train it."""

    recipe: Recipe
    arm: str
    seed: int
    out: str
    device: str = "auto"
    data: str | None = None
    threads: int | None = None
    tracker: str | None = None
    at_once: int = 1  # the number of runs that are trained side by side
    needs: frozenset[Path] = frozenset()  # the folders of jobs that must have ended before this one starts
    trunk: Trunk | None = None  # the arm whose first epochs it shares, if that was trained
    branch: Branch | None = None  # a run of another recipe with the same first stage
    leaves: frozenset[int] = frozenset()  # the epochs after which other runs start from this one

    @property
    def folder(self) -> Path:
        return self.folder_of(self.arm)

    def folder_of(self, arm: str) -> Path:
        """The folder of another arm's run with the same seed; ``RECIPE/ARM`` is an arm of another recipe."""
        return Path(self.out) / (arm if "/" in arm else f"{self.recipe.name}/{arm}") / f"seed{self.seed}"

    @property
    def name(self) -> str:
        return f"{self.arm} seed {self.seed}"

    def names(self) -> tuple[Path, frozenset[Path]]:
        """For engine/sweep.py: the name of this job, and the names of the jobs that it needs."""
        return self.folder, self.needs


def jobs_of(recipe: Recipe, out: str, *, arms: Sequence[str] = (), **how: Any) -> list[Job]:
    """The jobs of a recipe, seed by seed, so that all arms have the first seeds early. An arm that starts from another
    one's weights, or shares its first epochs, comes after it and waits for it.

    Args:
        recipe: the recipe.
        out: the folder of all runs.
        arms: which arms; all by default.
        **how: other fields of :class:`Job`.
    """
    check_arms(recipe, arms)
    shared = trunks(recipe)
    chosen = tuple(dict.fromkeys(arms)) or tuple(recipe.arms)  # each once: two runs in one folder would collide

    def needed(arm: str) -> list[str]:
        return [name for name in (recipe.arms[arm].after, shared[arm].arm if arm in shared else None) if name]

    def depth(arm: str) -> int:
        return 1 + max((depth(name) for name in needed(arm) if name in recipe.arms), default=-1)

    # Also for arms that are not trained now: a later command may train them.
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


def default_threads(at_once: int) -> int:
    """The default number of threads per run: the cores divided among the runs, but at most ``OMP_NUM_THREADS``.

    torchrun sets this variable to 1 for its processes if the user has not set it, so it is ignored there. It may be a
    list, with one number per level of nesting; anything else is ignored, as OpenMP does.
    """
    per_run = max(1, cores() // at_once)
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if "WORLD_SIZE" in os.environ or not limit.isdecimal() or int(limit) < 1:
        return per_run
    return min(per_run, int(limit))


def train_job(job: Job, on_epoch: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Train a job, or continue it, or find it finished; returns its final numbers. If ``on_epoch`` has a method
    ``progress``, it is called with the progress within an epoch."""
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

    on_progress: Callable[[dict[str, Any]], None] | None = getattr(on_epoch, "progress", None)
    return execute(RunSpec(make_task, spec.stages, RunDir(job.folder), recipe.config(job.arm, job.seed), job.seed,
                           device, world, on_epoch=on_epoch, tracker=job.tracker, about=_about(job),
                           start_from=_start_folder(job), at_once=job.at_once, on_progress=on_progress,
                           branch=_branch(job), leaves=job.leaves))


def _about(job: Job) -> dict[str, Any]:
    """What a run directory stores in addition to its config: for reports, and the user's files it was started with."""
    code = code_digests(job.recipe, job.arm)
    return job.recipe.about_runs(job.arm) | ({"code": code} if code else {})


def _branch(job: Job) -> Branch | None:
    if job.trunk is None:
        return job.branch
    arm, epochs = job.trunk
    return Branch(job.folder_of(arm), job.recipe.config(arm, job.seed), epochs)


def _start_folder(job: Job) -> Path | None:
    """The finished run whose weights this one starts with; None if its arm has no ``after``."""
    after = job.recipe.arms[job.arm].after
    if after is None:
        return None
    folder = job.folder_of(after)
    if not RunDir(folder).done:
        other, _, arm = after.rpartition("/")
        raise RunError(f"{job.name} starts from the weights of {after}, but {folder} holds no finished run. Train "
                       f"{f'`encouraging run {other}` with ' if other else ''}--arm {arm} first.")
    return folder
