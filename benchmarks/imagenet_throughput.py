"""Images per second from JPEG files: the loader alone, the bare network, and the engine with both.

    python benchmarks/imagenet_throughput.py make /tmp/jpegs --images 20000       # 500 x 375 pixels, about 110 kB each
    python benchmarks/imagenet_throughput.py loader /tmp/jpegs --workers 1 --workers 16
    python benchmarks/imagenet_throughput.py train /tmp/jpegs --workers 16 --out results/bench/imagenet-h200.json
    python benchmarks/imagenet_throughput.py profile /tmp/jpegs                   # what one image costs, step by step

*loader* reads, decodes, cuts and hands over batches; nothing is trained. *bare* trains on one batch of finished images,
again and again. *engine* is what ``encouraging run imagenet-resnet50`` does. The engine is limited by the slower of the
two: its fraction of that one is printed. Files that were just written are in the disk's cache: a disk that cannot
deliver 110 kB times the rate is slower than this says.
"""

from __future__ import annotations

import argparse
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
from encouraging.data.decode import decode
from encouraging.data.draw import seed_all
from encouraging.data.picture_transforms import training_transform
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
    return task


def rate(steps: Iterator[int], seconds: float, device: torch.device, warm_up: int) -> float:
    """Examples per second of an iterator that yields how many each step had; the first steps do not count."""
    for _ in range(warm_up):
        next(steps)
    _wait(device)
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        done += next(steps)
    _wait(device)
    return done / (time.perf_counter() - start)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def loaded(task: ImageFilesTask) -> Iterator[int]:
    """Batches on the device, epoch after epoch."""
    source = task.source(1)
    for epoch in range(1, 1_000_000):
        for images, *_ in source.batches(Clock(1, epoch), 0, 0, 1):
            yield len(images)


def bare(task: ImageFilesTask, size: int, device: torch.device) -> Iterator[int]:
    train = task.spec.stages[0].train
    model = network(task, device)
    optimizer = build_optimizer(train, task.groups(model), device)
    images = torch.randn(train.batch_size, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (train.batch_size,), device=device)
    while True:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        yield train.batch_size


def engine(task: ImageFilesTask, device: torch.device) -> Iterator[int]:
    """The updates of the training loop; ``replay`` is the last thing that an update does before it is counted."""
    train = task.spec.stages[0].train
    at = Position()
    trainer = Trainer(task, network(task, device), StagePlan(train), at, Log(), QUIET, World(), device, 0)
    batches = _epochs(task)
    engine.trainer = trainer  # type: ignore[attr-defined]
    for number, batch in enumerate(batches):
        trainer.replay([batch], task.objective(at.clock), number % 32 == 0)
        yield len(batch[0])


def _epochs(task: ImageFilesTask) -> Iterator[Any]:
    source = task.source(1)
    for epoch in range(1, 1_000_000):
        yield from source.batches(Clock(1, epoch), 0, 0, 1)


def network(task: ImageFilesTask, device: torch.device) -> torch.nn.Module:
    torch.manual_seed(0)
    model = task.build().train()
    return model.to(memory_format=torch.channels_last) if device.type == "cuda" else model


def profile(folder: Path, size: int) -> dict[str, float]:
    """Milliseconds of one core per image, for each step that a worker does."""
    task = task_of(folder, "resnet20", 1, size, 0, torch.device("cpu"))
    paths = [task.sets["train"].path(index) for index in range(min(DIFFERENT, len(task.sets["train"])))]
    transform = training_transform(size)
    pictures = [decode(path) for path in paths]

    reader = task.source(1).loader.reader  # type: ignore[attr-defined]
    steps: dict[str, Callable[[int], object]] = {
        "read the file": lambda index: Path(paths[index]).read_bytes(),
        "read and decode": lambda index: decode(paths[index]),
        "crop, resize, flip": lambda index: transform(pictures[index]),
        "random states": lambda index: seed_all(generator(0, 1, 1, 0, index)),
        "all": lambda index: reader[1, 1, 0, [index]],
    }
    costs = {}
    for name, step in steps.items():
        rounds = []
        for _ in range(3):
            start = time.process_time()
            for index in range(len(paths)):
                step(index)
            rounds.append((time.process_time() - start) / len(paths))
        costs[name] = 1000 * statistics.median(rounds)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["make", "loader", "train", "profile"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=20_000, help="to make (default: %(default)s)")
    parser.add_argument("--pixels", default="500x375", help="of the images to make (default: %(default)s)")
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--model", default="torchvision/resnet50", help="default: %(default)s")
    parser.add_argument("--size", type=int, default=224, help="of the crops (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=256, help="default: %(default)s")
    parser.add_argument("--workers", type=int, action="append", help="may be repeated (default: one per core)")
    parser.add_argument("--seconds", type=float, default=20, help="per measurement (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as JSON")
    args = parser.parse_args()
    if args.part == "make":
        make(args.folder, args.images, tuple(int(side) for side in args.pixels.split("x")))
        return
    name = args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    torch.backends.cudnn.benchmark = True
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    facts: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if name == "cuda" else platform.processor() or "cpu", "cores": cores,
        "torch": torch.__version__, "pillow": Image.__version__, "date": time.strftime("%Y-%m-%d"),
        "batch": args.batch, "size": args.size, "milliseconds_per_image": profile(args.folder, args.size)}
    for step, cost in facts["milliseconds_per_image"].items():
        print(f"{step:20} {cost:.3f} ms per image and core")
    if args.part == "profile":
        return
    facts["loader"], warm_up = {}, max(2, 512 // args.batch)
    for workers in args.workers or [cores]:
        task = task_of(args.folder, args.model, args.batch, args.size, workers, device)
        facts["loader"][str(workers)] = rate(loaded(task), args.seconds, device, 2 * workers + 2)
        print(f"loader, {workers} workers: {facts['loader'][str(workers)]:.0f} images/s", flush=True)
    if args.part == "train":
        workers = (args.workers or [cores])[-1]
        task = task_of(args.folder, args.model, args.batch, args.size, workers, device)
        with float32_is("ieee"):
            facts["bare"] = rate(bare(task, args.size, device), args.seconds, device, warm_up)
            facts["engine"] = rate(engine(task, device), args.seconds, device, 2 * workers + 2 + warm_up)
        facts["cuda_graph"] = engine.trainer.replay.reason or "recorded"  # type: ignore[attr-defined]
        slower = min(facts["loader"][str(workers)], facts["bare"])
        facts["engine_over_slower"] = facts["engine"] / slower
        print(f"bare {facts['bare']:.0f}, engine {facts['engine']:.0f} images/s ({facts['cuda_graph']}): "
              f"{facts['engine_over_slower']:.2f} of the slower of loader and network")
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
