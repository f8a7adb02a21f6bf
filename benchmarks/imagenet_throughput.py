"""Images per second from JPEG files: the loader alone, the bare network, and the engine with both.

    python benchmarks/imagenet_throughput.py make /tmp/jpegs --images 12288       # 500 x 375 pixels, about 90 kB each
    python benchmarks/imagenet_throughput.py profile /tmp/jpegs                   # what one image costs, step by step
    python benchmarks/imagenet_throughput.py loader /tmp/jpegs --workers 1 --workers 15
    python benchmarks/imagenet_throughput.py train /tmp/jpegs --workers 15 --out results/bench/imagenet-h200.json

*loader* reads, decodes, cuts and hands over batches; nothing is trained. *bare* trains on one batch of finished images,
again and again. *engine* is what ``encouraging run imagenet-resnet50`` does. The engine is limited by the slower of the
two: its fraction of that one is printed, and how long an update waits for its images. Epochs have whole batches only,
and the clock starts when the update is recorded in a CUDA graph and everything that was loaded meanwhile is used up.
Files that were just written are in the disk's cache: a disk that cannot deliver 90 kB times the rate is slower than
this says. The numbers so far are written to ``--out`` after every measurement.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

from encouraging.data import Clock, generator
from encouraging.data.decode import decode, simplejpeg
from encouraging.data.draw import seed_all
from encouraging.data.file_loader import FileLoader
from encouraging.data.picture_transforms import training_transform
from encouraging.data.sources import Request
from encouraging.engine import StagePlan, Train
from encouraging.engine.distributed import World
from encouraging.engine.optim import build_optimizer
from encouraging.engine.precision import float32_is
from encouraging.engine.train import Hooks, Log, Position, Trainer
from encouraging.tasks import ObjectiveConfig, StageSpec, TaskSpec, build_task
from encouraging.tasks.image_files import ImageFilesTask

QUIET = Hooks(saver=lambda *_: None, on_epoch=lambda _: None, stop=lambda: None)
CLASSES = 10
DIFFERENT = 200  # pictures; the rest are copies, which cost the same to decode
PROFILED = 100  # pictures whose steps are timed
WARM_UP = 10  # updates of the bare network
BEGAN = time.perf_counter()


def make(folder: Path, images: int, size: tuple[int, int]) -> None:
    """Pictures with structure at every scale, as photographs have it, in ImageNet's layout."""
    random = np.random.default_rng(0)
    originals: list[bytes] = []
    for split, count in (("train", images), ("val", max(CLASSES, images // 20))):
        for number in range(count):
            if len(originals) < DIFFERENT:
                originals.append(_picture(random, size))
            path = folder / split / f"n{number % CLASSES:08d}" / f"{number:08d}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(originals[number % len(originals)])
    mean = sum(map(len, originals)) / len(originals)
    print(f"{images} JPEGs of {size[0]} x {size[1]} pixels, {mean / 1000:.0f} kB on average, in {folder}")


def _picture(random: np.random.Generator, size: tuple[int, int]) -> bytes:
    import io

    total = np.zeros((size[1], size[0], 3))
    for cells, strength in ((4, 60), (16, 40), (64, 25), (160, 18)):
        noise = random.normal(0, strength, (cells * 3 // 4, cells, 3))
        channels = [np.asarray(Image.fromarray(noise[..., c].astype(np.float32)).resize(size, Image.Resampling.BICUBIC))
                    for c in range(3)]
        total += np.stack(channels, -1)
    file = io.BytesIO()
    Image.fromarray((total + 120).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=95)
    return file.getvalue()


def task_of(folder: Path, model: str, batch: int, size: int, workers: int, device: torch.device) -> ImageFilesTask:
    train = Train(epochs=1000, lr=0.1, momentum=0.9, weight_decay=1e-4, batch_size=batch, precision="bf16",
                  workers=workers, checkpoint_seconds=1e9)
    stage = StageSpec(train, objective=ObjectiveConfig(curve="encouraging", log_end=0.75))
    spec = TaskSpec(f"folder:{folder.resolve()}", model, (stage,), 0, device, options={"train_size": size})
    task = build_task("image_files", spec)
    assert isinstance(task, ImageFilesTask)
    split = task.sets["train"]
    # A last batch of another size would be tuned, warmed up and recorded within the measured time.
    task.sets["train"] = split.sample(max(batch, len(split) // batch * batch), generator(0))
    return task


def rate(steps: Iterator[int], seconds: float, device: torch.device) -> float:
    """Examples per second of an iterator that yields how many each step had, and 0 as long as it warms up."""
    for count in steps:
        if count:
            break
    _wait(device)
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        done += next(steps)
    _wait(device)
    return done / (time.perf_counter() - start)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


class Timed:
    """A loader that adds up how long it was waited for."""

    def __init__(self, loader: FileLoader) -> None:
        self.loader, self.seconds, self.batches_given = loader, 0.0, 0

    def length(self, clock: Clock) -> int:
        return self.loader.length(clock)

    def batches(self, *place: Any) -> Iterator[Any]:
        batches = self.loader.batches(*place)
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                return
            self.seconds += time.perf_counter() - start
            self.batches_given += 1
            yield batch


def loaded(task: ImageFilesTask) -> Iterator[int]:
    """Batches on the device, epoch after epoch."""
    # Two of each worker: what they made while others still started is used up then.
    for number, (images, *_) in enumerate(_epochs(task.source(1))):
        yield len(images) if number >= 2 * task.workers + 2 else 0


def bare(task: ImageFilesTask, size: int, device: torch.device) -> Iterator[int]:
    train = task.spec.stages[0].train
    model = network(task, device)
    optimizer = build_optimizer(train, task.groups(model), device)
    images = torch.randn(train.batch_size, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (train.batch_size,), device=device)
    for number in range(1_000_000):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        yield train.batch_size if number >= WARM_UP else 0


class Engine:
    """The updates of the training loop, and what they wait for."""

    def __init__(self, task: ImageFilesTask, device: torch.device) -> None:
        self.task, self.at = task, Position()
        plan = StagePlan(task.spec.stages[0].train)
        self.trainer = Trainer(task, network(task, device), plan, self.at, Log(), QUIET, World(), device, 0)
        source: Any = self.trainer.source
        self.timed = source.loader = Timed(source.loader)
        self.waited: list[tuple[float, int]] = []

    def __iter__(self) -> Iterator[int]:
        replay, settled = self.trainer.replay, 0
        for number, batch in enumerate(_epochs(self.trainer.source)):
            replay([batch], self.task.objective(self.at.clock), number % 32 == 0)
            if replay.graphs or (replay.reason is not None and number >= WARM_UP):
                settled += 1
            counts = settled > 2 * self.task.workers + 2
            if counts:
                self.waited.append((self.timed.seconds, self.timed.batches_given))
            yield len(batch[0]) if counts else 0

    @property
    def wait_per_update(self) -> float:
        (first, start), (last, end) = self.waited[0], self.waited[-1]
        return (last - first) / max(1, end - start)


def _epochs(source: Any) -> Iterator[Any]:
    for epoch in range(1, 1000):
        yield from source.batches(Clock(1, epoch), 0, 0, 1)


def network(task: ImageFilesTask, device: torch.device) -> torch.nn.Module:
    torch.manual_seed(0)
    model = task.build().train()
    return model.to(memory_format=torch.channels_last) if device.type == "cuda" else model


def profile(folder: Path, size: int) -> dict[str, float]:
    """Milliseconds of one core per image, for each step that a worker does, and for all of them in one batch."""
    task = task_of(folder, "resnet20", 1, size, 0, torch.device("cpu"))
    paths = [task.sets["train"].path(index) for index in range(min(PROFILED, len(task.sets["train"])))]
    transform = training_transform(size)
    pictures = [decode(path) for path in paths]
    reader = task.source(1).loader.reader  # type: ignore[attr-defined]
    steps: dict[str, Callable[[int], object]] = {
        "read the file": lambda index: Path(paths[index]).read_bytes(),
        "read and decode": lambda index: decode(paths[index]),
        "crop, resize, flip": lambda index: transform(pictures[index]),
        "random states": lambda index: seed_all(generator(0, 1, 1, 0, index)),
    }
    count = len(paths)
    costs = {name: _cost(lambda step=step: [step(index) for index in range(count)], count)
             for name, step in steps.items()}
    request = Request(1, 1, 0, list(range(count)), [0] * count)
    return {**costs, "all": _cost(lambda: reader[request], count)}


def _cost(work: Callable[[], object], count: int) -> float:
    rounds = []
    for _ in range(3):
        start = time.process_time()
        work()
        rounds.append((time.process_time() - start) / count)
    return 1000 * statistics.median(rounds)


def train_rates(task: ImageFilesTask, size: int, seconds: float, device: torch.device, loader: float,
                done: Callable[[dict[str, Any]], None]) -> None:
    """Measure the bare network and the engine; ``done`` is called with the numbers after each of them."""
    batch = task.spec.stages[0].train.batch_size
    with float32_is("ieee"):
        numbers: dict[str, Any] = {"bare": rate(bare(task, size, device), seconds, device)}
        print(f"{task.spec.model}: bare {numbers['bare']:.0f} images/s", flush=True)
        done(numbers)
        engine = Engine(task, device)
        numbers["engine"] = rate(iter(engine), seconds, device)
    numbers["engine_over_slower"] = numbers["engine"] / min(loader, numbers["bare"])
    numbers["cuda_graph"] = engine.trainer.replay.reason or "recorded"
    numbers["milliseconds_per_update"] = {"whole": 1000 * batch / numbers["engine"],
                                          "waiting for images": 1000 * engine.wait_per_update,
                                          "bare network": 1000 * batch / numbers["bare"],
                                          "loader alone": 1000 * batch / loader}
    shown = ", ".join(f"{name} {value:.1f}" for name, value in numbers["milliseconds_per_update"].items())
    print(f"{task.spec.model}: engine {numbers['engine']:.0f} images/s ({numbers['cuda_graph']}): "
          f"{numbers['engine_over_slower']:.2f} of the slower of loader and network; ms per update: {shown}",
          flush=True)
    done(numbers)
    del engine
    gc.collect()  # its workers end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["make", "loader", "train", "profile"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=12_288, help="to make (default: %(default)s)")
    parser.add_argument("--pixels", default="500x375", help="of the images to make (default: %(default)s)")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--model", action="append", help="may be repeated (default: torchvision/resnet50)")
    parser.add_argument("--size", type=int, default=224, help="of the crops (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=256, help="default: %(default)s")
    parser.add_argument("--workers", type=int, action="append", help="may be repeated; the engine has the last "
                        "number (default: one per core but one)")
    parser.add_argument("--seconds", type=float, default=8, help="per measurement (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    args = parser.parse_args()
    args.model = args.model or ["torchvision/resnet50"]
    if args.part == "make":
        make(args.folder, args.images, tuple(int(side) for side in args.pixels.split("x")))
        return
    name = args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    torch.backends.cudnn.benchmark = True
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    facts: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if name == "cuda" else platform.processor() or "cpu", "cores": cores,
        "torch": torch.__version__, "pillow": Image.__version__, "simplejpeg": version_of(simplejpeg),
        "date": time.strftime("%Y-%m-%d"), "batch": args.batch, "size": args.size}

    def write(**numbers: Any) -> None:
        facts.update(numbers)
        if args.out is not None:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(facts, indent=2) + "\n")

    write(milliseconds_per_image=profile(args.folder, args.size))
    for step, cost in facts["milliseconds_per_image"].items():
        print(f"{step:20} {cost:.3f} ms per image and core", flush=True)
    if args.part == "profile":
        return
    counts, rates = args.workers or [max(1, cores - 1)], {}
    for workers in counts:
        task = task_of(args.folder, args.model[0], args.batch, args.size, workers, device)
        rates[str(workers)] = rate(loaded(task), args.seconds, device)
        print(f"loader, {workers} workers: {rates[str(workers)]:.0f} images/s", flush=True)
        write(loader=rates)
    for model in args.model if args.part == "train" else ():
        task = task_of(args.folder, model, args.batch, args.size, counts[-1], device)
        train_rates(task, args.size, args.seconds, device, rates[str(counts[-1])],
                    lambda numbers, model=model: write(models={**facts.get("models", {}), model: numbers}))
    print(f"{time.perf_counter() - BEGAN:.0f} s in all", flush=True)


def version_of(package: Any) -> str | None:
    return None if package is None else str(package.__version__)


if __name__ == "__main__":
    main()
