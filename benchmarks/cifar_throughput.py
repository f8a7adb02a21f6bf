"""Images per second of the CIFAR recipes' network: the bare model, the engine with its input, and the input alone.

    python benchmarks/cifar_throughput.py --out results/bench/cifar-h200.json
    python benchmarks/cifar_throughput.py --device cpu --model resnet18 --size 32 --batch 8 --images 64   # does it run?

*bare* trains on one batch of finished images, again and again: no data, no augmentation, no bookkeeping. *engine* is
what ``encouraging run`` does: crops and flips of bytes on the device, the step, sums, and looks at the loss. *input* is
the crops alone. *evaluation* is a forward pass in float32 without TF32, as tests are, and *evaluation, contiguous* the
same in the other memory format. All are trained in bfloat16 with channels last on random images, on a GPU also by a
network that ``torch.compile`` has made (the recipes' ``compile = "cuda"``); every number is the median of rounds in
which all loops take turns.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from encouraging.data import Clock
from encouraging.data.images import Images
from encouraging.engine import StagePlan, Train
from encouraging.engine.compiled import Compiled
from encouraging.engine.distributed import World
from encouraging.engine.optim import build_optimizer
from encouraging.engine.precision import float32_is
from encouraging.engine.train import Hooks, Log, Position, Trainer
from encouraging.tasks import ObjectiveConfig, StageSpec, TaskSpec, build_task

QUIET = Hooks(saver=lambda *_: None, on_epoch=lambda _: None, stop=lambda: None)
COUNT = [50_000]  # images; a list, so that the command line can change it for the function that a task calls
Loop = Callable[[int], None]


def random_images() -> Images:
    """Bytes of CIFAR's shape."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (COUNT[0], 3, 32, 32), dtype=torch.uint8, generator=draw)
    labels = torch.randint(10, (COUNT[0],), generator=draw)
    few = images[:16], labels[:16]
    return Images({"train": (images, labels), "test": few}, 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


def loops_of(model: str, size: int, batch: int, device: torch.device, compiled: bool) -> dict[str, Loop]:
    train = Train(epochs=1000, lr=0.025, momentum=0.9, nesterov=True, weight_decay=1e-4, batch_size=batch,
                  precision="bf16", compile=compiled, checkpoint_seconds=1e9)
    stage = StageSpec(train, objective=ObjectiveConfig(curve="encouraging", log_end=0.75))
    spec = TaskSpec("cifar_throughput:random_images", model, (stage,), 0, device, folder=str(Path(__file__).parent),
                    options={"augment": "resized_crop", "train_size": size})
    task = build_task("image", spec)
    tests = {"evaluation": evaluation(task, device, torch.channels_last),
             "evaluation, contiguous": evaluation(task, device, torch.contiguous_format)}
    return {"bare": bare(task, train, size, device, recorded=False),
            **({"bare, recorded": bare(task, train, size, device, recorded=True)} if device.type == "cuda" else {}),
            "engine": engine(task, train, device), "input": inputs(task), **({} if compiled else tests)}


def network(task, device: torch.device) -> torch.nn.Module:
    torch.manual_seed(0)
    model = task.build().train()
    return model.to(memory_format=torch.channels_last) if device.type == "cuda" else model


def bare(task, train: Train, size: int, device: torch.device, recorded: bool) -> Loop:
    model, batch = network(task, device), train.batch_size
    optimizer = build_optimizer(train, task.groups(model), device)
    taught = Compiled(model) if train.compile else model
    images = torch.randn(batch, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,), device=device)
    steps = task.source(1).length(Clock())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            loss: Tensor = F.cross_entropy(taught(images), labels)
        loss.backward()
        optimizer.step()

    if recorded:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()

    def epoch(number: int) -> None:
        for _ in range(steps):
            graph.replay() if recorded else step()
    return epoch


def engine(task, train: Train, device: torch.device) -> Loop:
    at = Position()
    trainer = Trainer(task, network(task, device), StagePlan(train), at, Log(), QUIET, World(), device, 0)

    def epoch(number: int) -> None:
        at.epoch, at.batch = number, 0
        trainer.meter.load(torch.zeros_like(trainer.meter.sums()))
        trainer.train_epoch()
    epoch.trainer = trainer  # type: ignore[attr-defined]
    return epoch


def inputs(task) -> Loop:
    def epoch(number: int) -> None:
        for batch in task.source(1).batches(Clock(1, number), 0, 0, 1):
            task._floats(task._cut(batch))
    return epoch


def evaluation(task, device: torch.device, layout: torch.memory_format) -> Loop:
    model = network(task, device).eval().to(memory_format=layout)

    @torch.no_grad()
    def epoch(number: int) -> None:
        for piece in torch.split(task.train[0], task.piece):
            model(task._floats(task._test_cut(piece)).contiguous(memory_format=layout))
    return epoch


def seconds(loop: Loop, number: int, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    loop(number)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(loops: dict[str, Loop], rounds: int, device: torch.device) -> dict[str, float]:
    """Images per second of each loop. The recorded graph is made in the first round, which does not count."""
    times: dict[str, list[float]] = {label: [] for label in loops}
    for number in range(1, rounds + 2):
        for label, loop in loops.items():
            took = seconds(loop, number, device)
            if number > 1:
                times[label].append(took)
    return {label: COUNT[0] / statistics.median(measured) for label, measured in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"], help="default: %(default)s")
    parser.add_argument("--model", default="torchvision/resnet50", help="default: %(default)s")
    parser.add_argument("--size", type=int, default=224, help="of the crops (default: %(default)s)")
    parser.add_argument("--batch", type=int, action="append", help="may be repeated (default: 256 and 64)")
    parser.add_argument("--images", type=int, default=12_800, help="per round and loop (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="that count (default: %(default)s)")
    parser.add_argument("--compile", choices=["no", "yes", "both"],
                        help="measure the network as it is, compiled, or both (default: both; no on a CPU)")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.exit(1, "needs a CUDA device\n")
    torch.backends.cudnn.benchmark = True
    COUNT[0] = args.images
    import cifar_throughput  # the task looks this module up by its name and not as __main__

    cifar_throughput.COUNT[0] = args.images
    asked = args.compile or ("both" if device.type == "cuda" else "no")
    kinds = {"no": [False], "yes": [True], "both": [False, True]}[asked]
    cases = []
    for batch, compiled in product(args.batch or [256, 64], kinds):
        with float32_is("ieee"):
            loops = loops_of(args.model, args.size, batch, device, compiled)
            rates = measure(loops, args.rounds, device)
        graph = getattr(loops["engine"], "trainer").replay.reason or "recorded"  # noqa: B009
        cases.append({"model": args.model, "size": args.size, "batch": batch, "compiled": compiled,
                      "precision": "bf16", "graph": graph,
                      "images_per_second": {label: round(rate, 1) for label, rate in rates.items()}})
        best = max(rate for label, rate in rates.items() if label.startswith("bare"))
        print(f"{args.model} at {args.size}, batch {batch}{', compiled' if compiled else ''} ({graph}): "
              + ", ".join(f"{label} {rate:.0f}" for label, rate in rates.items())
              + f" images/s; input / bare {rates['input'] / best:.2f}", flush=True)
        del loops
    if args.out is not None:
        facts = {"device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
                 "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "cases": cases}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
