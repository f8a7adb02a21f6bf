"""What the encouraging loss costs on a CPU beside torch's cross-entropy: forward and backward, time and peak memory.

    python benchmarks/loss_cpu.py --out results/bench/loss-cpu.json
    python benchmarks/loss_cpu.py --smoothing 0.1 --out results/bench/loss-cpu-smoothed.json
    python benchmarks/loss_cpu.py --threads 1 --shape 256x1000

Both losses run in interleaved pairs in one process; the figure is the median of the pairs' ratios, so a machine that
slows down for a while slows both. Memory is the highest sum of live allocations that torch's profiler sees.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # read when torch is imported: its profiler announces every start

import torch
import torch.nn.functional as F
from torch import Tensor

from encouraging import encouraging_loss

# rows, classes, pairs, and the most that EL may cost as a share of cross-entropy
CASES = [(1024, 32000, 30, 0.8), (4096, 1000, 150, 1.0), (256, 10, 3000, 2.5)]

Loss = Callable[[Tensor, Tensor], Tensor]


def step(loss: Loss, logits: Tensor, target: Tensor) -> float:
    logits.grad = None
    start = time.perf_counter()
    loss(logits, target).backward()
    return time.perf_counter() - start


def peak_bytes(loss: Loss, logits: Tensor, target: Tensor) -> int:
    logits.grad = None
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        loss(logits, target).backward()
    live = peak = 0
    changes = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(changes, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def measure(rows: int, classes: int, pairs: int, limit: float | None,
            smoothing: float) -> dict[str, float | int | bool | None]:
    theirs_with, ours_with = (functools.partial(loss, label_smoothing=smoothing)
                              for loss in (F.cross_entropy, encouraging_loss))
    torch.manual_seed(0)
    logits = (3 * torch.randn(rows, classes)).requires_grad_()
    target = torch.randint(0, classes, (rows,))
    for loss in (theirs_with, ours_with):
        for _ in range(3):
            step(loss, logits, target)
    times = [(step(theirs_with, logits, target), step(ours_with, logits, target)) for _ in range(pairs)]
    ratio = statistics.median(ours / theirs for theirs, ours in times)
    memory = {name: peak_bytes(loss, logits, target)
              for name, loss in (("theirs", theirs_with), ("ours", ours_with))}
    return {
        "rows": rows, "classes": classes, "pairs": pairs, "limit": limit, "ratio": ratio,
        "cross_entropy_ms": 1e3 * statistics.median(theirs for theirs, _ in times),
        "encouraging_ms": 1e3 * statistics.median(ours for _, ours in times),
        "cross_entropy_peak_bytes": memory["theirs"], "encouraging_peak_bytes": memory["ours"],
        "holds": limit is None or (ratio <= limit and memory["ours"] <= memory["theirs"]),
    }


def case_of(text: str) -> tuple[int, int, int, None]:
    """A case of one's own, with no promise: about as much work as the usual ones take."""
    try:
        rows, classes = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected ROWSxCLASSES such as 256x1000, got {text}") from None
    return rows, classes, max(20, min(3000, 10**8 // (rows * classes))), None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=case_of, action="append", metavar="ROWSxCLASSES",
                        help="measure this instead of the usual shapes; may be repeated")
    parser.add_argument("--smoothing", type=float, default=0.0, help="label smoothing of both losses; no promise then")
    parser.add_argument("--threads", type=int, help="CPU threads; else torch's default")
    parser.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    out, cases = args.out, []
    for rows, classes, pairs, limit in args.shape or CASES:
        cases.append(measure(rows, classes, pairs, None if args.smoothing else limit, args.smoothing))
        now = cases[-1]
        promise = "" if now["limit"] is None else f" (at most {now['limit']})"
        print(f"{now['rows']:>5} x {now['classes']:<6} EL / CE {now['ratio']:.2f}{promise}   "
              f"CE {now['cross_entropy_ms']:.3f} ms, {now['cross_entropy_peak_bytes'] / 2**20:.2f} MiB   "
              f"EL {now['encouraging_ms']:.3f} ms, {now['encouraging_peak_bytes'] / 2**20:.2f} MiB   "
              f"{'' if now['limit'] is None else 'holds' if now['holds'] else 'DOES NOT HOLD'}", flush=True)
    if out:
        record = {"date": datetime.date.today().isoformat(), "torch": torch.__version__, "machine": platform.machine(),
                  "python": platform.python_version(), "threads": torch.get_num_threads(),
                  "capability": torch.backends.cpu.get_cpu_capability(), "loss": "encouraging_loss(log_end=0.75)",
                  "dtype": "float32", "label_smoothing": args.smoothing, "cases": cases}
        out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
