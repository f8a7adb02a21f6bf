"""What `encouraging diagnose` costs: a million examples of 1000 classes beside one logsumexp over the same file.

    python benchmarks/diagnose.py --out results/bench/diagnose.json

Makes a float16 safetensors file, then reads it in turns: once taking only `torch.logsumexp(block.float(), 1)` of every
block, once the same in pieces that stay in the cache (what a careful author would write), and once for the whole
diagnosis with all its quantiles, curves and the fitted temperature. All use the same reader, blocks and threads. A
first untimed pass warms the page cache. Peak memory is VmHWM of a fresh process that only diagnoses; the file is read
and not mapped, so none of its pages count there.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from encouraging.commands.diagnose import read_through
from encouraging.data.logits import Logits, open_logits
from encouraging.engine.environment import environment

IN_CACHE = 1 << 18  # logits per piece and thread
LIMIT_TIME, LIMIT_BYTES = 2.0, 2 << 30


def write(path: Path, examples: int, classes: int) -> None:
    """Right about four times in five, with logits of a network's size; written in pieces."""
    header = {"labels": {"dtype": "I64", "shape": [examples], "data_offsets": [0, 8 * examples]},
              "logits": {"dtype": "F16", "shape": [examples, classes],
                         "data_offsets": [8 * examples, 8 * examples + 2 * examples * classes]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (examples,), generator=random)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + labels.numpy().tobytes())
        for part in labels.split(10_000):
            logits = torch.randn(len(part), classes, generator=random).mul_(2)
            logits[torch.arange(len(part)), part] += 8 + 2 * torch.randn(len(part), generator=random)
            file.write(logits.half().numpy().tobytes())


def logsumexp(source: Logits) -> None:
    for block in source.logits.blocks():
        torch.logsumexp(block.float(), 1)


def logsumexp_in_cache(source: Logits) -> None:
    rows = max(1, IN_CACHE * torch.get_num_threads() // source.classes // 2)
    for block in source.logits.blocks():
        for piece in block.split(rows):
            torch.logsumexp(piece.float(), 1)


def only_read(source: Logits) -> None:
    for _ in source.logits.blocks():
        pass


WAYS: dict[str, Callable[[Logits], object]] = {
    "diagnose": read_through, "logsumexp": logsumexp, "logsumexp_in_cache": logsumexp_in_cache, "read": only_read}


def peak(path: Path, threads: int) -> dict[str, int]:
    """VmHWM of a process that diagnoses the file, after its imports and at its end."""
    code = ("import sys, torch\ntorch.set_num_threads(int(sys.argv[2]))\n"
            "from encouraging.data.logits import open_logits\nfrom encouraging.commands.diagnose import read_through\n"
            "high = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024\n"
            "before = high()\nread_through(open_logits(sys.argv[1]))\nprint(before, high())")
    done = subprocess.run([sys.executable, "-c", code, str(path), str(threads)], capture_output=True, text=True,
                          check=True)
    before, after = map(int, done.stdout.split())
    return {"after_imports_bytes": before, "peak_bytes": after}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--examples", type=int, default=1_000_000, help="rows of the file (default: %(default)s)")
    options.add_argument("--classes", type=int, default=1000, help="logits per row (default: %(default)s)")
    options.add_argument("--threads", type=int, default=2, help="CPU threads (default: %(default)s)")
    options.add_argument("--rounds", type=int, default=3, help="reads of the file, each way (default: %(default)s)")
    options.add_argument("--folder", type=Path, help="where to put the file for a while (2 GB); else the system's")
    options.add_argument("--out", type=Path, help="also write the figures here, as JSON")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder) / "logits.safetensors"
        write(path, args.examples, args.classes)
        source = open_logits(path)
        only_read(source)
        seconds: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(args.rounds):
            for name, way in WAYS.items():
                start = time.perf_counter()
                way(source)
                seconds[name].append(time.perf_counter() - start)
        memory = peak(path, args.threads)
        size = path.stat().st_size
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    record = {"date": datetime.date.today().isoformat(), **environment(torch.device("cpu")),
             "examples": args.examples, "classes": args.classes, "dtype": "float16", "file_bytes": size,
             "seconds": seconds, "median_seconds": middle,
             "ratio": middle["diagnose"] / middle["logsumexp"], "limit": LIMIT_TIME,
             "ratio_in_cache": middle["diagnose"] / middle["logsumexp_in_cache"],
             "memory": memory | {"limit_bytes": LIMIT_BYTES}}
    record["holds"] = record["ratio"] <= LIMIT_TIME and memory["peak_bytes"] <= LIMIT_BYTES
    print(json.dumps(record, indent=1))
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
