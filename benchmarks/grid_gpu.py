"""Runs of several recipes side by side on one GPU, as many as fit into a given time; what is cut off resumes.

    python benchmarks/grid_gpu.py OUT RECIPE:SEEDS[:ARM,ARM,...] ... --data DIR --jobs 10 --seconds 540

SEEDS is how many, or a list such as [4] or [1,4]. Without arms a recipe's are all meant. The runs are started in the
order of the words, seed by seed; one that starts from another one's weights, or branches off from it, when that has
ended. What runs of several recipes have in common, a whole training or its first stage, is trained once. After
``--seconds`` every run writes a checkpoint and stops: the same command continues them. The records of finished runs
are then in OUT-records, one file per run or, with ``--by-arm``, per arm. ``--recorded DIR`` leaves out what has a
record in DIR, unless another run needs its weights. ``--lean`` removes the checkpoints of finished runs from which no
arm of these recipes, or of the package's own, starts, and the weights of single epochs that an average was made of.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from encouraging.engine import RunDir, sweep
from encouraging.engine.records import collect, collect_by_arm, read_records
from encouraging.errors import RecipeError, RunError
from encouraging.recipes import Recipe, names, read_recipe
from encouraging.recipes.first_stages import share_first_stages
from encouraging.recipes.grid import Job, jobs_of, train_job


def planned(words: list[str], args: argparse.Namespace) -> list[Job]:
    """The jobs of all words that are not finished yet, each once. Raises a RunError for a run that was finished with
    other settings, which would count as one with these, and a RecipeError for what no recipe has."""
    jobs: dict[Path, Job] = {}
    for word in words:
        name, colon, rest = word.partition(":")
        if not colon:
            raise RunError(f"{word}: expected RECIPE:SEEDS[:ARM,...]")
        seeds, *arms = rest.split(":")
        recipe = read_recipe(name, [f"seeds={seeds}", f"train.checkpoint_seconds={args.checkpoint}", *args.set])
        chosen = arms[0].split(",") if arms else ()
        for job in jobs_of(recipe, str(args.out.resolve()), arms=chosen, device=args.device,
                           data=str(args.data.resolve()), threads=1, at_once=args.jobs):
            jobs.setdefault(job.folder, job)
    wanted = list(jobs.values()) if args.recorded is None else unrecorded(list(jobs.values()), args.recorded)
    for job in wanted:
        RunDir(job.folder).refuse_other(job.recipe.config(job.arm, job.seed))
    left = [job for job in share_first_stages(wanted) if not RunDir(job.folder).done]
    return [replace(job, at_once=min(args.jobs, len(left))) for job in left]


def unrecorded(jobs: list[Job], folder: Path) -> list[Job]:
    """The jobs that have no record there, and those from whose weights one of them starts: records have no weights."""
    known = {(record.recipe, record.arm, record.seed) for record in read_records(folder)}
    chosen = {job.folder for job in jobs if (job.recipe.name, job.arm, job.seed) not in known}
    while more := {needed for job in jobs if job.folder in chosen for needed in job.needs} - chosen:
        chosen |= more
    return [job for job in jobs if job.folder in chosen]


def starting_points(recipes: Iterable[Recipe]) -> set[str]:
    """RECIPE/ARM of every arm from whose weights another one starts, in its own recipe or in another."""
    return {arm.after if "/" in arm.after else f"{recipe.name}/{arm.after}"
            for recipe in recipes for arm in recipe.arms.values() if arm.after is not None}


class Printed:
    """One line per run that ended; and a lean disk: of runs in ``kept``, as RECIPE/ARM, all checkpoints stay."""

    def __init__(self, total: int, lean: bool, kept: Collection[str] = ()) -> None:
        self.total, self.lean, self.kept, self.ended, self.stopped, self.failed = total, lean, kept, 0, 0, 0
        self.start = time.monotonic()

    def __call__(self, event: sweep.Event) -> None:
        if not event.last:
            return
        self.ended += 1
        self.stopped += event.kind == "stopped"
        self.failed += event.kind == "failed"
        if event.kind == "done":
            primary = event.job.recipe.needs().primary
            assert primary is not None
            shown = {primary.words: primary.path, "best": f"best_{primary.path}"}
            words = ", ".join(f"{name} {event.detail[path]:.2f}" for name, path in shown.items()
                              if path in event.detail)
            if self.lean and f"{event.job.recipe.name}/{event.job.arm}" not in self.kept:
                for path in (*event.job.folder.glob("checkpoint-*"), *event.job.folder.glob("epoch-*")):
                    path.unlink()
        else:
            words = f"{event.kind}: {str(event.detail).strip().splitlines()[-1][:160]}"
        print(f"{time.monotonic() - self.start:5.0f} s  {self.ended}/{self.total} {event.job.recipe.name} "
              f"{event.job.name}: {words}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder for run directories")
    parser.add_argument("plan", nargs="+", metavar="RECIPE:SEEDS[:ARM,...]")
    parser.add_argument("--data", type=Path, required=True, help="the data directory")
    parser.add_argument("--device", default="cuda", help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=8, help="runs at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1e9, help="when to stop (default: when all are finished)")
    parser.add_argument("--checkpoint", type=float, default=120.0, help="seconds between two checkpoints of a run")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a setting of all")
    parser.add_argument("--recorded", type=Path, metavar="DIR", help="leave out runs that have a record in this folder")
    parser.add_argument("--lean", action="store_true", help="remove checkpoints that nothing needs any more")
    parser.add_argument("--by-arm", action="store_true", help="one file of records per arm instead of one per run")
    args = parser.parse_args()
    try:
        jobs = planned(args.plan, args)
    except (RecipeError, RunError) as error:
        parser.error(str(error))
    recipes = [*map(read_recipe, names()), *(job.recipe for job in jobs)] if args.lean else []
    display = Printed(len(jobs), args.lean, starting_points(recipes))
    timer = threading.Timer(args.seconds, os.kill, (os.getpid(), signal.SIGTERM))
    timer.daemon = True
    timer.start()
    sweep.run_pool(jobs, train_job, display, args.jobs, Job.names)
    timer.cancel()
    records = Path(f"{args.out}-records")
    if any(args.out.rglob("final.json")):
        (collect_by_arm if args.by_arm else collect)(args.out, records)
        took: dict[str, list[float]] = {}
        for record in read_records(records):
            took.setdefault(record.recipe, []).append(float(record.timing["seconds"]))
        for name, times in took.items():
            print(f"{name}: {len(times)} records in {records}, median {statistics.median(times):.0f} s of training per "
                  f"run with {args.jobs} at once", flush=True)
    left = len(jobs) - display.ended + display.stopped
    words = f"{display.failed} runs failed; " if display.failed else ""
    print(words + (f"{left} runs are unfinished: the same command continues them" if left else "all others are finished"
                   if words else "all runs are finished"))
    return 1 if display.failed else 130 if left else 0


if __name__ == "__main__":
    raise SystemExit(main())
