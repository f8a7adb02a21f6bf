"""One run from beginning to end: lock its directory, resume what is there, train, conclude, write the records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from . import random_state as chance
from .checkpoint import load_checkpoint, save_checkpoint
from .distributed import World
from .environment import environment, peak_memory_mib
from .run_dir import RunDir
from .settings import Train
from .signals import Interrupted, Stopper
from .stages import train_in_stages
from .task import Task
from .tracker import Tracker
from .train import Hooks, Trainer


def _quiet(line: dict[str, Any]) -> None:
    pass


@dataclass(frozen=True)
class Order:
    """What to train, where to write it, and whom to tell.

    ``asked`` is all that the result may depend on: a directory that holds the result of anything else is refused.
    """

    make_task: Callable[[], Task]
    plan: Sequence[Train]
    run: RunDir
    asked: Mapping[str, Any]
    seed: int
    device: torch.device
    world: World = field(default_factory=World)
    on_epoch: Callable[[dict[str, Any]], None] = _quiet
    say: Callable[[str], None] = print
    tracker: str | None = None


def execute(order: Order) -> dict[str, Any]:
    """Train what was ordered, or continue it, or find it done; its final numbers."""
    with order.run.lock() if order.world.leads else nullcontext(), Stopper() as stop:
        try:
            return _work(order, stop)
        except Interrupted as event:
            raise Interrupted(f"{order.run.path}: stopped by {event}. A checkpoint was written; run the same command "
                              "again to continue.") from event


def _work(order: Order, stop: Stopper) -> dict[str, Any]:
    run, world, device = order.run, order.world, order.device
    mark = world.share(run.open(order.asked, environment(device)) if world.leads else None, device)
    if world.share(run.done, device):
        return run.final()
    _restore_threads(order)
    chance.seed_everything(order.seed)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        torch.backends.cudnn.benchmark = True
    found = load_checkpoint(run.path, mark, order.say)
    task = order.make_task()
    with Tracker(order.tracker if world.leads else None, run.path) as track:
        if world.leads:
            run.rewrite_metrics(found.state["log"]["lines"] if found else [])

        def note(line: dict[str, Any]) -> None:
            if world.leads:
                run.append_metrics(line)
                track(line)
                order.on_epoch(line)

        hooks = Hooks(saver=lambda step, tensors, state: save_checkpoint(
            run.path, step, tensors, {**state, "fingerprint": mark}), on_epoch=note, stop=lambda: stop.asked)
        trainer, final = train_in_stages(task, order.plan, hooks, found, seed=order.seed, world=world, device=device)
    if world.leads:
        with torch.no_grad():
            end = task.conclude(trainer.judged)
        final |= {**end.numbers, "parameters": sum(param.numel() for param in trainer.model.parameters())}
        run.finish(final, _timing(trainer, device, world), end.tensors, end.diagnosis)
    world.wait()
    return run.final()


def _timing(trainer: Trainer, device: torch.device, world: World) -> dict[str, Any]:
    """What the paper's table of training costs has, and how it came about."""
    log = trainer.log
    return {"seconds": log.seconds, "epochs": trainer.at.epoch - 1, "steps": trainer.at.step, "samples": log.samples,
            "peak_memory_mib": peak_memory_mib(device), "resumed": log.resumed, "processes": world.size,
            "cuda_graph": trainer.replay.reason or "recorded", **environment(device)}


def _restore_threads(order: Order) -> None:
    """Sums depend on how they are split: a resumed run takes the thread count it was started with."""
    path, device = order.run.path, order.device
    before, now = order.run.config()["environment"], environment(device)
    if before["threads"] != now["threads"]:
        torch.set_num_threads(before["threads"])
        order.say(f"{path}: continues with {before['threads']} threads, as it was started, not {now['threads']}.")
    if device.type == "cpu" and before["instructions"] != now["instructions"]:
        order.say(f"{path}: was started with {before['instructions']} instructions and continues with "
                  f"{now['instructions']}: the last bits may differ.")
