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


def run_bench(asked: BenchArguments) -> int:
    """Do what the flags ask for, and return the exit status."""
    kinds = {"--matrix": asked.matrix, "--random": asked.count is not None, "--merge": bool(asked.merge),
             "--compare": asked.compare is not None}
    chosen = [name for name, given in kinds.items() if given]
    if len(chosen) > 1:
        raise ArgumentError(f"{' and '.join(chosen)}: expected one of them at a time.")
    kind = chosen[0] if chosen else "bench"
    cases, shapes = {"--matrix", "--random"}, {"bench"}
    belongs = {
        "--seed": (bool(asked.seed), {"--random"}), "--part": (asked.part is not None, cases),
        "--jobs": (asked.jobs > 1, cases), "--check": (asked.check, cases), "--shape": (bool(asked.shapes), shapes),
        "--dtype": (asked.dtype is not None, shapes), "--only": (bool(asked.only), shapes),
        "--seconds": (asked.seconds is not None and not asked.check, cases | shapes),
        "--again": (bool(asked.again), {"--compare"}),
        "--device": (asked.device != "auto", shapes), "--out": (asked.out is not None, cases | shapes | {"--merge"}),
    }
    for name, (given, kinds_with_it) in belongs.items():
        if given and kind not in kinds_with_it:
            wanted = " or ".join(sorted(kinds_with_it - shapes)) or f"a measurement without {kind}"
            raise ArgumentError(f"{name} belongs to {wanted}; leave it out here.")
    if asked.out is not None:
        check_output(asked.out, asked.merge, make_parents=True)
    if asked.compare is not None:
        return bench_records.compare(*asked.compare, asked.again)
    if asked.merge:
        bench_records.merge(asked.merge, asked.out)
        return 0
    from . import bench, bench_matrix  # with torch, for seconds that records do not need

    if kind in cases and asked.check:
        return bench_matrix.run_checks(count=asked.count, seed=asked.seed, part=asked.part, out=asked.out)
    elif kind in cases:
        bench_matrix.run_matrix(count=asked.count, seed=asked.seed, part=asked.part, out=asked.out, jobs=asked.jobs,
                                seconds=0.2 if asked.seconds is None else asked.seconds)
    else:
        bench.run_arguments(asked.shapes, asked.dtype, asked.out, asked.device,
                            1.0 if asked.seconds is None else asked.seconds, asked.only)
    return 0
