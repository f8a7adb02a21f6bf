"""Everything that is timed against torch, in one go, with as little time as possible alone on the GPU.

    python benchmarks/matrix_gpu.py OUT [--seeds 1,2,3] [--draws 40] [--jobs 14] [--seconds 0.04]
    python benchmarks/quiet_gpu.py grid_gpu.py --from measuring --until measured -- python benchmarks/matrix_gpu.py OUT
    python benchmarks/matrix_gpu.py OUT --cases OUT/matrix.json OUT/random-1.json --above 0.97
    python benchmarks/matrix_gpu.py OUT --show

The cases of ``encouraging bench --matrix`` and of ``--random DRAWS`` for every seed are compiled first, all of them,
by JOBS processes that may share the GPU with other work. Then comes the line ``measuring N cases``, and they are
measured one after the other until the line ``measured``. A case is first measured for SECONDS per contender; one whose
ratio comes out above 0.9 is measured again at once, four times as long, and only the longer measurement is recorded: a
short look at cases far from the limit, a longer one near it.

OUT/matrix.json and OUT/random-SEED.json are the records that ``bench`` would write. They are written after every case;
one that is complete has a "worst_ratio". With ``--continue``, what these files have from a run that was cut is kept,
and the other cases are measured. ``--cases`` measures again what these records have above ``--above`` or had to skip,
into OUT/again.json, and nothing else unless ``--seeds`` are given. ``--show`` prints the summary of the records in OUT.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import statistics
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from encouraging.commands import bench_matrix
from encouraging.commands.bench_cases import Case, matrix, random_cases
from encouraging.commands.bench_matrix import Plan
from encouraging.commands.bench_records import ALLOWED, finish, line, read
from encouraging.errors import ArgumentError

LONGER_ABOVE = 0.9
SHOWN = 12
RECORDS = ("matrix.json", "random-*.json")
SAME = ("encouraging", "torch", "triton", "device")


def plan(cases: Sequence[Case], out: Path, drawn: list[dict[str, int]], continued: bool = False) -> Plan:
    """The cases and their record; where it is ``continued``, only those that the file does not have yet."""
    record = bench_matrix.new_record(drawn)
    if continued and out.exists():
        before = read(out)
        if all(before.get(name) == record[name] for name in (*SAME, "drawn")):
            record["cases"] = [case for case in before["cases"] if "ratio" in case]
    measured = {case_of(case) for case in record["cases"]}
    return Plan([case for case in cases if case not in measured], record, out)


def case_of(result: dict[str, Any]) -> Case:
    """The case of a result in a record."""
    return Case(*(result[name] for name in Case._fields[:-1]), tuple(result["numbers"]))


def cases_above(paths: Sequence[Path], limit: float) -> list[Case]:
    """Cases of records with a ratio above the limit or none. A case that several records have counts as in the last."""
    results = {case_of(case): case for path in paths for case in read(path)["cases"]}
    return [case for case, result in results.items() if result.get("ratio", math.inf) > limit]


def plans_of(args: argparse.Namespace) -> list[Plan]:
    """What the flags ask for."""
    plans = []
    if args.matrix and not args.cases:
        plans.append(plan(matrix(), args.out / "matrix.json", [], args.continued))
    for seed in ([] if args.cases else [1, 2, 3]) if args.seeds is None else args.seeds:
        plans.append(plan(random_cases(args.draws, seed), args.out / f"random-{seed}.json",
                          [{"count": args.draws, "seed": seed}], args.continued))
    if args.cases:
        plans.append(plan(cases_above(args.cases, args.above), args.out / "again.json", []))
    return plans


def finish_silently(finished: Plan) -> None:
    """Sort and complete a record, whose lines were printed as they came."""
    with redirect_stdout(io.StringIO()):
        finish(finished.record, finished.out)


def show(records: dict[str, dict[str, Any]]) -> None:
    """One line per record, and the worst cases of all."""
    worst: list[dict[str, Any]] = []
    for name, record in records.items():
        results = sorted((case for case in record["cases"] if "ratio" in case), key=lambda case: -case["ratio"])
        ratios = [case["ratio"] for case in results]
        worst += results[:SHOWN]
        words = [f"{name}: {len(ratios)} cases"]
        if ratios:
            words += [f"the worst {ratios[0]:.2f}", f"the median {statistics.median(ratios):.2f}",
                      f"{sum(ratio > ALLOWED for ratio in ratios)} above {ALLOWED}"]
        skipped = len(record["cases"]) - len(ratios)
        words += [f"{skipped} skipped"] * bool(skipped) + ["not complete"] * ("worst_ratio" not in record)
        print(", ".join(words))
    for case in sorted(worst, key=lambda case: -case["ratio"])[:SHOWN]:
        print(line(case))


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the records")
    parser.add_argument("--seeds", type=numbers, help="of the random cases, with commas between; '' for none "
                        "(default: 1,2,3, or none with --cases)")
    parser.add_argument("--draws", type=int, default=40, help="random cases per seed (default: 40)")
    parser.add_argument("--jobs", type=int, default=14, help="processes that compile (default: 14)")
    parser.add_argument("--seconds", type=float, default=0.04, help="per contender of a case (default: 0.04)")
    parser.add_argument("--no-matrix", dest="matrix", action="store_false", help="without the cases of bench --matrix")
    parser.add_argument("--cases", type=Path, nargs="+", default=[], metavar="FILE", help="measure again from these")
    parser.add_argument("--above", type=float, default=0.97, help="what --cases measures again (default: 0.97)")
    parser.add_argument("--continue", dest="continued", action="store_true", help="keep what a run that was cut has")
    parser.add_argument("--show", action="store_true", help="print the summary of the records in OUT, measure nothing")
    args = parser.parse_args()
    if args.show:
        show({path.name: read(path) for pattern in RECORDS for path in sorted(args.out.glob(pattern))})
        return 0
    # Every process compiles for itself: pools of compilers of each would be hundreds of processes.
    for name in ("TORCHINDUCTOR_COMPILE_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    try:
        plans = plans_of(args)
    except ArgumentError as error:
        parser.error(str(error))
    bench_matrix.run_plans(plans, args.seconds, max(1, args.jobs), finish_silently, ahead=True,
                           longer_above=LONGER_ABOVE)
    show({plan.out.name: plan.record for plan in plans if plan.out is not None})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
