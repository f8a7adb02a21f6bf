"""How far two trainings with the same seed lie apart, beside trainings with other seeds.

    python benchmarks/same_seed.py FIRST SECOND -o results/bench/same-seed.json [--metric best_accuracy]

FIRST and SECOND hold records of the same runs, trained twice. The standard deviation of one run is estimated twice:
from the two trainings of each seed, and from the seeds of each arm. If they are alike, the order in which a GPU adds
decides as much as the seed does, and a difference taken seed by seed is no more exact than one between other seeds.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from encouraging.engine.files import write_json
from encouraging.engine.records import Record, read_records


def paired(first: Path, second: Path, metric: str) -> list[dict[str, object]]:
    """The metric of every run that is in both folders."""
    again: dict[tuple[object, ...], Record] = {record.key: record for record in read_records(second)}
    return [{"recipe": record.recipe, "arm": record.arm, "seed": record.seed,
             "first": record.final[metric], "second": again[record.key].final[metric],
             "device": record.timing["device"], "torch": record.timing["torch"]}
            for record in read_records(first) if record.key in again and record.final != again[record.key].final]


def spread(differences: list[list[float]]) -> float:
    """The pooled standard deviation of groups of values, each around its own mean."""
    squares = sum(sum((value - statistics.fmean(group)) ** 2 for value in group) for group in differences)
    return float((squares / sum(len(group) - 1 for group in differences)) ** 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--metric", default="best_accuracy", help="(default: %(default)s)")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the JSON file")
    args = parser.parse_args()
    runs = paired(args.first, args.second, args.metric)
    if not runs:
        raise SystemExit("no run is in both folders with different numbers")
    arms: dict[object, list[float]] = {}
    for run in runs:
        arms.setdefault((run["recipe"], run["arm"]), []).append(float(str(run["first"])))
        print(f"{run['recipe']}, {run['arm']}, seed {run['seed']}: {run['first']:.2f}, again {run['second']:.2f}")
    within = spread([[float(str(run["first"])), float(str(run["second"]))] for run in runs])
    between = spread([values for values in arms.values() if len(values) > 1])
    write_json(args.out, {"metric": args.metric, "runs": runs, "same_seed": within, "other_seeds": between})
    print(f"standard deviation of a run: {within:.2f} with the same seed ({len(runs)} pairs), {between:.2f} over the "
          f"seeds of an arm")


if __name__ == "__main__":
    main()
