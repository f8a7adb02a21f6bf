"""``encouraging run``: train a recipe's grid, then print the table and where everything is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import torch
from rich.console import Console

from ..data import absent, data_dir, download, missing
from ..data.fetch import is_whole
from ..data.images import folder_path
from ..engine import RunDir, sweep
from ..engine.distributed import World, join, leave
from ..engine.environment import choose_device
from ..engine.outputs import make_folder
from ..engine.ray_cluster import run_ray
from ..engine.records import Record
from ..engine.together import run_together
from ..engine.tracker import check_tracker
from ..errors import DataError, RecipeError, RunError
from ..judge.claims import finals_of
from ..judge.looks import LookPlan, plan_of
from ..judge.metric_book import book_for
from ..recipes import Recipe, departures_of, read_recipe, read_runs
from ..recipes.grid import Job, check_arms, cores, default_threads, jobs_of, train_job
from ..recipes.own_code import changed_code
from ..recipes.requirements import check_packages, datasets_of
from ..recipes.sweep import narrowed, sweep_recipe
from ..recipes.unreached import unreached
from ..report.numbers import plural
from .claim_notes import check_directions, unknown_metrics
from .progress import ProgressDisplay, failures
from .run_table import print_table
from .until_decided import check_until_decided, make_plan, train_to_looks


def run_recipe(name: str, *, arms: Sequence[str] = (), seeds: str | None = None, device: str = "auto",
               out: str | Path = "runs", data: str | None = None, overrides: Sequence[str] = (),
               jobs: int | None = None, threads: int | None = None, ray: str | None = None,
               track: str | None = None, fetch: bool = False, sweeps: Sequence[str] = (), until_decided: bool = False,
               dry_run: bool = False, console: Console | None = None) -> int:
    """Train every arm and seed that is not finished yet; with ``sweeps``, copies of an arm with other values; with
    ``until_decided``, seeds until every claim is decided; with ``dry_run``, nothing: say what would be done.

    Returns:
        The exit code: 0 when all runs are finished, 1 when some failed, 130 when they were stopped.
    """
    recipe = read_recipe(name, [*overrides, *([f"seeds={_seeds(seeds)}"] if seeds is not None else [])])
    if sweeps and until_decided:
        raise RecipeError("--sweep with --until-decided: the values of a sweep are judged once, over the seeds that "
                          "you name. Use one of the two.")
    if until_decided:
        check_until_decided(recipe, arms, seeds)
    check_arms(recipe, arms)
    check_directions(recipe, book_for(recipe))
    if sweeps:
        recipe, arms = sweep_recipe(recipe, sweeps, arms)
    shown = narrowed(recipe, arms, book_for(recipe).compared) if sweeps else recipe
    console = console or Console()
    check_tracker(track)  # refused once, instead of once per run
    chosen = choose_device(device)
    jobs = jobs or _default_jobs(recipe, chosen.type, threads)
    threads = threads or recipe.threads or _default_threads(jobs, ray)
    if dry_run:
        _dry_run(recipe, arms, Path(out), data, chosen, threads, console)
        return 0
    if fetch:
        _fetch(recipe, arms, data, console)
    if ray in (None, "local"):
        _check_data(recipe, arms, data)
    how = _Execution(chosen, jobs, threads, ray, join(chosen.type))
    if not how.world.leads:
        console = Console(quiet=True)
    folder = Path(out) / recipe.name
    try:
        # may raise before anything is trained
        warnings = [*unreached(recipe, arms), *unknown_metrics(recipe, book_for(recipe))]
        if until_decided:
            recipe = _with_looks(recipe, folder, how)
        grid = jobs_of(recipe, str(Path(out).resolve()), arms=arms, device=str(chosen), data=_absolute(data),
                       threads=threads, tracker=track, at_once=1 if how.world.size > 1 else jobs)
        for job in grid:
            RunDir(job.folder).refuse_other(recipe.config(job.arm, job.seed))
        warnings += changed_code(grid)
        if ray in (None, "local") and not all(RunDir(job.folder).done for job in grid):
            check_packages(recipe, arms)
            make_folder(folder)
        for line in warnings:
            console.print(line, markup=False, highlight=False, style="yellow")
        if until_decided:
            display = train_to_looks(recipe, grid, folder, partial(how.train, console=console, until="until this look"),
                                     how.agree, console)
        else:
            display = how.train(grid, console)
    finally:
        leave()
    if how.world.leads:
        return _conclude(recipe, shown, display, console, folder)
    for line in failures(display.failed):  # every rank may have failed for a different reason
        Console(stderr=True).print(f"rank {how.world.rank}: {line}", markup=False, highlight=False, soft_wrap=True)
    return int(bool(display.failed))


@dataclass(frozen=True)
class _Execution:
    """How runs are carried out: one after another, ``jobs`` of them at once, on all ranks of torchrun together, or on a
    Ray cluster."""

    device: torch.device
    jobs: int
    threads: int
    ray: str | None
    world: World

    def train(self, grid: list[Job], console: Console, until: str = "in all") -> ProgressDisplay:
        """Train those of these jobs that are not finished; ``until`` as in :class:`ProgressDisplay`."""
        unfinished = [job for job in grid if not RunDir(job.folder).done]
        if len(unfinished) < len(grid):
            console.print(f"{len(grid) - len(unfinished)} of {len(grid)} runs were finished before", highlight=False)
        with ProgressDisplay(console, len(unfinished), until) as display:
            if self.ray is not None:
                run_ray(unfinished, train_job, display, self.ray, cpus=self.threads,
                        gpus=1 / self.jobs if self.device.type == "cuda" else 0, names=Job.names)
            elif self.world.size > 1:
                run_together(unfinished, train_job, display, self.world)
            elif self.jobs > 1:
                sweep.run_pool(unfinished, train_job, display, self.jobs, Job.names)
            else:
                sweep.run_here(unfinished, train_job, display)
        failed = [event for event in display.failed if not RunDir(event.job.folder).done]
        if elsewhere := len(display.failed) - len(failed):  # two commands of the same --out share the runs
            console.print(f"{plural(elsewhere, 'run')} {'was' if elsewhere == 1 else 'were'} finished by another "
                          "process meanwhile", highlight=False)
        display.failed = failed
        return display

    def agree(self, question: Callable[[], bool]) -> bool:
        """Rank 0's answer, on every rank."""
        return self.world.by_leader(question, self.device)


def _with_looks(recipe: Recipe, folder: Path, how: _Execution) -> Recipe:
    """The recipe with the seeds and looks of its plan, which rank 0 reads or makes."""
    plan = how.world.share(make_plan(recipe, folder) if how.world.leads else None, how.device)
    looks, seeds = map(tuple, plan)
    return recipe.model_copy(update={"seeds": seeds, "looks": looks})


def _dry_run(recipe: Recipe, arms: Sequence[str], out: Path, data: str | None, device: torch.device, threads: int,
             console: Console) -> None:
    from .dry_run import print_plan

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RunError("--dry-run under torchrun: it measures one process. Run it without torchrun; several GPUs are "
                       "faster by almost their number.")
    print_plan(recipe, arms, out, _absolute(data), device, threads, console)


def _conclude(recipe: Recipe, shown: Recipe, display: ProgressDisplay, console: Console, folder: Path) -> int:
    """Print the results, and write the page of all runs in the folder; ``shown`` is the recipe with the arms of the
    table."""
    for line in failures(display.failed):
        traced = "\n" in line  # a traceback has its own lines
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=traced)
    ended = read_runs(folder, failed=True) if folder.is_dir() else []
    records = [record for record in ended if record.failed is None]
    if records:
        swept = any(arm.swept for arm in shown.arms.values())
        plan = LookPlan() if swept else plan_of(recipe, ended)  # a sweep has no looks
        print_table(console, shown, finals_of(recipe.name, ended), plan, departures_of(recipe.name, ended), folder)
    if display.stopped:
        written = any("checkpoint was written" in str(event.detail) for event in display.stopped)
        console.print(f"stopped with {len(display.stopped)} of {display.total} runs unfinished. "
                      f"{'A checkpoint was written; run' if written else 'Run'} the same command again to continue.",
                      markup=False, highlight=False)
    seconds = sum(float(record.timing.get("seconds", 0)) for record in records)
    console.print(f"{folder} has {plural(len(records), 'run')}, {seconds:.0f} s of training in all" if records
                  else f"{folder} has no finished run", markup=False, highlight=False, soft_wrap=True)
    if records:
        _report(recipe, ended, folder / "report.html", console)
    return 130 if display.stopped else int(bool(display.failed))


def _report(recipe: Recipe, records: list[Record], path: Path, console: Console) -> None:
    """Write the page of these runs. They are finished and safe, so no error here may count against them."""
    try:
        from ..report.page import write_report

        write_report(records, path, {recipe.name: recipe})
    except Exception as error:
        console.print(f"the report could not be written: {error or type(error).__name__}", markup=False,
                      highlight=False)
    else:
        console.print(f"report: {path}", markup=False, highlight=False, soft_wrap=True)


def _seeds(text: str) -> str:
    """``3`` is a number of seeds; ``0,2,4`` are seeds.

    >>> _seeds("3"), _seeds("0,2,4")
    ('3', '[0,2,4]')
    """
    if not re.fullmatch(r"[1-9]\d*|\d+(,\d+)*,?", text.replace(" ", "")) or text == "0":
        raise RecipeError(f"--seeds {text}: expected how many (3), or which, with commas (0,2,4; a single one is 4,).")
    return f"[{text}]" if "," in text else text


def _default_jobs(recipe: Recipe, device: str, threads: int | None) -> int:
    """On the CPU as many runs as there are threads for; on a GPU one."""
    threads_per_run = threads or recipe.threads
    if device != "cpu" or not threads_per_run or "WORLD_SIZE" in os.environ:
        return 1
    return max(1, cores() // threads_per_run)


def _default_threads(jobs: int, ray: str | None) -> int:
    """The cores divided among the runs, or the ranks of a run, that are trained at once, and at most OMP_NUM_THREADS;
    one on Ray, which counts them."""
    return 1 if ray else default_threads(max(jobs, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def _absolute(data: str | None) -> str | None:
    return str(Path(data).resolve()) if data else None


def _check_data(recipe: Recipe, arms: Sequence[str], data: str | None) -> None:
    """Report missing data once, before any run starts."""
    folder = data_dir(data)
    words = [absent(name, splits, folder) for name, splits in datasets_of(recipe, arms)
             if missing(name, folder, splits)]
    words += dict.fromkeys(_missing_folders(recipe, arms or tuple(recipe.arms), data))
    if words:
        raise DataError("\n".join(words))


def _missing_folders(recipe: Recipe, arms: Sequence[str], data: str | None) -> Iterator[str]:
    """An error message per ``folder:PATH`` of these arms, as data or in an option, that does not exist."""
    for spec in map(recipe.task_spec, arms):
        lists = (value if isinstance(value, list | tuple) else [value] for value in spec.options.values())
        for name in (spec.data, *chain.from_iterable(lists)):
            if isinstance(name, str) and name.startswith("folder:"):
                try:
                    folder_path(name, data, spec.folder)
                except DataError as error:
                    yield str(error)


def _fetch(recipe: Recipe, arms: Sequence[str], data: str | None, console: Console) -> None:
    for name, splits in datasets_of(recipe, arms):
        if not is_whole(name, data_dir(data), splits):
            console.print(f"downloading {name} into {data_dir(data)}", highlight=False)
            download(name, data)
