"""The environment of a run: versions, device, threads and instruction set."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from typing import Any

import torch

from .. import __version__
from ..errors import RunError


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), "torch": torch.__version__, "encouraging": __version__}


def environment(device: torch.device) -> dict[str, Any]:
    """What the numbers of a run may depend on. On the CPU, equal entries and an equal seed give equal bits."""
    return {
        **versions(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()} ({os.cpu_count()} cores)"


def peak_memory_mib(device: torch.device) -> dict[str, float]:
    """The peak memory of the GPU, or of the process on the CPU; empty on systems that do not report it."""
    if device.type == "cuda":
        return {"peak_memory_mib": torch.cuda.max_memory_allocated(device) / 2**20}
    try:
        import resource
    except ImportError:  # Windows has none
        return {}
    unit = 1 if sys.platform == "darwin" else 1024
    return {"peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20}


def choose_device(wanted: str) -> torch.device:
    """The device of ``--device``; ``auto`` is the GPU if there is one. One of several GPUs, such as ``cuda:1``, becomes
    the current one, because streams and CUDA graphs are made on that."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise RunError(f"--device {wanted}: expected cpu, cuda or auto.") from error
    if device.type not in ("cpu", "cuda"):
        raise RunError(f"--device {wanted}: expected cpu, cuda or auto.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RunError(f"--device {wanted}: torch sees no GPU here. Use --device cpu, or see `encouraging doctor`.")
    if device.type == "cuda" and device.index is not None:
        if device.index >= (count := torch.cuda.device_count()):
            raise RunError(f"--device {wanted}: torch sees {count} GPU{'s' if count > 1 else ''} here, the last of "
                           f"which is cuda:{count - 1}.")
        torch.cuda.set_device(device)
    return device


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
