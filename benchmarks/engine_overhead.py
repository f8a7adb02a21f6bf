"""What the engine's step costs over a bare loop of the same model, data and loss.

    python benchmarks/engine_overhead.py                            # digits and the paper's MNIST network, on the CPU
    python benchmarks/engine_overhead.py --device cuda --data DIR   # MNIST on a GPU: bare, eager, recorded, others

All loops see the same batches and take turns; the median over the rounds of the ratio to the bare loop is what counts.
The promise is 5%.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from encouraging.data import Clock
from encouraging.engine import StagePlan, Train
from encouraging.engine.distributed import World
from encouraging.engine.optim import build_optimizer
from encouraging.engine.train import Hooks, Log, Position, Trainer
from encouraging.tasks import ObjectiveConfig, StageSpec, TaskSpec, build_task

QUIET = Hooks(saver=lambda *_: None, on_epoch=lambda _: None, stop=lambda: None)


def setup(data: str, model: str, train: Train, device: torch.device, root: str | None, limit: int | None):
    stage = StageSpec(train, objective=ObjectiveConfig(curve="encouraging", log_end=1.0))
    task = build_task("image", TaskSpec(data, model, (stage,), 0, device, root))
    if limit is not None:
        task.pixels, task.train = task.pixels[:limit], tuple(part[:limit] for part in task.train)
    return task


def build(task, train: Train, device: torch.device) -> torch.nn.Module:
    torch.manual_seed(0)
    model = task.build()
    if device.type == "cuda" and train.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model.train()


def bare(task, train: Train, device: torch.device):
    """The loop that everyone writes."""
    model = build(task, train, device)
    source = task.source(1)
    optimizer = build_optimizer(train, task.groups(model), device)

    def epoch(number: int) -> None:
        objective = task.objective(Clock(1, number))
        for batch in source.batches(Clock(1, number), 0, 0, 1):
            optimizer.zero_grad()
            task.loss(model, batch, objective).mean.backward()
            optimizer.step()

    return epoch


def engine(task, train: Train, device: torch.device):
    at = Position()
    trainer = Trainer(task, build(task, train, device), StagePlan(train), at, Log(), QUIET, World(), device, 0)

    def epoch(number: int) -> None:
        at.epoch, at.batch = number, 0
        trainer.meter.load(torch.zeros_like(trainer.meter.sums()))
        trainer.train_epoch()

    epoch.trainer = trainer
    return epoch


def seconds(epoch, number: int, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    epoch(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def ratio(data: str, model: str, size: int, root: str | None, limit: int | None, repeats: int) -> float:
    """The engine's step over a bare loop's on the CPU: the median over rounds."""
    device = torch.device("cpu")
    train = Train(batch_size=size, epochs=100, lr=0.1, momentum=0.9, checkpoint_seconds=1e9)
    task = setup(data, model, train, device, root, limit)
    plain, ours = bare(task, train, device), engine(task, train, device)
    for number in (1, 2):
        plain(number), ours(number)
    rounds = [(seconds(plain, number, device), seconds(ours, number, device)) for number in range(10, 10 + repeats)]
    return statistics.median(mine / theirs for theirs, mine in rounds)


def compare(name: str, task, loops: dict, steps: int, repeats: int, device: torch.device) -> None:
    for loop in loops.values():  # warm-up: allocations, compilations and recordings
        for number in range(1, 4 if device.type == "cuda" else 2):
            loop(number)
    times: dict[str, list[float]] = {label: [] for label in loops}
    for number in range(10, 10 + repeats):
        for label, loop in loops.items():
            times[label].append(seconds(loop, number, device))
    medians = {label: statistics.median(measured) for label, measured in times.items()}
    first = next(iter(times.values()))
    for label, value in medians.items():
        # Round by round: a machine that slows down for a while slows all loops of a round.
        more = statistics.median(mine / bare for mine, bare in zip(times[label], first, strict=True)) - 1
        trainer = getattr(loops[label], "trainer", None)
        note = f"  graph: {trainer.replay.reason or 'recorded'}" if trainer and device.type == "cuda" else ""
        print(f"{name:28s} {label:28s} {1e3 * value / steps:8.3f} ms per step  {100 * more:+6.1f}%{note}",
              flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"],
                        help="where to train (default: %(default)s)")
    parser.add_argument("--data", help="the data directory with MNIST's files; else ENCOURAGING_DATA")
    parser.add_argument("--repeats", type=int, default=15,
                        help="rounds of all loops (default: %(default)s; digits take four times as many)")
    parser.add_argument("--compile", action="store_true", help="on a GPU, also time torch.compile (takes a minute)")
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.exit(1, "needs a CUDA device\n")
    sgd = {"epochs": 100, "lr": 0.1, "momentum": 0.9, "checkpoint_seconds": 1e9}
    if device.type == "cpu":
        torch.set_num_threads(1)
        for data, model, size, limit in (("digits", "digits_mlp", 64, None), ("mnist", "lsoftmax_cnn", 16, 64)):
            train = Train(batch_size=size, **sgd)
            try:
                task = setup(data, model, train, device, args.data, limit)
            except ValueError as error:
                print(f"{data} is skipped: {str(error).splitlines()[0]}")
                continue
            loops = {"bare": bare(task, train, device), "engine": engine(task, train, device)}
            repeats = args.repeats * 4 if data == "digits" else args.repeats
            compare(f"{data}, {model}", task, loops, task.source(1).length(Clock()), repeats, device)
        return
    torch.backends.cudnn.benchmark = True
    train = Train(batch_size=256, **sgd)
    task = setup("mnist", "lsoftmax_cnn", train, device, args.data, None)
    variants = {"engine, recorded": {}, "engine, eager": {"cuda_graph": False},
                "recorded, contiguous": {"channels_last": False}, "recorded, bf16": {"precision": "bf16"},
                "recorded, bf16, contiguous": {"precision": "bf16", "channels_last": False}}
    if args.compile:
        variants |= {"recorded, compiled": {"compile": True},
                     "recorded, compiled, bf16": {"compile": True, "precision": "bf16"}}
    loops = {"bare": bare(task, train, device)}
    loops |= {label: engine(task, Train(batch_size=256, **sgd, **more), device) for label, more in variants.items()}
    compare("mnist, lsoftmax_cnn", task, loops, task.source(1).length(Clock()), min(args.repeats, 5), device)


if __name__ == "__main__":
    main()
