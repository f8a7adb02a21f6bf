"""What the flags of ``encouraging bench`` ask for, checked together before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..engine.outputs import check_output
from ..errors import ArgumentError
from . import bench_records


@dataclass(frozen=True)
class BenchArguments:
    """The flags, named as on the command line; ``count`` is that of ``--random``."""

    out: Path | None = None
    device: str = "auto"
    shapes: Sequence[str] = ()
    dtype: str | None = None
    seconds: float | None = None
    only: str = ""
    matrix: bool = False
    count: int | None = None
    seed: int = 0
    part: str | None = None
    jobs: int = 1
    check: bool = False
    merge: Sequence[Path] = ()
    compare: tuple[Path, Path] | None = None
    again: Sequence[Path] = ()


def run_bench(args: BenchArguments) -> int:
    """Do what the flags ask for, and return the exit status."""
    kinds = {"--matrix": args.matrix, "--random": args.count is not None, "--merge": bool(args.merge),
             "--compare": args.compare is not None}
    chosen = [name for name, given in kinds.items() if given]
    if len(chosen) > 1:
        raise ArgumentError(f"{' and '.join(chosen)}: expected one of them at a time.")
    kind = chosen[0] if chosen else "bench"
    cases, shapes = {"--matrix", "--random"}, {"bench"}
    belongs = {
        "--seed": (bool(args.seed), {"--random"}), "--part": (args.part is not None, cases),
        "--jobs": (args.jobs > 1, cases), "--check": (args.check, cases), "--shape": (bool(args.shapes), shapes),
        "--dtype": (args.dtype is not None, shapes), "--only": (bool(args.only), shapes),
        "--seconds": (args.seconds is not None and not args.check, cases | shapes),
        "--again": (bool(args.again), {"--compare"}),
        "--device": (args.device != "auto", shapes), "--out": (args.out is not None, cases | shapes | {"--merge"}),
    }
    for name, (given, kinds_with_it) in belongs.items():
        if given and kind not in kinds_with_it:
            expected = " or ".join(sorted(kinds_with_it - shapes)) or f"a measurement without {kind}"
            raise ArgumentError(f"{name} belongs to {expected}; leave it out here.")
    if args.out is not None:
        check_output(args.out, args.merge, make_parents=True)
    if args.compare is not None:
        return bench_records.compare(*args.compare, args.again)
    if args.merge:
        bench_records.merge(args.merge, args.out)
        return 0
    from . import bench, bench_matrix  # with torch, for seconds that records do not need

    if kind in cases and args.check:
        return bench_matrix.run_checks(count=args.count, seed=args.seed, part=args.part, out=args.out)
    elif kind in cases:
        bench_matrix.run_matrix(count=args.count, seed=args.seed, part=args.part, out=args.out, jobs=args.jobs,
                                seconds=0.2 if args.seconds is None else args.seconds)
    else:
        bench.run_arguments(args.shapes, args.dtype, args.out, args.device,
                            1.0 if args.seconds is None else args.seconds, args.only)
    return 0
