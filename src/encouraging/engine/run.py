"""One run from beginning to end: lock its directory, resume what is there, train, conclude, write the records."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import DivergenceError, RunError
from . import random_state
from .averaging import average_weights, keep_weights
from .branches import Branch
from .checkpoint import Checkpoint, load_checkpoint, load_weights
from .distributed import World
from .environment import environment, peak_memory_mib
from .run_dir import RunDir
from .settings import StagePlan
from .signals import Interrupted, Stopper
from .stages import train_in_stages
from .task import Task
from .tracker import Tracker
from .train import Hooks, Trainer
from .writer import CheckpointWriter


def _quiet(line: dict[str, Any]) -> None:
    pass


@dataclass(frozen=True)
class RunSpec:
    """What to train, where to write it, and whom to tell.

    ``config`` is all that the result may depend on: a directory that holds the result of anything else is refused.
    ``about`` is kept beside it (metrics, the recipe's claims and words) and may change. ``start_from`` is the directory
    of a finished run whose weights this one starts with. ``at_once`` runs share the machine, which the timing records.
    ``on_epoch`` is told the line of every epoch, with the ``best_epoch`` so far, and ``on_progress`` about once per
    second how far an epoch is, and that a model is evaluated. ``branch`` is a run whose first epochs are also this
    one's, and ``leaves`` the epochs after which others part from this one.
    """

    make_task: Callable[[], Task[Any]]
    stages: Sequence[StagePlan]
    run: RunDir
    config: Mapping[str, Any]
    seed: int
    device: torch.device
    world: World = field(default_factory=World)
    on_epoch: Callable[[dict[str, Any]], None] = _quiet
    say: Callable[[str], None] = print
    tracker: str | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    start_from: Path | None = None
    at_once: int = 1
    on_progress: Callable[[dict[str, Any]], None] | None = None
    branch: Branch | None = None
    leaves: frozenset[int] = frozenset()


def execute(spec: RunSpec) -> dict[str, Any]:
    """Train what the spec describes, or continue it, or find it done; its final numbers."""
    with spec.run.lock() if spec.world.leads else nullcontext(), Stopper() as stop:
        try:
            return _train(spec, stop)
        except Interrupted as event:
            raise Interrupted(f"{spec.run.path}: stopped by {event}. A checkpoint was written; run the same command "
                              "again to continue.") from event
        except DivergenceError as error:
            if spec.world.leads:
                spec.run.note_divergence(error)
            raise
        except RuntimeError as error:
            if not str(error).startswith("DataLoader worker"):
                raise
            raise RunError(f"{spec.run.path}: a process that loads data has ended ({error}). Where the system ended "
                           "it, memory was short: set fewer, --set train.workers=2, or 0 for none. The last "
                           "checkpoint is untouched; run again to continue.") from error


def _train(spec: RunSpec, stop: Stopper) -> dict[str, Any]:
    run, world, device = spec.run, spec.world, spec.device
    mark = world.share(run.open(spec.config, environment(device), spec.about) if world.leads else None, device)
    if world.share(run.done, device):
        return run.final()
    _restore_threads(spec)
    random_state.seed_everything(spec.seed)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        torch.backends.cudnn.benchmark = True
    found = load_checkpoint(run.path, mark, spec.say)
    if found is not None:
        found.state["log"]["resumed"] += 1
    branched = _branched(spec) if found is None else None
    found = found or branched
    start = load_weights(spec.start_from) if spec.start_from is not None and found is None else None
    task = spec.make_task()
    with Tracker(spec.tracker if world.leads else None, run.path) as track, \
            CheckpointWriter(run.path, mark) as saver:
        if world.leads:
            run.rewrite_metrics(found.state["log"]["lines"] if found else [])
        if branched is not None and world.leads:  # from here on it is this run's own
            saver(branched.step, branched.tensors, branched.state)
            for line in branched.state["log"]["lines"]:
                track(line)

        def note(line: dict[str, Any], best: int | None) -> None:
            if world.leads:
                run.append_metrics(line)
                track(line)
                spec.on_epoch(line if best is None else {**line, "best_epoch": best})

        hooks = Hooks(saver=saver, on_epoch=note, stop=lambda: stop.asked,
                      keep=lambda epoch, weights, number: keep_weights(run.path, epoch, weights, number),
                      on_progress=spec.on_progress if world.leads else None, leaves=spec.leaves)
        trainer, final = train_in_stages(task, spec.stages, hooks, found, seed=spec.seed, world=world, device=device,
                                         start=start)
        model = _concluded(trainer, run.path)
        end = trainer.conclude(model)  # a signal in here writes one more checkpoint, which is waited for
    if end is not None:
        final |= {**end.numbers, "parameters": sum(param.numel() for param in trainer.model.parameters())}
        weights: dict[str, Tensor] = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        run.finish(final, _timing(trainer, device, world, spec.at_once), end, weights)
    world.wait()
    return run.final()


def _branched(spec: RunSpec) -> Checkpoint | None:
    """What another run has left for this one. Rank 0 decides for all: other machines may have other processors."""
    branch, world = spec.branch, spec.world
    if branch is None:
        return None
    found = branch.checkpoint(spec.say) if world.leads and branch.fits(environment(spec.device)) else None
    if not world.share(found is not None, spec.device):
        return None
    found = found or branch.checkpoint(spec.say)
    if found is None:
        raise RunError(f"rank {world.rank} cannot read the checkpoint of epoch {branch.epochs} in {branch.run}, from "
                       "which rank 0 starts. Every machine must see the same --out.")
    return found


def _concluded(trainer: Trainer, folder: Path) -> nn.Module:
    """The model that the last numbers are about: the last epoch's, the best one's, or an average of epochs."""
    how = trainer.train.conclude_on
    if how == "last":
        return trainer.evaluated
    model = copy.deepcopy(trainer.evaluated)
    weights = trainer.best_weights if how == "best" else average_weights(folder, trainer.train.average_last)
    model.load_state_dict(weights)
    return model


def _timing(trainer: Trainer, device: torch.device, world: World, at_once: int) -> dict[str, Any]:
    """What the paper's table of training costs has, and how it came about."""
    log = trainer.log
    return {"seconds": log.seconds, "epochs": trainer.at.epoch - 1, "steps": trainer.at.step, "samples": log.samples,
            **({"shared_epochs": log.shared_epochs} if log.shared_epochs else {}),
            **peak_memory_mib(device), "resumed": log.resumed, "processes": world.size, "at_once": at_once,
            "cuda_graph": trainer.replay.reason or "recorded", **environment(device)}


def _restore_threads(spec: RunSpec) -> None:
    """Sums depend on how they are split: a resumed run takes the thread count it was started with."""
    path, device = spec.run.path, spec.device
    before, now = spec.run.environment(), environment(device)
    if before["threads"] != now["threads"]:
        torch.set_num_threads(before["threads"])
        spec.say(f"{path}: continues with {before['threads']} threads, as it was started, not {now['threads']}.")
    if device.type == "cpu" and before["instructions"] != now["instructions"]:
        spec.say(f"{path}: was started with {before['instructions']} instructions and continues with "
                  f"{now['instructions']}: the last bits may differ.")
