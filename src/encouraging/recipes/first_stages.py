"""Runs of several recipes with the same first stage: it is trained once.

Recipes that are trained together often have arms in common. Cross-entropy with the same data, network and seed may be
an arm of one recipe and the first stage of an arm of another. The second run then starts from the checkpoint that the
first one writes at the end of its stage: see engine/branches.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..engine.branches import Branch
from .grid import Job


def share_first_stages(jobs: Sequence[Job]) -> list[Job]:
    """The same jobs; of those with the same first stage and seed all but one wait for that one, and start from its
    checkpoint. Jobs of one recipe stay as they are: equal arms of a recipe are meant to be trained twice."""
    earliest: dict[str, Job] = {}
    shared: list[Job] = []
    for job in jobs:
        key = _first_stage(job)
        first = None if key is None else earliest.setdefault(key, job)
        if first is None or first.recipe.name == job.recipe.name:
            shared.append(job)
            continue
        epochs = first.recipe.stages_of(first.arm)[0].train.epochs
        branch = Branch(first.folder, first.recipe.config(first.arm, first.seed), epochs)
        shared.append(replace(job, needs=job.needs | {first.folder}, branch=branch))
    leaves: dict[Path, frozenset[int]] = {}
    for job in shared:
        if job.branch is not None:
            leaves[job.branch.run] = leaves.get(job.branch.run, frozenset()) | {job.branch.epochs}
    return [replace(job, leaves=job.leaves | leaves.get(job.folder, frozenset())) for job in shared]


def _first_stage(job: Job) -> str | None:
    """Everything that the first stage of a run depends on; None if it cannot be shared: if it starts from other
    weights, shares epochs already, may end at another epoch than planned, needs files of single epochs, or uses your
    own modules, which two recipes may find in different folders."""
    recipe, stage = job.recipe, job.recipe.stages_of(job.arm)[0]
    train = stage.train
    if (recipe.arms[job.arm].after is not None or job.trunk is not None or train.epochs == 0
            or train.max_steps is not None or train.patience is not None or train.conclude_on == "average"
            or any(":" in name for name in (recipe.task, recipe.data, recipe.model, stage.objective.curve))):
        return None
    config = recipe.config(job.arm, job.seed)
    first = {key: value for key, value in config.items() if key not in ("recipe", "arm", "stages")}
    first |= {key: first[key][0] for key in ("objectives", "train")}
    return json.dumps([first, stage.sampling.model_dump(), stage.reset, stage.freeze], sort_keys=True)
