"""One run from beginning to end: lock its directory, load a checkpoint, train, evaluate, write the results."""

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
from .checkpoint import Checkpoint, load_checkpoint
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
    """What to train, where to write it, and what to call on the way.

    ``config`` is everything that the result may depend on: a directory with the result of another config is refused.
    ``about`` is stored with it (metrics, the recipe's claims and texts) and may change. ``start_from`` is the directory
    of a finished run whose final weights this one starts with. ``at_once`` is the number of runs that share the
    machine; it is recorded with the timing. ``on_epoch`` is called with the line of every epoch, with the
    ``best_epoch`` so far, and ``on_progress`` about once per second during an epoch and before an evaluation.
    ``branch`` is a run whose first epochs are identical to this one's, and ``leaves`` are the epochs after which other
    runs start from this one.
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
    """Train a run, or continue it, or find it finished; returns its final numbers."""
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
            raise RunError(f"{spec.run.path}: a process that loads data has ended ({error}). If the system killed it, "
                           "memory was short: use fewer with --set train.workers=2, or none with 0. The last "
                           "checkpoint is untouched; run again to continue.") from error


def _train(spec: RunSpec, stop: Stopper) -> dict[str, Any]:
    run, world, device = spec.run, spec.world, spec.device
    fingerprint = world.share(run.open(spec.config, environment(device), spec.about) if world.leads else None, device)
    if world.share(run.done, device):
        return run.final()
    _restore_threads(spec)
    random_state.seed_everything(spec.seed)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        torch.backends.cudnn.benchmark = True
    checkpoint = load_checkpoint(run.path, fingerprint, spec.say)
    if checkpoint is not None:
        checkpoint.state["log"]["resumed"] += 1
    branch = _load_branch(spec) if checkpoint is None else None
    checkpoint = checkpoint or branch
    task = spec.make_task()
    with Tracker(spec.tracker if world.leads else None, run.path) as track, \
            CheckpointWriter(run.path, fingerprint) as saver:
        if world.leads:
            run.rewrite_metrics(checkpoint.state["log"]["lines"] if checkpoint else [])
        if branch is not None and world.leads:  # from here on it is this run's own checkpoint
            saver(branch.step, branch.tensors, branch.state)
            for line in branch.state["log"]["lines"]:
                track(line)

        def on_epoch(line: dict[str, Any], best: int | None) -> None:
            if world.leads:
                run.append_metrics(line)
                track(line)
                spec.on_epoch(line if best is None else {**line, "best_epoch": best})

        hooks = Hooks(saver=saver, on_epoch=on_epoch, stop=lambda: stop.asked,
                      keep=lambda epoch, weights, number: keep_weights(run.path, epoch, weights, number),
                      on_progress=spec.on_progress if world.leads else None, leaves=spec.leaves)
        trainer, final = train_in_stages(task, spec.stages, hooks, checkpoint, seed=spec.seed, world=world,
                                         device=device, start_from=spec.start_from)
        model = _final_model(trainer, run.path)
        # Inside the writer's context: a signal in here writes one more checkpoint, which must be waited for.
        conclusion = trainer.conclude(model)
    if conclusion is not None:
        final |= {**conclusion.numbers, "parameters": sum(param.numel() for param in trainer.model.parameters())}
        weights: dict[str, Tensor] = {name: tensor.detach() for name, tensor in model.state_dict().items()}
        run.finish(final, _timing(trainer, device, world, spec.at_once), conclusion, weights)
    world.wait()
    return run.final()


def _load_branch(spec: RunSpec) -> Checkpoint | None:
    """The checkpoint of another run from which this one starts. Rank 0 decides for all, because the processors of
    other machines may differ."""
    branch, world = spec.branch, spec.world
    if branch is None:
        return None
    checkpoint = branch.checkpoint(spec.say) if world.leads and branch.fits(environment(spec.device)) else None
    if not world.share(checkpoint is not None, spec.device):
        return None
    checkpoint = checkpoint or branch.checkpoint(spec.say)
    if checkpoint is None:
        raise RunError(f"rank {world.rank} cannot read the checkpoint of epoch {branch.epochs} in {branch.run}, from "
                       "which rank 0 starts. Every machine must see the same --out.")
    return checkpoint


def _final_model(trainer: Trainer, folder: Path) -> nn.Module:
    """The model of the final numbers: that of the last epoch, of the best epoch, or an average of epochs."""
    which = trainer.train.conclude_on
    if which == "last":
        return trainer.evaluated
    model = copy.deepcopy(trainer.evaluated)
    weights = trainer.best_weights if which == "best" else average_weights(folder, trainer.train.average_last)
    model.load_state_dict(weights)
    return model


def _timing(trainer: Trainer, device: torch.device, world: World, at_once: int) -> dict[str, Any]:
    """The training cost as in the paper's table, and the conditions under which it was measured."""
    log = trainer.log
    epochs = sum(1 for line in log.lines if line["epoch"])  # of all stages; a line of epoch 0 is an evaluation alone
    return {"seconds": log.seconds, "epochs": epochs, "steps": trainer.at.step, "samples": log.samples,
            "counted": str(getattr(trainer.task, "counted", "samples")),
            **({"shared_epochs": log.shared_epochs} if log.shared_epochs else {}),
            **peak_memory_mib(device), "resumed": log.resumed, "processes": world.size, "at_once": at_once,
            "cuda_graph": trainer.replay.reason or "recorded", **environment(device)}


def _restore_threads(spec: RunSpec) -> None:
    """Resume with the thread count of the start, because sums depend on how they are split."""
    path, device = spec.run.path, spec.device
    before, now = spec.run.environment(), environment(device)
    if before["threads"] != now["threads"]:
        torch.set_num_threads(before["threads"])
        spec.say(f"{path}: continues with {before['threads']} threads, as it was started, not {now['threads']}.")
    if device.type == "cpu" and before["instructions"] != now["instructions"]:
        spec.say(f"{path}: was started with {before['instructions']} instructions and continues with "
                 f"{now['instructions']}: the last bits may differ.")
