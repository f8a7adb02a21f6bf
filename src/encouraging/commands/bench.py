"""The price of the losses on this machine: forward and backward, time and memory, beside what else there is.

Every contender of a case runs in turn, round after round, so that a machine that slows down for a while slows all of
them; the figure is the median. On a GPU the second-level cache is flushed before every run, and the run is queued while
the GPU is still busy, as in training: milliseconds are the GPU's, and what the host spends on queueing stands beside
them. ``floor`` is what the case costs at least: the logits read once and the gradient written once at the bandwidth of
a large copy on this device, or the three products of an output layer at the speed of a large product.
"""

from __future__ import annotations

import datetime
import gc
import importlib
import json
import math
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import __version__, curve_loss, curves, linear_curve_loss
from ..engine.environment import choose_device
from ..errors import ArgumentError

EL = curves.encouraging(log_end=0.75)
CE = curves.cross_entropy()
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
_HEAD_START = 4_000_000  # cycles of a GPU, some 2 ms: longer than any contender takes to queue its work


class Shape(NamedTuple):
    """Rows and classes of a case; with a width, those of an output layer."""

    rows: int
    classes: int
    dtype: torch.dtype
    width: int | None = None

    def __str__(self) -> str:
        sizes = f"{self.rows} x {self.classes}" if self.width is None else (
            f"{self.rows}, {self.width}, {self.classes}")
        return f"{sizes} {str(self.dtype).removeprefix('torch.')}"


GPU_SHAPES = (
    Shape(8192, 32000, torch.bfloat16), Shape(8192, 128256, torch.bfloat16), Shape(4096, 262144, torch.bfloat16),
    Shape(65536, 1000, torch.float32), Shape(1048576, 10, torch.float32), Shape(8192, 8142, torch.float32),
    Shape(8192, 128256, torch.bfloat16, 4096), Shape(8192, 256000, torch.bfloat16, 2304),
    Shape(16384, 32000, torch.bfloat16, 2048),
)
CPU_SHAPES = (
    Shape(256, 32000, torch.float32), Shape(4096, 1000, torch.float32), Shape(256, 10, torch.float32),
    Shape(512, 8000, torch.float32, 256),
)

Step = Callable[..., object]


def parse_shape(text: str, dtype: torch.dtype) -> Shape:
    """What a word on the command line means: rows and classes, or rows, width and classes of an output layer.

    >>> print(parse_shape("4096x50257", torch.bfloat16))
    4096 x 50257 bfloat16
    >>> print(parse_shape("8192x4096x128256", torch.bfloat16))
    8192, 4096, 128256 bfloat16
    """
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){1,2}", text):
        raise ArgumentError(f"--shape {text}: expected ROWSxCLASSES such as 4096x50257, or ROWSxWIDTHxCLASSES such as "
                            "8192x4096x128256 for an output layer and its loss.")
    rows, *width, classes = map(int, text.split("x"))
    return Shape(rows, classes, dtype, *width)


def parse_dtype(text: str) -> torch.dtype:
    if text not in DTYPES:
        raise ArgumentError(f"--dtype {text}: expected {', '.join(DTYPES)}.")
    return DTYPES[text]


def run_arguments(shapes: Sequence[str], dtype: str | None, out: Path | None, device: str, seconds: float) -> None:
    """:func:`run` with the arguments of the command line. All of them are checked before anything is measured."""
    place = _place(device)
    if out is not None and out.is_dir():
        raise ArgumentError(f"--out {out}: expected a file, got a directory.")
    kind = None if dtype is None else parse_dtype(dtype)
    usual = torch.bfloat16 if place == "cuda" else torch.float32
    chosen: Sequence[Shape] = [parse_shape(text, kind or usual) for text in shapes]
    if not chosen:
        chosen = [shape if kind is None else shape._replace(dtype=kind)
                  for shape in (GPU_SHAPES if place == "cuda" else CPU_SHAPES)]
    run(list(dict.fromkeys(chosen)), out, place, seconds)


def run(shapes: Sequence[Shape] | None = None, out: Path | None = None, device: str = "auto",
        seconds: float = 1.0) -> dict[str, Any]:
    """Measure all contenders at every shape, print tables, and return (and write) them.

    Every contender gets ``seconds`` of work at a shape, and at least five runs.
    """
    device = _place(device)
    machine = _machine(device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    if device == "cpu":
        print("No GPU is measured here: the reference implementation, and no figures for memory.")
    record: dict[str, Any] = {**machine, "date": datetime.date.today().isoformat(), "cases": []}
    for shape in shapes or (GPU_SHAPES if device != "cpu" else CPU_SHAPES):
        print(f"\nmeasuring {shape} ...", flush=True)
        case = _case(shape, device, seconds)
        record["cases"].append(case)
        _show(case)
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(record, indent=1) + "\n")
    return record


def _place(device: str) -> str:
    place = choose_device(device)
    if place.type not in ("cpu", "cuda") or place.index is not None:
        raise ArgumentError(f"--device {device}: expected cpu, cuda or auto. Of several GPUs the first is measured; "
                            "CUDA_VISIBLE_DEVICES says which that is.")
    return place.type


def _machine(device: str) -> dict[str, str]:
    known = {"encouraging": __version__, "torch": torch.__version__}
    for name in ("triton", "liger_kernel"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        known[name] = str(getattr(module, "__version__", None) or _installed_version(name))
    known["device"] = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    return known


def _installed_version(name: str) -> str:
    """What the installation says of a package that does not say it itself."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "installed"


def _case(shape: Shape, device: str, seconds: float) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(0)
    draw = partial(torch.randn, device=device, dtype=shape.dtype, generator=generator)
    try:
        target = torch.randint(shape.classes, (shape.rows,), device=device, generator=generator)
        leaves = ([draw(shape.rows, shape.classes).mul_(3).requires_grad_()] if shape.width is None else
                  [draw(shape.rows, shape.width).requires_grad_(),
                   draw(shape.classes, shape.width).mul_(shape.width**-0.5).requires_grad_()])
    except RuntimeError as error:
        raise ArgumentError(f"--shape {shape}: {str(error).splitlines()[0]}") from error
    if shape.width is None:
        floor = 2 * leaves[0].numel() * leaves[0].element_size() * _copy_time_a_byte(device)
        losses = _loss_contenders(device)
    else:
        floor = _product_time(shape, device, seconds / 10)
        losses = _layer_contenders(device)
    steps: dict[str, Step] = {}
    for name, loss in losses.items():
        # Liger writes the gradient over its input: it gets one of its own.
        own = [leaf.detach().clone().requires_grad_() for leaf in leaves] if name == "Liger CE" else leaves
        steps[name] = partial(_step, loss, own, target)
    results: dict[str, dict[str, Any]] = {}
    for name, step in list(steps.items()):
        try:
            results[name] = {"extra_mib": _extra_memory(step, device)}
        except Exception as error:  # a contender that cannot run here is a finding, not the end of the table
            results[name] = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
            del steps[name]
    for name, (milliseconds, host) in _medians(steps, device, seconds).items():
        results[name] |= {"milliseconds": milliseconds, "share_of_floor": floor / milliseconds}
        if device == "cuda":
            results[name]["host_milliseconds"] = host
    return {"shape": str(shape), **shape._asdict(), "dtype": str(shape.dtype), "floor_milliseconds": floor,
            "results": results}


def _step(loss: Callable[..., Tensor], leaves: Sequence[Tensor], target: Tensor, *, backward: bool = True) -> None:
    for leaf in leaves:
        leaf.grad = None
    if not backward:
        return
    loss(*leaves, target).backward()  # type: ignore[no-untyped-call]


def _loss_contenders(device: str) -> dict[str, Callable[..., Tensor]]:
    found: dict[str, Callable[..., Tensor]] = {
        "ours, EL": lambda z, y: curve_loss(z, y, EL),
        "ours, CE": lambda z, y: curve_loss(z, y, CE),
        "ours, EL smoothed": lambda z, y: curve_loss(z, y, EL, label_smoothing=0.1),
        "torch CE": F.cross_entropy,
        "torch CE smoothed": lambda z, y: F.cross_entropy(z, y, label_smoothing=0.1),
        "published EL": _published,
    }
    if device == "cuda":
        found["torch.compile CE"] = torch.compile(F.cross_entropy, dynamic=False)
        liger = _liger("liger_cross_entropy")
        if liger is not None:
            found["Liger CE"] = lambda z, y: _first(liger(z, y))
    return found


def _layer_contenders(device: str) -> dict[str, Callable[..., Tensor]]:
    def plain(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(hidden, weight), target)

    found: dict[str, Callable[..., Tensor]] = {
        "ours, EL": lambda h, w, y: linear_curve_loss(h, w, y, EL),
        "ours, EL, sums in the weight's type": lambda h, w, y: linear_curve_loss(h, w, y, EL, accumulate="weight"),
        "torch linear + CE": plain,
    }
    fused = getattr(F, "linear_cross_entropy", None)
    if fused is not None:
        found["torch linear_cross_entropy"] = lambda h, w, y: fused(h, w, y)
    if device == "cuda":
        found["torch.compile linear + CE"] = torch.compile(plain, dynamic=False)
        liger = _liger("liger_fused_linear_cross_entropy")
        if liger is not None:
            found["Liger fused linear CE"] = lambda h, w, y: _first(liger(h, w, y))
    return found


def _liger(name: str) -> Callable[..., Any] | None:
    try:
        return getattr(importlib.import_module("liger_kernel.transformers.functional"), name, None)
    except ImportError:
        return None


def _first(result: Any) -> Tensor:
    loss: Tensor = result[0] if isinstance(result, tuple) else result
    return loss


def _published(logits: Tensor, target: Tensor, log_end: float = 0.75, eps: float = 1e-5) -> Tensor:
    """The encouraging loss as its authors wrote it, in plain operations: here as a price, not as an example."""
    log_p = torch.log_softmax(logits, dim=-1)
    p = log_p.exp()
    bonus = torch.log(torch.clamp(1.0 - p, min=eps))
    line = -1 / (1 - log_end) * (p - log_end) + math.log(1 - log_end)
    bonus = torch.where(p > log_end, line, bonus)
    return F.nll_loss(log_p - bonus, target)


def _flush(device: str) -> Step:
    """Something that fills the second-level cache, so that no run finds its inputs there."""
    if device != "cuda":
        return lambda: None
    size = 4 * torch.cuda.get_device_properties().L2_cache_size
    return torch.empty(max(size, 1 << 28), dtype=torch.int8, device=device).zero_


def _medians(steps: Mapping[str, Step], device: str, seconds: float) -> dict[str, tuple[float, float]]:
    """Milliseconds of every step on the device and on the host, each in turn, round after round."""
    if not steps:
        return {}
    flush = _flush(device)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):
            step()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds * len(steps) or min(map(len, times.values())) < 5:
        for name, step in steps.items():
            times[name].append(_time(step, flush, device))
    return {name: (statistics.median(one for one, _ in taken), statistics.median(host for _, host in taken))
            for name, taken in times.items()}


def _time(step: Step, flush: Step, device: str) -> tuple[float, float]:
    if device != "cuda":
        start = time.perf_counter()
        step()
        taken = 1e3 * (time.perf_counter() - start)
        return taken, taken
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda._sleep(_HEAD_START)  # type: ignore[no-untyped-call]
    flush()
    before.record()
    start = time.perf_counter()
    step()
    host = 1e3 * (time.perf_counter() - start)
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after)), host


def _extra_memory(step: Step, device: str) -> float | None:
    """The most MiB that a step holds beyond its inputs, the gradients included."""
    step()  # the first run of a compiled contender allocates for its compilation
    if device != "cuda":
        return None
    step(backward=False)  # takes the gradients away
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


@lru_cache(maxsize=2)
def _copy_time_a_byte(device: str) -> float:
    """Milliseconds that a large copy takes for each byte that it reads or writes."""
    source = torch.empty(1 << 30 if device == "cuda" else 1 << 27, dtype=torch.uint8, device=device)
    other = torch.empty_like(source)
    return _medians({"copy": lambda: other.copy_(source)}, device, 0.2)["copy"][0] / (2 * source.numel())


def _product_time(shape: Shape, device: str, seconds: float) -> float:
    """Three products of the output layer, at the rate of one large one."""
    n = 8192 if device == "cuda" else 512
    a, b = (torch.randn(n, n, device=device, dtype=shape.dtype) for _ in range(2))
    per_flop = _medians({"product": lambda: a @ b}, device, seconds)["product"][0] / (2 * n**3)
    return 6 * shape.rows * shape.classes * (shape.width or 0) * per_flop


def _show(case: dict[str, Any]) -> None:
    print(f"{case['shape']}: floor {case['floor_milliseconds']:.3f} ms")
    for name, result in sorted(case["results"].items(), key=lambda item: item[1].get("milliseconds", math.inf)):
        if "failed" in result:
            print(f"  {name:38} failed: {result['failed']}")
            continue
        memory = "" if result["extra_mib"] is None else f"{result['extra_mib']:8.0f} MiB"
        if "host_milliseconds" in result:
            memory += f"   host {result['host_milliseconds']:.3f} ms"
        print(f"  {name:38} {result['milliseconds']:9.3f} ms {result['share_of_floor']:7.1%} of the floor {memory}",
              flush=True)
