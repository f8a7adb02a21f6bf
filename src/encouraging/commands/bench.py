"""``encouraging bench``: time and memory of the losses on this machine, forward and backward, beside other losses.

The contenders of a case run in turn, round after round, so that a machine that slows down for a while slows all of
them; the result is the median. On a GPU the second-level cache is flushed before every run, and the run is queued while
the GPU is still busy, as in training: milliseconds are the GPU's, and the time that the host needs for queueing is
reported beside them. A run of an output layer begins after a pause, see :func:`bench_timing.medians`. ``floor`` is the
least that the case can cost: the logits read once and the gradient written once at the bandwidth of a large copy on
this device, or the three products of an output layer at the speed of a large product.
"""

from __future__ import annotations

import datetime
import importlib
import json
import math
import platform
import re
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .. import __version__
from ..engine.environment import choose_device
from ..engine.outputs import check_output, make_folder, write_output
from ..errors import ArgumentError, did_you_mean
from .bench_contenders import layer_contenders, loss_contenders, step
from .bench_timing import PAUSE, Step, copy_time_per_byte, extra_memory, medians, product_time

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


class Shape(NamedTuple):
    """Rows and classes of a case; with a width, of an output layer and its loss."""

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


def parse_shape(text: str, dtype: torch.dtype) -> Shape:
    """Rows and classes, or rows, width and classes of an output layer, from an argument of the command line.

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
        raise ArgumentError(f"--dtype {text}: expected {', '.join(DTYPES)}.{did_you_mean(text, DTYPES)}")
    return DTYPES[text]


def run_arguments(shapes: Sequence[str], dtype: str | None, out: Path | None, device: str, seconds: float,
                  only: str = "") -> None:
    """:func:`run` with the arguments of the command line. All of them are checked before anything is measured."""
    target = _device(device)
    if out is not None:
        check_output(out, make_parents=True)
    forced_dtype = None if dtype is None else parse_dtype(dtype)
    default = torch.bfloat16 if target == "cuda" else torch.float32
    chosen: Sequence[Shape] = [parse_shape(text, forced_dtype or default) for text in shapes]
    if not chosen:
        chosen = [shape if forced_dtype is None else shape._replace(dtype=forced_dtype)
                  for shape in (GPU_SHAPES if target == "cuda" else CPU_SHAPES)]
    if only:
        names = {name for losses in (loss_contenders(target), layer_contenders(target)) for name in losses}
        if not any(name.startswith(only) for name in names):
            raise ArgumentError(f"--only {only}: expected the beginning of one of these names: "
                                f"{'; '.join(sorted(names))}.")
    run(list(dict.fromkeys(chosen)), out, target, seconds, only)


def run(shapes: Sequence[Shape] | None = None, out: Path | None = None, device: str = "auto",
        seconds: float = 1.0, only: str = "") -> dict[str, Any]:
    """Measure all contenders at every shape, print tables, and return (and write) them.

    Every contender is run for ``seconds`` per shape, and at least five times; ``only`` is how the names of those that
    are measured begin.
    """
    device = _device(device)
    machine = _machine(device)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    if device == "cpu":
        print("No GPU is measured here: the reference implementation, and no figures for memory.")
    record: dict[str, Any] = {**machine, "date": datetime.date.today().isoformat(), "cases": []}
    for shape in shapes or (GPU_SHAPES if device != "cpu" else CPU_SHAPES):
        print(f"\nmeasuring {shape} ...", flush=True)
        case = _case(shape, device, seconds, only)
        record["cases"].append(case)
        _show(case)
        if out is not None:
            make_folder(out.parent)
            write_output(out, (json.dumps(record, indent=1) + "\n").encode())
    return record


def _device(device: str) -> str:
    chosen = choose_device(device)
    if chosen.index is not None:
        raise ArgumentError(f"--device {device}: expected cpu, cuda or auto. Of several GPUs the first is measured; "
                            "CUDA_VISIBLE_DEVICES says which that is.")
    return chosen.type


def _machine(device: str) -> dict[str, str]:
    versions = {"encouraging": __version__, "torch": torch.__version__}
    for name in ("triton", "liger_kernel"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        versions[name] = str(getattr(module, "__version__", None) or _installed_version(name))
    processor = platform.processor() or platform.machine()
    versions["device"] = torch.cuda.get_device_name() if device == "cuda" else processor
    return versions


def _installed_version(name: str) -> str:
    """The installed version of a package whose module does not have one."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "installed"


def _case(shape: Shape, device: str, seconds: float, only: str = "") -> dict[str, Any]:
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
        floor = 2 * leaves[0].numel() * leaves[0].element_size() * copy_time_per_byte(device)
        losses = loss_contenders(device)
    else:
        floor = product_time(shape.rows, shape.classes, shape.width, shape.dtype, device, seconds / 10)
        losses = layer_contenders(device)
    steps: dict[str, Step] = {}
    for name, loss in losses.items():
        if not name.startswith(only):
            continue
        # Liger writes the gradient over its input: it gets one of its own.
        inputs = [leaf.detach().clone().requires_grad_() for leaf in leaves] if name == "Liger CE" else leaves
        steps[name] = partial(step, loss, inputs, target)
    results: dict[str, dict[str, Any]] = {}
    for name, contender in list(steps.items()):
        try:
            results[name] = {"extra_mib": extra_memory(contender, device)}
        except Exception as error:  # a contender that cannot run here is a result, not the end of the table
            results[name] = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
            del steps[name]
    rounds, pause = (11, PAUSE if shape.width else 0.0) if device == "cuda" else (5, 0.0)
    for name, (milliseconds, host) in medians(steps, device, seconds, rounds, pause).items():
        results[name] |= {"milliseconds": milliseconds, "share_of_floor": floor / milliseconds}
        if device == "cuda":
            results[name]["host_milliseconds"] = host
    return {"shape": str(shape), **shape._asdict(), "dtype": str(shape.dtype), "floor_milliseconds": floor,
            "results": results}


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
