"""Is anything slower than recorded? Losses and engine on a CPU, the median of several runs beside the committed record.

    python benchmarks/no_slower.py                 # five runs each; exit code 1 where one is above 1.05 of its record
    python benchmarks/no_slower.py --record        # write the engine's record anew, after a change that is meant

Everything is a ratio to what runs in turns beside it: a loss to torch's cross-entropy, the engine's step to that of a
bare loop. So the figures can be compared between machines, and a slow minute counts for both.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))  # its neighbours, however this script is started
import engine_overhead
import loss_cpu

BENCH = Path(__file__).parents[1] / "results" / "bench"
ENGINE = BENCH / "engine-cpu.json"
SLOWER = 1.05


def losses(runs: int) -> dict[str, tuple[float, float]]:
    """Ratio to cross-entropy, now and recorded, by shape and smoothing."""
    figures = {}
    for name in ("loss-cpu.json", "loss-cpu-smoothed.json"):
        record = json.loads((BENCH / name).read_text())
        smoothing = record.get("label_smoothing", 0.0)
        torch.set_num_threads(min(record["threads"], torch.get_num_threads()))
        for case in record["cases"]:
            now = statistics.median(
                float(loss_cpu.measure(case["rows"], case["classes"], max(10, case["pairs"] // runs), None,
                                       smoothing)["ratio"]) for _ in range(runs))
            figures[f"loss {case['rows']} x {case['classes']}, smoothing {smoothing:g}"] = now, case["ratio"]
    return figures


def engine(runs: int, data: str | None) -> dict[str, float]:
    """The engine's step over a bare loop's, by network."""
    torch.set_num_threads(1)
    figures = {}
    for name, dataset, model, size, limit, repeats in (("digits_mlp", "digits", "digits_mlp", 64, None, 12),
                                                       ("lsoftmax_cnn", "mnist", "lsoftmax_cnn", 16, 64, 3)):
        try:
            ratios = [engine_overhead.ratio(dataset, model, size, data, limit, repeats) for _ in range(runs)]
        except ValueError as error:
            print(f"engine {name} is skipped: {str(error).splitlines()[0]}")
            continue
        figures[f"engine {name}"] = statistics.median(ratios)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs whose median counts (default: %(default)s)")
    parser.add_argument("--data", help="the data directory with MNIST's files; else ENCOURAGING_DATA")
    parser.add_argument("--record", action="store_true", help="write the engine's figures to results/bench")
    args = parser.parse_args()
    steps = engine(args.runs, args.data)
    if args.record:
        ENGINE.write_text(json.dumps({"date": datetime.date.today().isoformat(), "torch": torch.__version__,
                                      "runs": args.runs, "ratio_to_bare_loop": steps}, indent=1) + "\n")
    recorded = json.loads(ENGINE.read_text())["ratio_to_bare_loop"]
    figures = losses(args.runs) | {name: (now, recorded[name]) for name, now in steps.items() if name in recorded}
    slower = [name for name, (now, before) in figures.items() if now > SLOWER * before]
    for name, (now, before) in figures.items():
        print(f"{name:42s} {now:6.3f}  recorded {before:6.3f}  {now / before:5.2f}"
              f"{'  SLOWER' if name in slower else ''}")
    sys.exit(bool(slower))


if __name__ == "__main__":
    main()
