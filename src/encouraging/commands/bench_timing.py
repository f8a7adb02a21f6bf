"""How ``encouraging bench`` measures time and memory."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch

Step = Callable[..., object]
PAUSE = 0.1  # seconds before a run of matrix products
_HEAD_START = 4_000_000  # GPU cycles, about 2 ms: longer than any contender takes to queue its work


def _flush(device: str) -> Step:
    """A function that overwrites the second-level cache, so that no run finds its inputs there."""
    if device != "cuda":
        return lambda: None
    size = 4 * torch.cuda.get_device_properties().L2_cache_size
    return torch.empty(max(size, 1 << 28), dtype=torch.int8, device=device).zero_


def medians(steps: Mapping[str, Step], device: str, seconds: float, rounds: int = 5,
            pause: float = 0.0) -> dict[str, tuple[float, float]]:
    """Median milliseconds of every step on the device and on the host. The steps take turns, for at least ``rounds``
    rounds and ``seconds`` per step.

    Before every run the device pauses for ``pause`` seconds. Matrix products are limited by its power: without a pause,
    a step is a tenth faster when it follows one that draws little power.
    """
    if not steps:
        return {}
    flush = _flush(device)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):
            step()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds * len(steps) or min(map(len, times.values())) < rounds:
        for name, step in steps.items():
            if pause:
                time.sleep(pause)  # the run before has ended
            times[name].append(_time(step, flush, device))
    return {name: (statistics.median(device_time for device_time, _ in rounds_taken),
                   statistics.median(host_time for _, host_time in rounds_taken))
            for name, rounds_taken in times.items()}


def walls(steps: Mapping[str, Step], seconds: float, in_a_row: int = 10) -> dict[str, float]:
    """Median milliseconds by the clock until a step on the GPU is done.

    The steps take turns of ``in_a_row`` runs, in changing order: the time to wake autograd's thread drifts between 0.1
    and 0.4 ms, and would otherwise count as a difference between the steps.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(3):
            step()
    turns = list(steps.items())
    start = time.perf_counter()
    while time.perf_counter() - start < seconds * len(steps) or len(times[turns[0][0]]) < 5 * in_a_row:
        for name, step in turns:
            for _ in range(in_a_row):
                torch.cuda.synchronize()
                before = time.perf_counter()
                step()
                torch.cuda.synchronize()
                times[name].append(1e3 * (time.perf_counter() - before))
        turns = [*turns[1:], turns[0]]
    return {name: statistics.median(milliseconds) for name, milliseconds in times.items()}


def _time(step: Step, flush: Step, device: str) -> tuple[float, float]:
    if device != "cuda":
        start = time.perf_counter()
        step()
        milliseconds = 1e3 * (time.perf_counter() - start)
        return milliseconds, milliseconds
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


def extra_memory(step: Step, device: str) -> float | None:
    """The peak memory of a step beyond its inputs, in MiB, gradients included."""
    step()  # the first run of a compiled contender allocates for its compilation
    if device != "cuda":
        return None
    step(backward=False)  # removes the gradients
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


@lru_cache(maxsize=2)
def copy_time_per_byte(device: str) -> float:
    """Milliseconds that a large copy takes per byte that it reads or writes."""
    source = torch.empty(1 << 30 if device == "cuda" else 1 << 27, dtype=torch.uint8, device=device)
    destination = torch.empty_like(source)
    return medians({"copy": lambda: destination.copy_(source)}, device, 0.2)["copy"][0] / (2 * source.numel())


def product_time(rows: int, classes: int, width: int, dtype: torch.dtype, device: str, seconds: float) -> float:
    """Milliseconds of the three products of an output layer, at the speed of one large product."""
    n = 8192 if device == "cuda" else 512
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    pause = PAUSE if device == "cuda" else 0.0
    per_flop = medians({"product": lambda: a @ b}, device, seconds, pause=pause)["product"][0] / (2 * n**3)
    return 6 * rows * classes * width * per_flop
