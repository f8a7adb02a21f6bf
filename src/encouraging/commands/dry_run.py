"""``encouraging run --dry-run``: what would be trained, on what, for how long, and what it takes on the disk."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from ..data import DATASETS, absent, data_dir, is_large, missing, read_image_files
from ..data.registry import find
from ..engine import RunDir
from ..engine.branches import branch_folder
from ..engine.environment import device_name
from ..judge.metric_book import book_for
from ..recipes import Recipe
from ..recipes.grid import Job, jobs_of
from ..recipes.rehearsal import Rehearsal, rehearse
from ..recipes.requirements import datasets_of
from ..recipes.unreached import unreached
from ..report.numbers import plural
from ..tasks import StageSpec
from .claim_notes import unknown_metrics
from .progress import duration, rate

MINUTE = 60.0
WORDS = {"train": "training", "test": "test"}


def print_plan(recipe: Recipe, arms: Sequence[str], out: Path, data: str | None, device: torch.device, threads: int,
               console: Console) -> None:
    """Print the plan; nothing is written. Where the data is there, the first arm is trained for up to a minute."""
    jobs = jobs_of(recipe, str(out), arms=arms, device=str(device), data=data)
    finished = sum(RunDir(job.folder).done for job in jobs)
    chosen = list(dict.fromkeys(job.arm for job in jobs))
    are = "is" if finished == 1 else "are"
    _print(console, f"{recipe.name}: {plural(len(chosen), 'arm')}, {plural(len(recipe.seeds), 'seed')}: "
                    f"{plural(len(jobs), 'run')}, of which {finished} {are} finished in {out / recipe.name}")
    _print(console, f"on {device_name(device)}, {plural(threads, 'thread')}")
    for line in (*unreached(recipe, chosen), *unknown_metrics(recipe, book_for(recipe))):
        _print(console, line)
    if finished == len(jobs):
        _print(console, "all of them are finished: there is nothing to train")
        return
    complete = _print_data(recipe, chosen, data, console)
    if not complete:
        return
    torch.set_num_threads(threads)
    trained = next((arm for arm in chosen if recipe.stages_of(arm)[0].train.epochs), None)
    if trained is None:
        _print(console, "nothing is trained: finished weights are evaluated once")
        return
    _print(console, f"training {trained} for up to {MINUTE:.0f} s, to measure its speed; nothing of it is kept")
    measured = rehearse(recipe, trained, device, data, MINUTE)
    unit = recipe.needs(trained).examples
    speed = f"{rate(measured.per_second)} {unit}/s" if unit else \
        f"{rate(measured.per_second / recipe.stages_of(trained)[0].train.batch_size)} batches/s"
    _print(console, f"measured with {trained} for {measured.took:.0f} s: {speed}"
                    + (f", {duration(measured.evaluation)} per evaluation" if measured.evaluation else ""))
    table = Table("arm", "epochs", "updates", "per run", "runs left", title_justify="left")
    total = 0.0
    for arm in chosen:
        stages = recipe.stages_of(arm)
        unfinished = [job for job in jobs if job.arm == arm and not RunDir(job.folder).done]
        trunk = unfinished[0].trunk if unfinished and all(_branches_off(job, chosen) for job in unfinished) else None
        shared = trunk.epochs if trunk is not None else 0
        epochs_in_all = sum(stage.train.epochs for stage in stages)
        fraction = 1 - shared / epochs_in_all if shared else 1.0
        seconds = fraction * sum(stage_seconds(stage, measured) for stage in stages)
        total += len(unfinished) * seconds
        epochs = "-" if stages[0].train.max_steps is not None else \
            f"{epochs_in_all - shared} of {epochs_in_all}, after {trunk.arm}'s" if trunk is not None else \
            str(epochs_in_all)
        updates_left = round(fraction * sum(updates(stage, measured) for stage in stages))
        table.add_row(arm, epochs, str(updates_left), duration(seconds), str(len(unfinished)))
    console.print(table)
    uncounted = "" if measured.evaluation else " (evaluations are not counted: none was finished in the time)"
    _print(console, f"all of it, one run after another: {duration(total)}{uncounted}")
    train = recipe.stages_of(trained)[0].train
    if train.patience is not None:
        epoch = stage_seconds(recipe.stages_of(trained)[0], measured) / train.epochs
        _print(console, f"that is the most it can take: train.patience = {train.patience} ends a run once its best "
                        f"epoch is more than {plural(train.patience, 'epoch')} back. An epoch takes {duration(epoch)}")
    unfinished = [job for job in jobs if not RunDir(job.folder).done]
    branches = sum(len(job.leaves) for job in unfinished)
    _print_disk(measured, measured.run_bytes * len(unfinished) + measured.checkpoint * branches, out, console)


def _branches_off(job: Job, chosen: Sequence[str]) -> bool:
    """Whether the shared first epochs of this run exist already, or will when it begins."""
    if job.trunk is None:
        return False
    folder = job.folder_of(job.trunk.arm)
    will_be = job.trunk.arm in chosen and not RunDir(folder).done
    return will_be or branch_folder(folder, job.trunk.epochs).is_dir()


def updates(stage: StageSpec, measured: Rehearsal) -> int:
    """How many updates a stage has, with as many examples per epoch as the measured one."""
    train = stage.train
    per_epoch = math.ceil(math.ceil(measured.examples / train.batch_size) / train.accumulate)
    return min(train.epochs * per_epoch, train.max_steps or train.epochs * per_epoch)


def stage_seconds(stage: StageSpec, measured: Rehearsal) -> float:
    """How long a stage takes at the measured speed; a stage that freezes a part of the network takes less."""
    train = stage.train
    per_epoch = max(1, math.ceil(math.ceil(measured.examples / train.batch_size) / train.accumulate))
    epochs = updates(stage, measured) / per_epoch
    evaluations = train.evaluations(1, math.ceil(epochs))
    return epochs * measured.examples / measured.per_second + evaluations * measured.evaluation


def _print_data(recipe: Recipe, arms: Sequence[str], data: str | None, console: Console) -> bool:
    """What data is needed, how large it is, and whether it is there."""
    folder, complete = data_dir(data), True
    for name, splits in datasets_of(recipe, arms):
        if missing(name, folder, splits):
            complete = False
            _print(console, absent(name, splits, folder))
        else:
            _print(console, f"data: {name} in {folder} ({_size_words(name, splits, folder)})")
    return complete


def _size_words(name: str, splits: tuple[str, ...], folder: Path) -> str:
    """How much data is there. Images in files of their own are counted; their bytes are the publisher's number."""
    facts = DATASETS[name]
    shipped = f"{facts.gigabytes:.3g} GB as shipped"
    if is_large(name):
        listed = read_image_files(name, folder, splits=splits).splits
        official = dict(zip(("train", "test"), facts.images, strict=True))
        words = " and ".join(f"{len(listed[split])} {WORDS[split]}" for split in splits)
        if all(len(listed[split]) == official[split] for split in splits):
            return f"{words} images, {shipped}"
        official_counts = " and ".join(str(official[split]) for split in splits)
        return f"{words} images; as shipped {official_counts}, {facts.gigabytes:.3g} GB"
    if facts.gigabytes:
        return shipped
    files = [find(file, folder) for split in splits for file in facts.files(split)]
    size = sum(path.stat().st_size for path in files if path is not None) / 1e9
    return f"{size:.3g} GB" if size >= 0.001 else "with scikit-learn"


def _print_disk(measured: Rehearsal, needed: float, out: Path, console: Console) -> None:
    existing = next(folder for folder in (out, *out.resolve().parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    _print(console, f"on the disk: {_bytes(measured.run_bytes)} per run (a checkpoint has "
                    f"{_bytes(measured.checkpoint)}), {_bytes(needed)} in all; {existing} has "
                    f"{_bytes(free)} free")
    if needed > free:
        _print(console, "that is more than is free: free some, choose another --out, or train fewer --seeds")


def _bytes(number: float) -> str:
    """
    >>> _bytes(2_000), _bytes(307_000_000), _bytes(4.6e9)
    ('2 kB', '307 MB', '4.6 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number / 1e3:.3g} kB"


def _print(console: Console, words: str) -> None:
    console.print(words, markup=False, highlight=False, soft_wrap=True)
