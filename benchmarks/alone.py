"""What one training costs that has the machine for itself, from the records of such trainings.

    python benchmarks/alone.py OUT-alone-records -o results/bench/alone.json

Trainings of other recipes stay in the file. `encouraging results` writes the numbers beside those of trainings that
were made side by side on the same device.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from encouraging.engine.files import read_json, write_json
from encouraging.engine.records import read_records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=Path, help="a folder of records, made with one run at a time")
    parser.add_argument("-o", "--out", type=Path, required=True, help="the JSON file")
    args = parser.parse_args()
    found: dict[str, list[dict[str, object]]] = {}
    for record in read_records(args.records):
        timing = record.timing
        if timing.get("at_once") != 1:
            raise SystemExit(f"{record.recipe}, {record.arm}, seed {record.seed}: {timing.get('at_once')} runs were "
                             "trained at once; expected records of runs that were trained alone.")
        found.setdefault(record.recipe, []).append(
            {"arm": record.arm, "seed": record.seed, **{key: timing[key] for key in ("device", "torch", "seconds",
                                                                                    "epochs", "samples")}})
    write_json(args.out, {**(read_json(args.out) if args.out.is_file() else {}), **found})
    for recipe, runs in found.items():
        for run in runs:
            print(f"{recipe}, {run['arm']}, seed {run['seed']}: {run['seconds']:.1f} s for {run['epochs']} epochs on "
                  f"{run['device']}")


if __name__ == "__main__":
    main()
