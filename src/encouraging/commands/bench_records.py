"""Records of ``encouraging bench``: read, merge, print, and compare with an older one."""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..engine.outputs import make_folder, write_output
from ..errors import ArgumentError

ALLOWED = 1.03  # of torch's time, and of an older record's


def now() -> str:
    """Today, as a record has it."""
    return datetime.date.today().isoformat()


def read(path: Path) -> dict[str, Any]:
    """A record that ``encouraging bench`` wrote."""
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArgumentError(f"{path}: there is no such file. Expected a record that `encouraging bench --out FILE` "
                            "wrote.") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ArgumentError(f"{path}: expected a record that `encouraging bench --out FILE` wrote: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("cases"), list) or "device" not in record:
        raise ArgumentError(f"{path}: this is not a record that `encouraging bench --out FILE` wrote: it has no "
                            "device or no cases.")
    return record


def merge(paths: Sequence[Path], out: Path | None = None) -> dict[str, Any]:
    """One record of several parts of ``--matrix`` or ``--random``, printed as a whole. The parts must come from one
    device and one set of versions; a case that several of them have counts once, as the last has it."""
    records = [read(path) for path in paths]
    merged = dict(records[0])
    for path, record in zip(paths, records, strict=True):
        for name in ("device", "torch", "triton", "encouraging"):
            if record.get(name) != merged.get(name):
                raise ArgumentError(
                    f"--merge {path}: it has {name} {record.get(name)}, and {paths[0]} has {merged.get(name)}. "
                    "Expected parts from one machine with one set of versions.")
        if any("case" not in case for case in record["cases"]):
            raise ArgumentError(f"--merge {path}: expected a record of --matrix or --random.")
    merged["cases"] = list({case["case"]: case for record in records for case in record["cases"]}.values())
    merged["drawn"] = [draw for record in records for draw in record.get("drawn") or []]
    return finish(merged, out)


def line(case: dict[str, Any]) -> str:
    """A case in one line of the report."""
    if "ratio" not in case:
        return f"      {case['case']}: {case['skipped']}"
    times = ", ".join(f"{name} {milliseconds:.3f}" for name, milliseconds in case["milliseconds"].items())
    return f"{case['ratio']:5.2f} {case['case']}: {times} ms ({case['measured']})"


def finish(record: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """Sort by the worst ratio, print and write."""
    record["cases"].sort(key=lambda case: -case.get("ratio", 0.0))
    ratios = [case["ratio"] for case in record["cases"] if "ratio" in case]
    print("\n".join(line(case) for case in record["cases"]))
    if ratios:
        above = sum(ratio > ALLOWED for ratio in ratios)
        record |= {"worst_ratio": max(ratios), "median_ratio": statistics.median(ratios)}
        print(f"{len(ratios)} cases: the worst {max(ratios):.2f}, the median {statistics.median(ratios):.2f}, "
              f"{above} above {ALLOWED}")
    write(record, out)
    return record


def write(record: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        make_folder(out.parent)
        write_output(out, (json.dumps(record, indent=1) + "\n").encode())


def compare(before: Path, after: Path, again: Sequence[Path] = ()) -> int:
    """Print our times in two records, the most slowed down first. Returns the exit status: 1 where one is slower than
    before by more than 3%.

    A warm GPU lowers its clock for seconds, which slows all rounds of a case; nothing makes it faster. So where the
    second record was measured ``again``, each case counts with its fastest time.
    """
    old = read(before)
    earlier = _our_times(old)
    later: dict[str, float] = {}
    for path in (after, *again):
        new = read(path)
        if old["device"] != new["device"]:
            raise ArgumentError(f"--compare: {before} was measured on {old['device']}, {path} on {new['device']}. "
                                "Expected records of one device.")
        for name, milliseconds in _our_times(new).items():
            later[name] = min(milliseconds, later.get(name, milliseconds))
    ratios = sorted((later[name] / earlier[name], name) for name in earlier.keys() & later.keys())
    if not ratios:
        raise ArgumentError(f"--compare: {before} and {after} have no case in common.")
    for ratio, name in reversed(ratios):
        print(f"{ratio:5.2f} {name}: {earlier[name]:.3f} ms, now {later[name]:.3f}"
              f"{'  SLOWER' if ratio > ALLOWED else ''}")
    slower = sum(ratio > ALLOWED for ratio, _ in ratios)
    alone = len(earlier.keys() ^ later.keys())
    print(f"{len(ratios)} times in both records, {slower} slower by more than 3%"
          f"{f'; {alone} are in one of them alone' if alone else ''}")
    return 1 if slower else 0


def _our_times(record: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of our losses by case, of ``bench`` and of ``bench --matrix``."""
    times: dict[str, float] = {}
    for case in record["cases"]:
        if "results" in case:
            times |= {f"{case['shape']}: {name}": result["milliseconds"] for name, result in case["results"].items()
                      if name.startswith("ours") and "milliseconds" in result}
        elif "ours" in case.get("milliseconds", {}):
            times[case["case"]] = case["milliseconds"]["ours"]
    return times
