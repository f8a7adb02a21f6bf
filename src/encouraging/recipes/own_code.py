"""The user's own files behind a recipe: what its runs were started with, and which of them have changed since.

A file is no part of a run's settings, because a new comment does not make a new experiment. But runs of two versions of
a file must not be compared unnoticed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..engine import RunDir
from ..plugins import is_reference, source_file
from .schema import Recipe

if TYPE_CHECKING:
    from .grid import Job


def changed_code(jobs: Sequence[Job]) -> Iterator[str]:
    """One line per file of the user's that was changed after some of these runs were started."""
    started: dict[str, list[Job]] = {}
    digests = {arm: code_digests(recipe, arm) for arm, recipe in {job.arm: job.recipe for job in jobs}.items()}
    for job in jobs:
        run = RunDir(job.folder)
        if digests[job.arm] and not run.empty:
            recorded = run.read_config().get("code", {})
            for name, digest in digests[job.arm].items():
                if recorded.get(name, digest) != digest:
                    started.setdefault(name, []).append(job)
    for name, older in started.items():
        more = f" and {len(older) - 1} more of these runs were" if len(older) > 1 else " was"
        yield (f"{name} was changed after {older[0].name}{more} started. If it computes something else now, their "
               f"numbers do not belong together: choose another --out, or move {older[0].folder.parents[1]} away.")


def code_digests(recipe: Recipe, arm: str) -> dict[str, str]:
    """The digest of every file of the user's that the runs of this arm refer to, by the file's name."""
    spec = recipe.task_spec(arm)
    names = [recipe.task, spec.data, spec.model, *(stage.objective.curve for stage in spec.stages)]
    files = [source_file(name, spec.folder) for name in dict.fromkeys(names) if is_reference(name)]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files if file is not None}
